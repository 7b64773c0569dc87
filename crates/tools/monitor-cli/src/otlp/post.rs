//! Sends a message to a collector by HTTP/1.1, and reads the answer, which is untrusted. Both
//! together have a time limit, whatever the collector does.

use super::endpoint::Endpoint;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The number of bytes after which the rest of a collector's answer is not read.
const ANSWER_MAX: usize = 64 << 10;

/// The greatest length of a collector's error text in a line of the journal, in characters.
const WORDS_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub why: String,
    /// The pause that the collector requested before the next message. `None` if it requested none.
    pub retry_after: Option<Duration>,
}

impl Failure {
    fn new(why: impl Into<String>) -> Failure {
        Failure {
            why: why.into(),
            retry_after: None,
        }
    }
}

struct Deadline(Instant);

impl Deadline {
    fn left(&self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

pub fn post(endpoint: &Endpoint, body: &[u8], patience: Duration) -> Result<(), Failure> {
    let deadline = Deadline(Instant::now() + patience);
    let mut stream = connect(endpoint, &deadline)
        .map_err(|e| Failure::new(format!("no connection: {}", said(&e))))?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: onbeat/{}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        endpoint.path,
        endpoint.authority(),
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    let sent = send(&mut stream, head.as_bytes(), &deadline)
        .and_then(|()| send(&mut stream, body, &deadline));
    // A collector can answer before it has read everything, for example that the message is too large.
    match (receive(&mut stream, &deadline), sent) {
        (Ok(result), _) => result,
        (Err(_), Err(e)) => Err(Failure::new(format!("cannot send: {}", said(&e)))),
        (Err(e), Ok(())) => Err(Failure::new(format!("no answer: {}", said(&e)))),
    }
}

fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "the collector did not react in time".into()
        }
        _ => error.to_string(),
    }
}

fn connect(endpoint: &Endpoint, deadline: &Deadline) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (endpoint.host.as_str(), endpoint.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, deadline.left()?) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], deadline: &Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(deadline.left()?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, deadline: &Deadline) -> io::Result<Result<(), Failure>> {
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        stream.set_read_timeout(Some(deadline.left()?))?;
        let count = match stream.read(&mut bytes) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if count == 0 && answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend(&bytes[..count]);
        let is_whole = count == 0 || answer.len() >= ANSWER_MAX;
        if let Some(result) = judge(&answer, is_whole) {
            return Ok(result);
        }
    }
}

/// Judges a collector's HTTP answer. Returns `None` if `answer` is not complete yet. `is_whole`
/// says that no more bytes will come, because the connection is closed or the answer is too long.
fn judge(answer: &[u8], is_whole: bool) -> Option<Result<(), Failure>> {
    let nonsense = || Some(Err(Failure::new("the answer is not HTTP")));
    let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else {
        let is_http = answer.starts_with(b"HTTP/1.") || b"HTTP/1.".starts_with(answer);
        return match is_whole || !is_http {
            true => nonsense(),
            false => None,
        };
    };
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let code = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1));
    let Some(code) = code.and_then(|code| code.parse::<u16>().ok()) else {
        return nonsense();
    };
    let field = |name: &str| {
        let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let found = fields.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    };
    if !(200..300).contains(&code) {
        return Some(Err(refused(code, field("retry-after"))));
    }
    let is_chunked = field("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
    let length = field("content-length").and_then(|v| v.parse::<usize>().ok());
    let body = match (is_chunked, length) {
        (true, _) => match unchunked(body) {
            Some(body) => body,
            None if is_whole => return nonsense(),
            None => return None,
        },
        (false, Some(length)) if body.len() < length && !is_whole => return None,
        (false, Some(length)) => body[..length.min(body.len())].to_vec(),
        (false, None) if code != 204 && !is_whole => return None,
        (false, None) => body.to_vec(),
    };
    Some(taken(&body))
}

