//! Reads keys from a terminal, and notes the signals that end a command. Both set a flag and
//! interrupt nothing.

use std::io::{self, IsTerminal};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

/// Catches SIGINT, SIGTERM and SIGHUP from now on. The second signal of a kind ends the process.
pub fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Pause,
    Step,
    End,
}

/// A terminal that delivers each key when it is pressed. Dropping this value restores the terminal.
pub struct Keys {
    before: libc::termios,
}

impl Keys {
    /// Returns the terminal of the standard input, or `None` if this process is not in the terminal's
    /// foreground.
    pub fn of_terminal() -> Option<Keys> {
        if !io::stdin().is_terminal() {
            return None;
        }
        let fd = io::stdin().as_raw_fd();
        // SAFETY: the settings are valid during the calls.
        unsafe {
            // A background process that changes the terminal would be stopped.
            if libc::tcgetpgrp(fd) != libc::getpgrp() {
                return None;
            }
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(fd, &mut before) != 0 {
                return None;
            }
            let mut keys = before;
            keys.c_lflag &= !(libc::ICANON | libc::ECHO);
            (libc::tcsetattr(fd, libc::TCSANOW, &keys) == 0).then_some(Keys { before })
        }
    }

    pub fn wait(keys: Option<&Keys>, at_most: Duration) -> Option<Key> {
        if keys.is_none() {
            std::thread::sleep(at_most);
            return None;
        }
        let mut ask = libc::pollfd {
            fd: io::stdin().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the one entry is valid during the call.
        let ready = unsafe { libc::poll(&mut ask, 1, at_most.as_millis() as libc::c_int) };
        let mut byte = 0u8;
        // The standard library would read keys ahead, which poll then does not see.
        // SAFETY: the
        // buffer has room for one byte.
        if ready <= 0 || unsafe { libc::read(ask.fd, (&raw mut byte).cast(), 1) } != 1 {
            return None;
        }
        match byte {
            b' ' => Some(Key::Pause),
            b's' => Some(Key::Step),
            b'q' => Some(Key::End),
            _ => None,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // SAFETY: these are the settings that the terminal had before.
        unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSANOW, &self.before) };
    }
}
