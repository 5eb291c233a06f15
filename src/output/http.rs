// SPDX-License-Identifier: GPL-2.0-only
//! As much of HTTP/1.1 as a scrape needs: one request for one page, then the end.

/// Bytes of a request's head that are read at most.
pub const MOST_BYTES: usize = 8192;

/// Header fields that are looked at.
const MOST_FIELDS: usize = 64;

/// What a request wants, once it has all arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// More of it must be read.
    More,
    /// The page; without its body for HEAD.
    Page {
        /// With the body.
        body: bool,
    },
    /// What nobody gets: status code and reason.
    Nothing(u16, &'static str),
}

/// What the bytes that have arrived ask for, where the page is at `path`.
pub fn wants(bytes: &[u8], path: &str) -> Wants {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Wants::More,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Wants::Nothing(431, "Request Header Fields Too Large");
        }
        Err(_) => return Wants::Nothing(400, "Bad Request"),
        Ok(httparse::Status::Complete(_)) => {}
    }
    let target = request.path.unwrap_or_default();
    match (request.method, target.split('?').next()) {
        (_, at) if at != Some(path) => Wants::Nothing(404, "Not Found"),
        (Some("GET"), _) => Wants::Page { body: true },
        (Some("HEAD"), _) => Wants::Page { body: false },
        _ => Wants::Nothing(405, "Method Not Allowed"),
    }
}

/// A whole response; `body`: its length and type are named, and it follows unless `head_only`.
pub fn response(code: u16, reason: &str, kind: &str, body: &str, head_only: bool) -> Vec<u8> {
    let allow = if code == 405 {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let mut text = format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         Connection: close\r\n\r\n",
        body.len()
    );
    if !head_only {
        text += body;
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(text: &str) -> Wants {
        wants(text.as_bytes(), "/metrics")
    }

    fn code(text: &str) -> u16 {
        match wanted(text) {
            Wants::Nothing(code, _) => code,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_scrape_gets_the_page() {
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
        assert_eq!(wanted(request), Wants::Page { body: true });
        for end in 0..request.len() {
            assert_eq!(wanted(&request[..end]), Wants::More, "{end}");
        }
        let query = "GET /metrics?x=1 HTTP/1.0\r\n\r\n";
        assert_eq!(wanted(query), Wants::Page { body: true });
        let head = "HEAD /metrics HTTP/1.1\r\n\r\n";
        assert_eq!(wanted(head), Wants::Page { body: false });
    }

    #[test]
    fn all_else_gets_nothing() {
        assert_eq!(code("GET / HTTP/1.1\r\n\r\n"), 404);
        assert_eq!(code("GET /metrics/x HTTP/1.1\r\n\r\n"), 404);
        assert_eq!(code("POST /metrics HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(code("\x16\x03\x01\x02\r\n\r\n"), 400);
        assert_eq!(code("GET /metrics HTTP/9.9\r\n\r\n"), 400);
        let many = "a: b\r\n".repeat(MOST_FIELDS + 1);
        assert_eq!(code(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")), 431);
        let long = "a".repeat(MOST_BYTES);
        assert_eq!(code(&format!("GET /metrics HTTP/1.1\r\na: {long}")), 431);
    }

    #[test]
    fn a_response_has_the_length_of_its_body() {
        let text = String::from_utf8(response(200, "OK", "text/plain", "abc", false)).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"));
        assert!(text.ends_with("Content-Length: 3\r\nConnection: close\r\n\r\nabc"));
        let text = String::from_utf8(response(405, "No", "text/plain", "abc", true)).unwrap();
        assert!(
            text.contains("Content-Length: 3\r\nAllow: GET, HEAD\r\n"),
            "{text}"
        );
        assert!(text.ends_with("\r\n\r\n"));
    }
}
