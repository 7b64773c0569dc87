//! Keys on a terminal, and the signals that end a command: both ask, nothing is interrupted.

use std::io::{self, IsTerminal};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP are noted; the second of a kind ends the process.
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

/// Whether such a signal came.
pub fn was_interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Pause, or go on.
    Pause,
    /// Play one item.
    Step,
    /// End.
    End,
}

/// A terminal that gives keys as they are pressed, until this is dropped.
pub struct Keys {
    before: libc::termios,
}

impl Keys {
    /// The terminal of the standard input, if this process is in its foreground.
    pub fn of_terminal() -> Option<Keys> {
        if !io::stdin().is_terminal() {
            return None;
        }
        let fd = io::stdin().as_raw_fd();
        // SAFETY: the settings are there for the calls.
        unsafe {
            // In the background, changing the terminal would stop this process.
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

    /// Waits for a key, but no longer than that.
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
        // SAFETY: one entry, which lives while the call lasts.
        let ready = unsafe { libc::poll(&mut ask, 1, at_most.as_millis() as libc::c_int) };
        let mut byte = 0u8;
        // Not through the standard library, which would read keys ahead that poll then does not see.
        // SAFETY: room for one byte.
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
        // SAFETY: the settings that were there.
        unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSANOW, &self.before) };
    }
}
