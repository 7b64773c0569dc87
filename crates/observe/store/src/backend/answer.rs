//! Turns refusals of an S3 server and failed requests into one-line errors. They contain no part of
//! the request, because its URL holds the signature.

use std::io::{self, ErrorKind};
use ureq::http::Response;
use ureq::{Body, Error};

const MAX_REFUSAL_BYTES: u64 = 64 << 10;

/// Returns the error code of a server's refusal, for example `NoSuchKey`, or an empty text. The
/// rest of a refusal repeats the request.
pub(super) fn code(answer: &mut Response<Body>) -> String {
    let text = answer
        .body_mut()
        .with_config()
        .limit(MAX_REFUSAL_BYTES)
        .read_to_string();
    code_in(&text.unwrap_or_default())
}

fn code_in(text: &str) -> String {
    let code = text
        .split_once("<Code>")
        .and_then(|(_, t)| t.split_once('<'));
    let code = code.map_or("", |(code, _)| code);
    match code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric()) {
        true => code.into(),
        false => String::new(),
    }
}

pub(super) fn refused(answer: &mut Response<Body>) -> io::Error {
    let status = answer.status().as_u16();
    let code = code(answer);
    let hint = match (status, &code[..]) {
        (_, "NoSuchBucket") => "the bucket does not exist",
        (_, "InvalidAccessKeyId") => "the server does not know AWS_ACCESS_KEY_ID",
        (_, "SignatureDoesNotMatch") => {
            "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID"
        }
        (_, "ExpiredToken" | "InvalidToken") => "AWS_SESSION_TOKEN is not valid or has expired",
        (_, "RequestTimeTooSkewed") => "this machine's clock is wrong",
        (301 | 307 | 400, _) => "check that AWS_REGION is the region of the bucket",
        (403, _) => "the credentials do not permit this request",
        _ => "the server refuses the request",
    };
    let space = if code.is_empty() { "" } else { " " };
    io::Error::other(format!("{hint} ({status}{space}{code})"))
}

pub(super) fn fault(error: Error) -> io::Error {
    match error {
        Error::Io(e) => e,
        Error::Timeout(_) => ErrorKind::TimedOut.into(),
        Error::HostNotFound => io::Error::other("the host in AWS_ENDPOINT_URL is unknown"),
        Error::ConnectionFailed => ErrorKind::ConnectionRefused.into(),
        Error::Tls(what) => io::Error::other(format!("TLS: {what}")),
        Error::Rustls(e) => io::Error::other(format!("TLS: {e}")),
        Error::BodyExceedsLimit(_) => io::Error::other("the server's answer is too long"),
        _ => io::Error::other("the server's answer is not valid HTTP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_error_code_of_a_servers_refusal_is_reported() {
        let text =
            "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>key</AWSAccessKeyId></Error>";
        assert_eq!(code_in(text), "SignatureDoesNotMatch");
        for odd in [
            "",
            "<Code>",
            "<Code>\n\u{1b}[31m</Code>",
            "<Code>a b</Code>",
        ] {
            assert_eq!(code_in(odd), "", "{odd:?}");
        }
    }
}
