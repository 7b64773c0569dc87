//! Serves the metrics over HTTP. One thread serves all clients, and nobody waits for a client.
//!
//! A client may send nonsense, send nothing, or never read: it has [`PATIENCE`], at most
//! [`REQUEST_MAX`] bytes, and one of [`CLIENTS_MAX`] places. If all places are taken, the client
//! that has been connected for longest loses its place.

use crate::exposition::Style;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const CLIENTS_MAX: usize = 32;

const REQUEST_MAX: usize = 8192;

/// The longest time for which an HTTP client may stay connected.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause after an error of the listening socket, for example because the process has too many
/// open files.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Texts {
    pub open_metrics: String,
    pub plain: String,
}

impl Default for Texts {
    /// Returns texts without metrics, which are served until the session has started.
    fn default() -> Texts {
        Texts {
            open_metrics: "# EOF\n".into(),
            plain: String::new(),
        }
    }
}

pub type Latest = Arc<Mutex<Arc<Texts>>>;

struct Client {
    stream: TcpStream,
    since: Instant,
    request: Vec<u8>,
    /// The bytes of the answer to the client, and the number of its bytes that have been sent.
    answer: Option<(Vec<u8>, usize)>,
}

/// Starts a thread that serves the metrics over HTTP at the address `at`. Returns the address with
/// the actual port, because the system chooses one for port 0.
///
/// # Errors
///
/// Fails if the address cannot be used.
pub fn serve(at: SocketAddr, latest: Latest) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let serving = move || {
        // Strangers talk to this thread, so it has no right of the recorder.
        onbeat_rights::keep([]);
        let mut clients = VecDeque::new();
        loop {
            turn(&listener, &mut clients, &latest);
        }
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(serving)?;
    Ok(at)
}

/// Waits until a client connects, sends or can receive. Then serves all clients as far as possible
/// without blocking.
fn turn(listener: &TcpListener, clients: &mut VecDeque<Client>, latest: &Latest) {
    let wanted = |client: &Client| match client.answer {
        Some(_) => libc::POLLOUT,
        None => libc::POLLIN,
    };
    let entry = |fd: i32, events: i16| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut polled = vec![entry(listener.as_raw_fd(), libc::POLLIN)];
    polled.extend(
        clients
            .iter()
            .map(|c| entry(c.stream.as_raw_fd(), wanted(c))),
    );
    let timeout = match clients.is_empty() {
        true => -1,
        false => 1000,
    };
    // SAFETY: the pointer and the length are those of a vector that outlives the call.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
    if ready < 0 {
        std::thread::sleep(PAUSE);
        return;
    }
    let now = Instant::now();
    let mut at = 0;
    clients.retain_mut(|client| {
        at += 1;
        let is_ready = polled.get(at).is_some_and(|p| p.revents != 0);
        let stays = !is_ready || client.turn(latest).unwrap_or(false);
        stays && now.duration_since(client.since) < PATIENCE
    });
    if polled[0].revents != 0 {
        accept(listener, clients);
    }
}

fn accept(listener: &TcpListener, clients: &mut VecDeque<Client>) {
    // The loop ends, so that connected clients are served while others connect.
    for _ in 0..CLIENTS_MAX {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if clients.len() >= CLIENTS_MAX {
                    clients.pop_front();
                }
                clients.push_back(Client {
                    stream,
                    since: Instant::now(),
                    request: Vec::new(),
                    answer: None,
                });
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(_) => return std::thread::sleep(PAUSE),
        }
    }
}