/// Joins the chunks of an HTTP body in chunked encoding. Returns `None` if the last chunk is
/// missing or a length is wrong.
fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[..end]).ok()?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        bytes = &bytes[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend(bytes.get(..size)?);
        bytes = bytes.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

fn refused(code: u16, retry_after: Option<&str>) -> Failure {
    let why = match code {
        300..=399 => {
            format!("the collector answers {code}, a redirection. Name the collector's own address")
        }
        404 | 405 => {
            format!("the collector answers {code}. Add the path to the collector's address, often /v1/metrics")
        }
        429 => "the collector answers 429: it gets too many messages".into(),
        _ => format!("the collector answers {code}"),
    };
    // Only these two ask for a pause.
    let asks = matches!(code, 429 | 503);
    let seconds = retry_after.filter(|_| asks).and_then(|v| v.parse().ok());
    Failure {
        why,
        retry_after: seconds.map(Duration::from_secs),
    }
}

/// Judges the body of an answer with an HTTP status of success. Fails if the collector rejected
/// some figures nevertheless.
fn taken(body: &[u8]) -> Result<(), Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let Ok(serde_json::Value::Object(answer)) = serde_json::from_slice(body) else {
        return Err(Failure::new("the collector's answer does not follow OTLP"));
    };
    let partial = answer.get("partialSuccess");
    let rejected = partial.and_then(|p| p.get("rejectedDataPoints"));
    let rejected = rejected.and_then(|n| match n {
        serde_json::Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    match rejected {
        None | Some(0) => Ok(()),
        Some(count) => {
            let words = partial.and_then(|p| p.get("errorMessage"));
            let words = words.and_then(|w| w.as_str()).unwrap_or("no reason given");
            let words: String = words.chars().take(WORDS_MAX).collect();
            Err(Failure::new(format!(
                "the collector rejected {count} data points: {words}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_millis(300);

    /// Sends `body` to a collector that answers with `answer` and then keeps the connection open.
    /// Returns the result of sending.
    fn posted(answer: &'static [u8], body: &[u8]) -> Result<(), Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(answer);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
        });
        let result = post(&format!("http://{at}/x").parse().unwrap(), body, PATIENCE);
        serving.join().unwrap();
        result
    }

    #[test]
    fn answers_of_a_collector_that_accept_the_message_are_a_success() {
        for answer in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: keep-alive\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 202 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n13;a=b\r\n\"partialSuccess\":{}\r\n1\r\n}\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 46\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"0\"}} ",
        ] {
            let shown = String::from_utf8_lossy(answer);
            assert_eq!(posted(answer, b"{}"), Ok(()), "{shown}");
        }
    }

    #[test]
    fn every_answer_that_does_not_accept_the_message_is_a_failure_with_a_reason() {
        for (answer, why) in [
            (&b""[..], "no answer: the collector did not react in time"),
            (b"SSH-2.0-x\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 2OO OK\r\n\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Le", "no answer: the collector did not react in time"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "no answer: the collector did not react in time"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "the collector's answer does not follow OTLP"),
            (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "the collector answers 302, a redirection. Name the collector's own address"),
            (b"HTTP/1.1 404 x\r\n\r\n", "the collector answers 404. Add the path to the collector's address, often /v1/metrics"),
            (b"HTTP/1.1 500 x\r\nRetry-After: 9\r\n\r\n", "the collector answers 500"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 76\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"3\",\"errorMessage\":\"they are old\"}}  ", "the collector rejected 3 data points: they are old"),
        ] {
            let failure = posted(answer, b"{}").unwrap_err();
            assert_eq!(failure, Failure::new(why));
        }
        let busy = posted(b"HTTP/1.1 429 x\r\nretry-after: 9\r\n\r\n", b"{}").unwrap_err();
        assert_eq!(busy.retry_after, Some(Duration::from_secs(9)));
    }

    #[test]
    fn a_collector_that_never_reads_or_is_away_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint: Endpoint = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let much = vec![b' '; 32 << 20];
        let failure = post(&endpoint, &much, PATIENCE).unwrap_err();
        assert_eq!(
            failure,
            Failure::new("cannot send: the collector did not react in time")
        );
        drop(listener);
        let failure = post(&endpoint, b"{}", PATIENCE).unwrap_err();
        assert!(failure.why.starts_with("no connection: "), "{failure:?}");
    }

    #[test]
    fn any_answer_of_a_collector_is_judged_at_its_end_and_causes_no_panic() {
        let parts: [&[u8]; 12] = [
            b"HTTP/1.1 200 OK\r\n",
            b"Content-Length: 18446744073709551615\r\n",
            b"content-length:3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"\r\n",
            b"ffffffffffffffff\r\n",
            b"2\r\n{}\r\n",
            b"0\r\n",
            b":",
            b"\xff\0",
            b"{\"partialSuccess\":3}",
            b"{\"partialSuccess\":{\"rejectedDataPoints\":-1}}",
        ];
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut answer = Vec::new();
            for _ in 0..8 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(99);
                answer.extend(parts[(state >> 33) as usize % parts.len()]);
            }
            answer.truncate(answer.len() - (state >> 60) as usize % 8);
            judge(&answer, false);
            assert!(judge(&answer, true).is_some());
        }
    }
}
