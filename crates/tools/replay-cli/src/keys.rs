//! Reads keys from a terminal, and notes the signals that end a command. The terminal gets its
//! settings back on every way out, also when a signal stops or ends the process.

use super::order::Order;
use std::io::{self, IsTerminal};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The signals that the process has received. Bit n stands for signal n.
static CAME: AtomicU64 = AtomicU64::new(0);
static TERMINAL: OnceLock<Terminal> = OnceLock::new();
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The terminal's settings before the replay, and the settings for reading single keys.
struct Terminal {
    before: libc::termios,
    keys: libc::termios,
}

// The handlers only use atomics and functions that are safe in signal handlers.

extern "C" fn note(signal: libc::c_int) {
    let bit = 1 << signal;
    if CAME.fetch_or(bit, Relaxed) & bit != 0 {
        end(signal);
    }
    INTERRUPTED.store(true, Relaxed);
}

/// Restores the terminal's settings, then performs the default action of the signal.
extern "C" fn end(signal: libc::c_int) {
    restore();
    handle(signal, libc::SIG_DFL);
    // SAFETY: the signal is valid. It is delivered when this handler returns.
    unsafe { libc::raise(signal) };
}

extern "C" fn resume(_: libc::c_int) {
    if IS_CHANGED.load(Relaxed) && is_foreground() {
        if let Some(terminal) = TERMINAL.get() {
            set(&terminal.keys);
        }
    }
    handle(libc::SIGTSTP, end as *const () as usize);
}

fn handle(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: the handlers are safe in signal handlers, as stated above.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

fn is_foreground() -> bool {
    let fd = io::stdin().as_raw_fd();
    // SAFETY: the calls only read.
    unsafe { libc::tcgetpgrp(fd) == libc::getpgrp() }
}

fn set(settings: &libc::termios) -> bool {
    // SAFETY: the settings are valid during the call.
    unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSANOW, settings) == 0 }
}

fn restore() {
    if let Some(terminal) = TERMINAL.get().filter(|_| IS_CHANGED.load(Relaxed)) {
        set(&terminal.before);
    }
}

/// Catches SIGINT, SIGTERM and SIGHUP from now on. Each of these signals only sets a flag the first
/// time, and ends the process the second time.
pub fn catch_signals() {
    for signal in ENDING {
        handle(signal, note as *const () as usize);
    }
}

pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// A terminal that delivers each key when it is pressed. Dropping this value restores the
/// terminal's settings.
pub struct Keys {
    bytes: Vec<u8>,
}

impl Keys {
    /// Switches the terminal of the standard input to reading single keys and returns it. Returns
    /// `None` if this process is not in the foreground of a terminal.
    pub fn of_terminal() -> Option<Keys> {
        // A background process that changes the terminal would be stopped.
        if !io::stdin().is_terminal() || !is_foreground() {
            return None;
        }
        // SAFETY: the settings are valid during the call.
        let before = unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(io::stdin().as_raw_fd(), &mut before) != 0 {
                return None;
            }
            before
        };
        let mut keys = before;
        keys.c_lflag &= !(libc::ICANON | libc::ECHO);
        let terminal = TERMINAL.get_or_init(|| Terminal { before, keys });
        IS_CHANGED.store(true, Relaxed);
        for signal in [libc::SIGQUIT, libc::SIGTSTP] {
            handle(signal, end as *const () as usize);
        }
        handle(libc::SIGCONT, resume as *const () as usize);
        set(&terminal.keys).then(|| Keys { bytes: Vec::new() })
    }

    /// Waits for a key, but at most for `at_most`. Returns the order that the key stands for.
    /// Returns `None` if no key with a meaning was pressed.
    pub fn wait(keys: Option<&mut Keys>, at_most: Duration) -> Option<Order> {
        let Some(keys) = keys else {
            std::thread::sleep(at_most);
            return None;
        };
        if keys.bytes.is_empty() {
            keys.read(at_most);
        }
        let (order, used) = parse(&keys.bytes);
        keys.bytes.drain(..used);
        order
    }

    fn read(&mut self, at_most: Duration) {
        let mut ask = libc::pollfd {
            fd: io::stdin().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the one entry is valid during the call.
        let ready = unsafe { libc::poll(&mut ask, 1, at_most.as_millis() as libc::c_int) };
        let mut bytes = [0u8; 64];
        let room = bytes.as_mut_ptr().cast();
        // The standard library would read keys ahead, which poll then does not see.
        let read = match ready > 0 {
            // SAFETY: the buffer is valid during the call.
            true => unsafe { libc::read(ask.fd, room, bytes.len()) },
            false => 0,
        };
        match usize::try_from(read) {
            Ok(read) if read > 0 => self.bytes.extend_from_slice(&bytes[..read]),
            // The terminal has gone, and poll would return at once.
            _ if ready > 0 => std::thread::sleep(at_most),
            _ => {}
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        restore();
        IS_CHANGED.store(false, Relaxed);
    }
}

/// Returns the order that the first key in `bytes` stands for, and the number of bytes that this
/// key takes.
fn parse(bytes: &[u8]) -> (Option<Order>, usize) {
    let by = |by_s| Some(Order::by(by_s));
    match bytes {
        [] => (None, 0),
        [0x1b, b'[' | b'O', letter, ..] => {
            let order = match letter {
                b'A' => by(60.0),
                b'B' => by(-60.0),
                b'C' => by(5.0),
                b'D' => by(-5.0),
                _ => None,
            };
            (order, 3)
        }
        [key, ..] => {
            let order = match key {
                b' ' => Some(Order::Toggle {}),
                b's' => Some(Order::Step { items: 1 }),
                b'+' => Some(Order::Faster {}),
                b'-' => Some(Order::Slower {}),
                b'1' => Some(Order::Rate { factor: 1.0 }),
                b'q' => Some(Order::Stop {}),
                _ => None,
            };
            (order, 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_arrows_control_the_playback_and_other_bytes_are_ignored() {
        let mut bytes = &b"x s\x1b[C\x1bOD\x1b[Z+\x1b"[..];
        let mut orders = Vec::new();
        while !bytes.is_empty() {
            let (order, used) = parse(bytes);
            orders.extend(order);
            bytes = &bytes[used..];
        }
        let expected = [
            Order::Toggle {},
            Order::Step { items: 1 },
            Order::by(5.0),
            Order::by(-5.0),
            Order::Faster {},
        ];
        assert_eq!(orders, expected);
        assert_eq!(parse(b""), (None, 0));
    }
}