impl Client {
    /// Reads the client's request or writes the answer, as far as possible without blocking.
    /// Returns whether the connection stays open.
    fn turn(&mut self, latest: &Latest) -> io::Result<bool> {
        if self.answer.is_none() && !self.read(latest)? {
            return Ok(false);
        }
        let Some((bytes, sent)) = &mut self.answer else {
            return Ok(true);
        };
        while *sent < bytes.len() {
            match self.stream.write(&bytes[*sent..]) {
                Ok(0) => return Ok(false),
                Ok(n) => *sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        // Unread bytes would make the kernel reset the connection before the answer is read.
        self.stream.shutdown(std::net::Shutdown::Write)?;
        let mut rest = [0; 1024];
        let _ = self.stream.read(&mut rest);
        Ok(false)
    }

    fn read(&mut self, latest: &Latest) -> io::Result<bool> {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(n) => self.request.extend(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            let is_whole = self.request.windows(4).any(|w| w == b"\r\n\r\n")
                || self.request.windows(2).any(|w| w == b"\n\n");
            if is_whole || self.request.len() > REQUEST_MAX {
                self.answer = Some((answer(&self.request, is_whole, latest), 0));
                return Ok(true);
            }
        }
    }
}

fn answer(request: &[u8], is_whole: bool, latest: &Latest) -> Vec<u8> {
    let plain = "text/plain; charset=utf-8";
    let text = String::from_utf8_lossy(request);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let version = words.next().unwrap_or_default();
    let path = target.map(|t| t.split('?').next().unwrap_or_default());
    let is_http = version.starts_with("HTTP/1.") && words.next().is_none();
    let head_only = method == "HEAD";
    let (status, kind, body) = match (method, path) {
        _ if !is_whole => ("431 Request Header Fields Too Large", plain, String::new()),
        _ if !is_http => ("400 Bad Request", plain, "not HTTP/1\n".into()),
        ("GET" | "HEAD", Some("/metrics")) => {
            let texts = Arc::clone(&latest.lock().unwrap_or_else(PoisonError::into_inner));
            let style = style(&text);
            let body = match style {
                Style::OpenMetrics => texts.open_metrics.clone(),
                Style::Plain => texts.plain.clone(),
            };
            ("200 OK", style.content_type(), body)
        }
        ("GET" | "HEAD", Some("/")) => ("200 OK", plain, "onbeat monitor: /metrics\n".into()),
        ("GET" | "HEAD", _) => (
            "404 Not Found",
            plain,
            "the metrics are at /metrics\n".into(),
        ),
        _ => ("405 Method Not Allowed", plain, "use GET\n".into()),
    };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         X-Content-Type-Options: nosniff\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if !head_only {
        bytes.extend(body.into_bytes());
    }
    bytes
}

fn style(request: &str) -> Style {
    let accepts = |line: &str| {
        let line = line.to_ascii_lowercase();
        line.starts_with("accept:") && line.contains("application/openmetrics-text")
    };
    match request.lines().skip(1).any(accepts) {
        true => Style::OpenMetrics,
        false => Style::Plain,
    }
}

/// Parses the address of `--http`: a port of the loopback interface, or an IP address with a port.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse()
        .map_err(|_| "write a port, like 9464, or an address, like 0.0.0.0:9464".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(body: &str) -> SocketAddr {
        let texts = Texts {
            open_metrics: format!("{body}# EOF\n"),
            plain: body.to_string(),
        };
        let latest = Arc::new(Mutex::new(Arc::new(texts)));
        serve(SocketAddr::from(([127, 0, 0, 1], 0)), latest).expect("a port")
    }

    fn asked(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(at).expect("connected");
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).expect("set");
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8(bytes).expect("text")
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn a_client_gets_the_metrics_in_the_style_that_it_accepts() {
        let at = served("up 1\n");
        let text = asked(at, GET);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("text/plain; version=0.0.4"), "{text}");
        assert!(text.ends_with("\r\n\r\nup 1\n"), "{text}");
        let text = asked(
            at,
            b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n",
        );
        assert!(
            text.contains("application/openmetrics-text; version=1.0.0"),
            "{text}"
        );
        assert!(text.ends_with("up 1\n# EOF\n"), "{text}");
        assert!(asked(at, b"HEAD /metrics HTTP/1.0\n\n").ends_with("\r\n\r\n"));
        for (request, status) in [
            (&b"GET /etc/passwd HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\xff\xfe\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1 more\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ] {
            let text = asked(at, request);
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
        }
        let long = [
            b"GET /metrics HTTP/1.1\r\nX: ",
            &[b'x'; 3 * REQUEST_MAX][..],
        ]
        .concat();
        let text = asked(at, &long);
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 431"),
            "{text}"
        );
    }

    #[test]
    fn a_thousand_clients_that_never_speak_or_read_do_not_keep_others_out() {
        // The answer does not fit into the buffers of a socket.
        let at = served(&"x 1\n".repeat(4 << 20));
        let mut held = Vec::new();
        for i in 0..1000 {
            let Ok(mut stream) = TcpStream::connect(at) else {
                continue;
            };
            match i % 3 {
                0 => {}
                1 => drop(stream.write_all(GET)),
                _ => drop(stream.write_all(b"GET /met")),
            }
            held.push(stream);
        }
        assert!(held.len() > 900, "{}", held.len());
        let text = asked(at, GET);
        assert!(text.starts_with("HTTP/1.1 200"), "{:?}", text.get(..80));
        assert!(text.len() > 16 << 20, "{}", text.len());
        let open = std::fs::read_dir("/proc/self/fd").expect("our own").count();
        assert!(open < held.len() + CLIENTS_MAX + 100, "{open} descriptors");
    }

    #[test]
    fn a_port_without_an_address_means_the_loopback_interface() {
        let said = |text: &str| parse_address(text).map(|a| a.to_string());
        assert_eq!(said("9464"), Ok("127.0.0.1:9464".into()));
        assert_eq!(said("0.0.0.0:80"), Ok("0.0.0.0:80".into()));
        assert_eq!(said("[::1]:80"), Ok("[::1]:80".into()));
        for wrong in ["", "70000", "localhost", "1.2.3.4"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }
}
