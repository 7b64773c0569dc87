//! The thread that keeps an end connected: it dials anew, or accepts the peer's next connection.

use super::dial;
use super::handshake::{Agreed, Failed, Hello};
use super::key::Key;
use super::state::Shared;
use crate::interface::{End, Refusal};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use onbeat_flow::clock::now_ns;
use std::io::{PipeReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// How an end comes to connections.
pub enum Way {
    Connect(SocketAddr),
    Listen(TcpListener),
}

/// What it needs for them.
pub struct Terms {
    pub key: Key,
    pub hello: Hello,
    pub resume_within_ns: u64,
}

/// Pause before the next attempt to connect: doubled after each, up to `MOST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MOST_PAUSE: Duration = Duration::from_millis(200);

/// One attempt at a connection: a stream and what was agreed.
pub fn dial(address: SocketAddr, terms: &Terms) -> Result<(TcpStream, Agreed), Failed> {
    let stream = dial::connect(address)?;
    let agreed = dial::shake_connecting(&stream, &terms.key, terms.hello)?;
    Ok((stream, agreed))
}

/// Whether another attempt can help.
pub fn is_final(failed: &Failed) -> bool {
    let passing = matches!(
        failed,
        Failed::Broken(_) | Failed::Refused(Refusal::Silent | Refusal::Garbage)
    );
    !passing
}

/// Waits for a connection until `deadline_ns`; `None` then, or when `wake` can be read.
pub fn accept(
    listener: &TcpListener,
    wake: &mut PipeReader,
    deadline_ns: Option<u64>,
) -> Option<TcpStream> {
    let timeout = match deadline_ns {
        None => PollTimeout::NONE,
        Some(deadline) => {
            // Rounded up, so that it does not spin in the last millisecond.
            let ms = deadline.saturating_sub(now_ns()).div_ceil(1_000_000);
            PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
        }
    };
    let mut descriptors = [
        PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        PollFd::new(wake.as_fd(), PollFlags::POLLIN),
    ];
    let _ = poll(&mut descriptors, timeout);
    let ready = descriptors.map(|d| d.any() == Some(true));
    if ready[1] {
        let _ = wake.read(&mut [0; 64]);
        return None;
    }
    listener.accept().ok().filter(|_| ready[0]).map(|(s, _)| s)
}

fn install(shared: &Shared, terms: &Terms, stream: TcpStream, agreed: Agreed) {
    shared.install(stream, terms.hello.sealed.then_some(agreed.keys));
}

/// Keeps a connecting end connected, until the link ends.
pub fn connecting(shared: &Shared, address: SocketAddr, terms: &Terms) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut state = shared.lock();
        while state.link.connection.is_some() && !state.stopping && state.end.is_none() {
            pause = FIRST_PAUSE;
            match shared.wait(&shared.connecting, state, None) {
                Some(next) => state = next,
                None => return,
            }
        }
        if state.stopping || state.end.is_some() {
            return;
        }
        let deadline = state.link.broken_ns.saturating_add(terms.resume_within_ns);
        let mut reason = state.link.reason.clone();
        drop(state);
        match dial(address, terms) {
            Ok((stream, agreed)) => {
                install(shared, terms, stream, agreed);
                continue;
            }
            Err(failed) if is_final(&failed) => {
                reason = format!("it does not resume: {failed}");
                shared.ended(End::Gone { reason });
            }
            Err(_) if now_ns() >= deadline => shared.ended(End::Gone { reason }),
            Err(_) => {
                let until = now_ns() + pause.as_nanos() as u64;
                let state = shared.lock();
                drop(shared.wait(&shared.connecting, state, Some(until)));
                pause = (pause * 2).min(MOST_PAUSE);
            }
        }
    }
}

/// Keeps a listening end connected, until the link ends. Takes a connection of its session also
/// while the old one seems to stand: the peer may know better.
pub fn listening(shared: &Shared, listener: &TcpListener, wake: &mut PipeReader, terms: &Terms) {
    loop {
        let state = shared.lock();
        if state.stopping || state.end.is_some() {
            return;
        }
        let is_broken = state.link.connection.is_none();
        let deadline = state.link.broken_ns.saturating_add(terms.resume_within_ns);
        let reason = state.link.reason.clone();
        drop(state);
        if is_broken && now_ns() >= deadline {
            shared.ended(End::Gone { reason });
            return;
        }
        let Some(stream) = accept(listener, wake, is_broken.then_some(deadline)) else {
            continue;
        };
        if let Ok(agreed) = dial::shake_listening(&stream, &terms.key, terms.hello) {
            install(shared, terms, stream, agreed);
        }
    }
}
