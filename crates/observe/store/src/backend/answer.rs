//! Turns refusals of an S3 server and failed requests into one-line errors. They contain no part of
//! the request, because its URL holds the signature.

use std::io::{self, ErrorKind};
use ureq::http::Response;
use ureq::{Body, Error};

/// The limit for the size of a refusal that is read.
const MOST: u64 = 64 << 10;

/// Returns the code of a refusal, for example `NoSuchKey`, or an empty text. The rest of the
/// refusal repeats the request.
pub(super) fn code(answer: &mut Response<Body>) -> String {
    let text = answer.body_mut().with_config().limit(MOST).read_to_string();
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

/// Turns a refusal into an error with a hint for the user.
pub(super) fn refused(answer: &mut Response<Body>) -> io::Error {
    let status = answer.status().as_u16();
    let code = code(answer);
    let hint = match (status, &code[..]) {
        (_, "NoSuchBucket") => "there is no such bucket",
        (_, "InvalidAccessKeyId") => "it does not know AWS_ACCESS_KEY_ID",
        (_, "SignatureDoesNotMatch") => "AWS_SECRET_ACCESS_KEY is not that of AWS_ACCESS_KEY_ID",
        (_, "ExpiredToken" | "InvalidToken") => "AWS_SESSION_TOKEN is not valid any more",
        (_, "RequestTimeTooSkewed") => "this machine's clock is wrong",
        (301 | 307 | 400, _) => "is AWS_REGION the region of the bucket?",
        (403, _) => "these credentials may not do that",
        _ => "the server refuses it",
    };
    let space = if code.is_empty() { "" } else { " " };
    io::Error::other(format!("{hint} ({status}{space}{code})"))
}

/// Turns a request without an answer into an error.
pub(super) fn fault(error: Error) -> io::Error {
    match error {
        Error::Io(e) => e,
        Error::Timeout(_) => ErrorKind::TimedOut.into(),
        Error::HostNotFound => io::Error::other("there is no host of AWS_ENDPOINT_URL's name"),
        Error::ConnectionFailed => ErrorKind::ConnectionRefused.into(),
        Error::Tls(what) => io::Error::other(format!("TLS: {what}")),
        Error::Rustls(e) => io::Error::other(format!("TLS: {e}")),
        Error::BodyExceedsLimit(_) => io::Error::other("the server's answer is too long"),
        _ => io::Error::other("the server's answer is no HTTP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_its_code_and_nothing_that_it_repeats() {
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
