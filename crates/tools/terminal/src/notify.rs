//! Reports a session's state to the service manager (sd_notify(3)) by datagrams to `NOTIFY_SOCKET`.
//! Without this variable it does nothing.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The connection to the service manager systemd. Without systemd, its methods do nothing.
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    is_ready: bool,
    watchdog: bool,
    said: String,
}

impl Notifier {
    /// Connects to the service manager that the environment variable `NOTIFY_SOCKET` names.
    pub fn of_environment() -> Notifier {
        let variable = |name: &str| std::env::var_os(name);
        let for_us = variable("WATCHDOG_PID")
            .is_none_or(|pid| pid.to_str() == Some(&std::process::id().to_string()));
        Notifier {
            socket: variable("NOTIFY_SOCKET").and_then(connect),
            is_ready: false,
            watchdog: for_us && variable("WATCHDOG_USEC").is_some(),
            said: String::new(),
        }
    }

    /// Reports to systemd that the session is running, and its status in one line. The caller must
    /// call this function more often than the watchdog of the systemd unit demands.
    pub fn lives(&mut self, status: &str) {
        let mut text = String::new();
        if !self.is_ready {
            text += "READY=1\n";
            self.is_ready = true;
        }
        if self.watchdog {
            text += "WATCHDOG=1\n";
        }
        if self.said != status {
            text += &format!("STATUS={}\n", status.replace('\n', " "));
            self.said = status.to_owned();
        }
        self.send(&text);
    }

    /// Reports to systemd that the session ends.
    pub fn ends(&self) {
        self.send("STOPPING=1\n");
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = self.socket.as_ref().filter(|_| !text.is_empty()) {
            // The send never waits. A lost message is repeated within a second.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

fn connect(name: OsString) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        [b'/', ..] => SocketAddr::from_pathname(&name),
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(name: OsString, watchdog: bool) -> Notifier {
        Notifier {
            socket: connect(name),
            is_ready: false,
            watchdog,
            said: String::new(),
        }
    }

    #[test]
    fn systemd_is_notified_of_each_state_of_a_session() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let hear = |manager: &UnixDatagram| {
            let mut bytes = [0; 256];
            let length = manager.recv(&mut bytes).expect("a message");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let mut notifier = notifier(path.into(), true);
        notifier.lives("looking");
        assert_eq!(hear(&manager), "READY=1\nWATCHDOG=1\nSTATUS=looking\n");
        notifier.lives("looking");
        assert_eq!(hear(&manager), "WATCHDOG=1\n");
        notifier.lives("shaping");
        assert_eq!(hear(&manager), "WATCHDOG=1\nSTATUS=shaping\n");
        notifier.ends();
        assert_eq!(hear(&manager), "STOPPING=1\n");
        // A manager that has ended or never reads causes neither an error nor a wait.
        drop(manager);
        notifier.lives("alone");
        let deaf = UnixDatagram::bind(dir.path().join("deaf")).expect("bound");
        let mut many = super::tests::notifier(dir.path().join("deaf").into(), true);
        (0..10_000).for_each(|_| many.lives("x"));
        drop(deaf);
    }

    #[test]
    fn systemd_is_notified_by_an_abstract_socket_and_not_by_a_relative_path() {
        let name = format!("onbeat-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("bound");
        notifier(format!("@{name}").into(), false).lives("x");
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).expect("a message");
        assert_eq!(&bytes[..length], b"READY=1\nSTATUS=x\n");
        assert!(connect("relative".into()).is_none());
    }
}
