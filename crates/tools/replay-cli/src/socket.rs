//! Takes orders to a running replay over a Unix socket: a line of JSON for each order and each
//! reply.
//!
//! A thread of its own under time-sharing serves all connections, and only sets atomic values that
//! the player reads. Its memory and its CPU time are limited, whatever the connections send.

use super::order::{Order, Orders, Shown};
use onbeat_terminal::term::one_line;
use onbeat_terminal::CliError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const MOST_CLIENTS: usize = 16;
const LONGEST_LINE: usize = 4096;
/// If a client has not read this number of bytes of replies, onbeat stops carrying out the client's
/// orders. onbeat continues when the client has read replies.
const MOST_UNREAD: usize = 64 << 10;
/// The pause between two rounds of reading from the clients. In a round, onbeat reads at most 4 KiB
/// from each client.
const PAUSE: Duration = Duration::from_millis(5);
const LOOK_MS: libc::c_int = 100;

/// A socket at which a replay receives orders. Dropping this value closes the socket and removes
/// its file.
pub struct Socket {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Socket {
    /// Listens for orders at `path`. Only the user of this process can connect. If an earlier
    /// replay left a socket at `path`, replaces it.
    pub fn listen(path: &Path, orders: Orders) -> Result<Socket, CliError> {
        let failed = |fault: &dyn std::fmt::Display| {
            let path = one_line(&path.display().to_string());
            super::failed(format!("--control {path}: {fault}"))
        };
        if let Ok(there) = std::fs::symlink_metadata(path) {
            if !there.file_type().is_socket() {
                return Err(failed(
                    &"the file exists and is not a socket. Choose another path",
                ));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(failed(
                    &"another program listens on this socket. Choose another path",
                ));
            }
            std::fs::remove_file(path).map_err(|e| failed(&e))?;
        }
        // SAFETY: the call only changes the mask for new files, until the socket is made.
        let mask = unsafe { libc::umask(0o177) };
        let listener = UnixListener::bind(path);
        // SAFETY: as above.
        unsafe { libc::umask(mask) };
        let listener = listener.map_err(|e| failed(&e))?;
        listener.set_nonblocking(true).map_err(|e| failed(&e))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let server = Server {
            listener,
            clients: Vec::new(),
            orders,
            turn: 0,
        };
        let over = is_over.clone();
        let thread = std::thread::Builder::new().name("onbeat-orders".into());
        let thread = thread.spawn(move || server.run(&over));
        Ok(Socket {
            path: path.to_owned(),
            is_over,
            thread: Some(thread.map_err(|e| failed(&e))?),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Server {
    listener: UnixListener,
    clients: Vec<Client>,
    orders: Orders,
    turn: u64,
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// True while onbeat skips the rest of a line that is longer than allowed.
    skips: bool,
    /// The number of the reading round in which the client last sent something.
    active: u64,
}

impl Server {
    fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Relaxed) {
            self.wait();
            self.turn += 1;
            self.accept();
            let (orders, turn) = (&self.orders, self.turn);
            self.clients
                .retain_mut(|client| client.serve(orders, turn).is_ok());
            std::thread::sleep(PAUSE);
        }
    }

    fn wait(&self) {
        let entry = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut entries = vec![entry(self.listener.as_raw_fd(), libc::POLLIN)];
        entries.extend(self.clients.iter().map(|client| {
            let reads = if client.takes_orders() {
                libc::POLLIN
            } else {
                0
            };
            let writes = if client.output.is_empty() {
                0
            } else {
                libc::POLLOUT
            };
            entry(client.stream.as_raw_fd(), reads | writes)
        }));
        let count = entries.len() as libc::nfds_t;
        // SAFETY: the entries are valid during the call.
        unsafe { libc::poll(entries.as_mut_ptr(), count, LOOK_MS) };
    }

    /// Accepts one connection. If there are too many connections, closes the one that has been
    /// silent for the longest time.
    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.clients.len() >= MOST_CLIENTS {
            let silent = self.clients.iter().enumerate();
            if let Some((at, _)) = silent.min_by_key(|(_, client)| client.active) {
                self.clients.swap_remove(at);
            }
        }
        self.clients.push(Client {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            skips: false,
            active: self.turn,
        });
    }
}

impl Client {
    fn takes_orders(&self) -> bool {
        self.output.len() < MOST_UNREAD
    }

