//! Headers that belong to one connection and are not sent on (RFC 9110, 7.6.1).

use std::net::IpAddr;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::{Authority, Parts, PathAndQuery, Scheme};
use hyper::{Request, Uri, Version};

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

/// Makes a client's request one for a replica: its target and its headers as the replica's protocol
/// has them, without those of the connection, and who asks. `to_2`: the replica speaks HTTP/2.
pub fn prepare<B>(request: &mut Request<B>, client: IpAddr, keeps_upgrade: bool, to_2: bool) {
    let takes_trailers = request.headers().get(TE).is_some_and(|te| te == "trailers");
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
    join_cookies(headers);
    if to_2 && takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
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
    if to_2 {
        for_http2(request);
    } else {
        *request.version_mut() = Version::HTTP_11;
    }
}

/// HTTP/2 has the host in the target.
pub fn for_http2<B>(request: &mut Request<B>) {
    *request.version_mut() = Version::HTTP_2;
    let Some(host) = request.headers_mut().remove(HOST) else {
        return;
    };
    let path = request.uri().path_and_query().cloned();
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Authority::try_from(host.as_bytes()).ok();
    parts.path_and_query = path.or_else(|| Some(PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// HTTP/2 may have a header for each cookie; HTTP/1.1 has one for all (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    if all.len() > 1 {
        let parts: Vec<&[u8]> = all.iter().map(HeaderValue::as_bytes).collect();
        if let Ok(joined) = HeaderValue::from_bytes(&parts.join(&b"; "[..])) {
            headers.insert(COOKIE, joined);
        }
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
        prepare(&mut request, [10, 0, 0, 1].into(), keeps_upgrade, false);
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
    fn a_request_for_http2_has_its_host_in_the_target() {
        let mut request = Request::builder()
            .uri("/x?y")
            .header("host", "a:1")
            .header("te", "trailers")
            .header("cookie", "b=1")
            .header("cookie", "c=2")
            .body(())
            .expect("a request");
        prepare(&mut request, [10, 0, 0, 1].into(), false, true);
        assert_eq!(request.uri(), "http://a:1/x?y");
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.headers()["cookie"], "b=1; c=2");
        assert!(!request.headers().contains_key("host"));
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
