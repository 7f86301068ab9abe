//! Headers that belong to one connection and are not sent on (RFC 9110, 7.6.1).

use std::net::IpAddr;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Request, Uri};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Whether a request asks for another protocol on its connection.
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && words(headers).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

fn words(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Takes out what is of one connection only. `keeps_upgrade`: except what asks for another protocol.
pub fn strip(headers: &mut HeaderMap, keeps_upgrade: bool) {
    let named: Vec<HeaderName> = words(headers)
        .filter_map(|word| HeaderName::from_bytes(word.as_bytes()).ok())
        // It must not take away what says where the body ends, or for whom the request is.
        .filter(|name| ![CONTENT_LENGTH, HOST, UPGRADE].contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
    ] {
        headers.remove(name);
    }
    if keeps_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        headers.remove(UPGRADE);
    }
}

/// Makes a client's request one for a replica: its target in origin form, its headers without
/// those of the connection, and who asks.
pub fn prepare<B>(request: &mut Request<B>, client: IpAddr, keeps_upgrade: bool) {
    if request.method() != hyper::Method::CONNECT {
        let authority = request.uri().authority().map(|a| a.as_str().to_owned());
        if let Some(authority) = authority
            && let Ok(host) = HeaderValue::from_str(&authority)
        {
            // The target says for whom a request is; Host is only beside it.
            request.headers_mut().insert(HOST, host);
        }
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        if let Ok(uri) = path.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
    let headers = request.headers_mut();
    strip(headers, keeps_upgrade);
    // Guard itself asks the client to go on.
    headers.remove(EXPECT);
    let so_far = headers
        .get(&FORWARDED_FOR)
        .and_then(|value| value.to_str().ok());
    let all = match so_far {
        Some(before) => format!("{before}, {client}"),
        None => client.to_string(),
    };
    if let Ok(value) = HeaderValue::from_str(&all) {
        headers.insert(FORWARDED_FOR, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(lines: &[(&str, &str)], uri: &str, keeps_upgrade: bool) -> Request<()> {
        let mut builder = Request::builder().uri(uri);
        for (name, value) in lines {
            builder = builder.header(*name, *value);
        }
        let mut request = builder.body(()).expect("a request");
        prepare(&mut request, [10, 0, 0, 1].into(), keeps_upgrade);
        request
    }

    #[test]
    fn headers_of_the_connection_stay_there() {
        let lines = [
            ("host", "a"),
            ("connection", "close, X-Private, content-length"),
            ("x-private", "1"),
            ("content-length", "5"),
            ("te", "trailers"),
            ("x-forwarded-for", "1.2.3.4"),
        ];
        let request = prepared(&lines, "/x?y", false);
        let names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["host", "content-length", "x-forwarded-for"]);
        assert_eq!(request.headers()["x-forwarded-for"], "1.2.3.4, 10.0.0.1");
        assert_eq!(request.uri(), "/x?y");
    }

    #[test]
    fn the_target_says_for_whom_a_request_is() {
        let request = prepared(&[("host", "other")], "http://a.example/x", false);
        assert_eq!(request.headers()["host"], "a.example");
        assert_eq!(request.uri(), "/x");
    }

    #[test]
    fn a_request_to_upgrade_stays_one() {
        let lines = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        let request = prepared(&lines, "/", true);
        assert_eq!(request.headers()["connection"], "upgrade");
        assert_eq!(request.headers()["upgrade"], "websocket");
        assert!(wants_upgrade(request.headers()));
    }
}