    /// Carries out the orders that the client has sent, and sends replies, without waiting. `turn`
    /// is the number of the reading round. Fails if the client has closed its connection.
    fn serve(&mut self, orders: &Orders, turn: u64) -> io::Result<()> {
        if self.takes_orders() {
            let mut bytes = [0; LONGEST_LINE];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    self.active = turn;
                    self.take(&bytes[..length], orders);
                }
                Err(error) => is_later(error)?,
            }
        }
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) => return is_later(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], orders: &Orders) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let is_whole = part.ends_with(b"\n");
            let room = LONGEST_LINE - self.input.len();
            if part.len() > room {
                self.skips = true;
            }
            self.input.extend_from_slice(&part[..part.len().min(room)]);
            if !is_whole {
                continue;
            }
            let line = std::mem::take(&mut self.input);
            let reply = match std::mem::take(&mut self.skips) {
                true => reply(
                    None,
                    Err(format!(
                        "the line is too long: a line may have at most {LONGEST_LINE} bytes"
                    )),
                    orders,
                ),
                false if line.trim_ascii().is_empty() => continue,
                false => answer(&line, orders),
            };
            self.output.extend(reply);
        }
    }
}

fn is_later(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

#[derive(Serialize)]
struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    state: Shown,
}

fn answer(line: &[u8], orders: &Orders) -> Vec<u8> {
    let mut value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return reply(None, Err(format!("this line is not JSON: {error}")), orders),
    };
    let id = value.as_object_mut().and_then(|object| object.remove("id"));
    let done = match Order::deserialize(&value) {
        Ok(order) => orders.carry_out(order),
        Err(error) => Err(format!("this line is not an order to the replay: {error}")),
    };
    reply(id, done, orders)
}

fn reply(id: Option<Value>, done: Result<(), String>, orders: &Orders) -> Vec<u8> {
    let reply = Reply {
        id,
        ok: done.is_ok(),
        error: done.err(),
        state: orders.control.state().into(),
    };
    let mut line = serde_json::to_vec(&reply).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;

    fn orders() -> Orders {
        Orders {
            control: Arc::default(),
            no_rate: None,
            no_seek: None,
        }
    }

    fn ask(stream: &mut BufReader<UnixStream>, line: &str) -> Value {
        stream.get_mut().write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_line(&mut reply).unwrap();
        serde_json::from_str(&reply).unwrap()
    }

    #[test]
    fn orders_of_a_client_are_carried_out_although_other_clients_are_hostile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let orders = orders();
        let socket = Socket::listen(&path, orders.clone()).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let connect = || UnixStream::connect(&path).unwrap();
        // One client floods orders and never reads, and others are silent or send nonsense.
        let mut deaf = connect();
        deaf.set_nonblocking(true).unwrap();
        let flood = "{\"do\":\"state\"}\n".repeat(1000);
        while deaf.write(flood.as_bytes()).is_ok() {}
        let silent: Vec<_> = (0..3 * MOST_CLIENTS).map(|_| connect()).collect();
        connect().write_all(&[0xff; 3 * LONGEST_LINE]).unwrap();
        let mut client = BufReader::new(connect());
        let reply = ask(&mut client, "{\"id\": [7], \"do\": \"pause\"}\n");
        assert_eq!(
            (&reply["id"], &reply["ok"]),
            (&serde_json::json!([7]), &Value::Bool(true))
        );
        assert_eq!(reply["state"]["paused"], true);
        assert!(orders.control.state().paused);
        for nonsense in [
            "nonsense\n",
            "[]\n",
            "{\"do\":\"fly\"}\n",
            "{\"do\":\"pause\",\"more\":1}\n",
            "{\"do\":\"rate\",\"factor\":-1}\n",
            &("[".repeat(4000) + "\n"),
            &(" ".repeat(3 * LONGEST_LINE) + "\n"),
        ] {
            let reply = ask(&mut client, nonsense);
            assert_eq!(reply["ok"], false, "{reply}");
            assert!(reply["error"].is_string());
        }
        let reply = ask(&mut client, "\n{\"do\":\"stop\"}\n");
        assert_eq!(reply["ok"], true);
        assert!(orders.control.is_stopping());
        assert!(
            Socket::listen(&path, orders.clone()).is_err(),
            "the path is taken"
        );
        drop((socket, silent));
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(
            Socket::listen(&path, orders.clone()).is_ok(),
            "nobody listens there"
        );
        std::fs::write(&path, "").unwrap();
        assert!(Socket::listen(&path, orders).is_err(), "not a socket");
    }
}
