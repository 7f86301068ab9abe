//! Headers that belong to one connection and are not sent on (RFC 9110, 7.6.1).

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::{Authority, Parts, PathAndQuery, Scheme};
use hyper::{Request, Response, Uri, Version};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What is of one connection in any case.
static OF_CONNECTION: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
];

/// Whether a request asks for another protocol on its connection.
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    has(headers, &UPGRADE) && words(headers).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

fn words(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// The few names of a usual message are compared sooner than one is hashed.
fn has(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|key| key == name)
}

fn remove(headers: &mut HeaderMap, name: &HeaderName) {
    if has(headers, name) {
        headers.remove(name);
    }
}

/// Takes out what is of one connection only. `keeps_upgrade`: except what asks for another protocol.
pub fn strip(headers: &mut HeaderMap, keeps_upgrade: bool) {
    let named: Vec<HeaderName> = words(headers)
        // By far the most common, and no header of a message.
        .filter(|word| {
            !["keep-alive", "close"]
                .iter()
                .any(|one| word.eq_ignore_ascii_case(one))
        })
        .filter_map(|word| HeaderName::from_bytes(word.as_bytes()).ok())
        // It must not take away what says where the body ends, or for whom the request is.
        .filter(|name| ![CONTENT_LENGTH, HOST, UPGRADE].contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in &OF_CONNECTION {
        remove(headers, name);
    }
    if keeps_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        remove(headers, &UPGRADE);
    }
}

/// Says that the connection is closed after this answer.
pub fn close<B>(reply: &mut Response<B>) {
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(CONNECTION, close);
}

/// Makes a client's request one for a replica: its target and its headers as the replica's protocol
/// has them, without those of the connection, and who asks. `to_2`: the replica speaks HTTP/2.
pub fn prepare<B>(request: &mut Request<B>, client: HeaderValue, keeps_upgrade: bool, to_2: bool) {
    let takes_trailers = to_2 && request.headers().get(TE).is_some_and(|te| te == "trailers");
    // A path alone is a replica's target as it is.
    if request.uri().authority().is_some() && request.method() != hyper::Method::CONNECT {
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
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // Guard itself asks the client to go on.
    remove(headers, &EXPECT);
    let before = headers.get_all(&FORWARDED_FOR).into_iter();
    let mut parts: Vec<&[u8]> = before.map(HeaderValue::as_bytes).collect();
    let all = (!parts.is_empty()).then(|| {
        parts.push(client.as_bytes());
        HeaderValue::from_bytes(&parts.join(&b", "[..]))
    });
    headers.insert(FORWARDED_FOR, all.and_then(Result::ok).unwrap_or(client));
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
    if headers.keys_len() == headers.len() {
        return; // each is there once
    }
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

    const CLIENT: HeaderValue = HeaderValue::from_static("10.0.0.1");

    fn prepared(lines: &[(&str, &str)], uri: &str, keeps_upgrade: bool) -> Request<()> {
        let mut builder = Request::builder().uri(uri);
        for (name, value) in lines {
            builder = builder.header(*name, *value);
        }
        let mut request = builder.body(()).expect("a request");
        prepare(&mut request, CLIENT, keeps_upgrade, false);
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
            ("x-forwarded-for", "5.6.7.8"),
        ];
        let request = prepared(&lines, "/x?y", false);
        let names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["host", "content-length", "x-forwarded-for"]);
        assert_eq!(
            request.headers()["x-forwarded-for"],
            "1.2.3.4, 5.6.7.8, 10.0.0.1"
        );
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
        prepare(&mut request, CLIENT, false, true);
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
