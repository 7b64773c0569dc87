//! The thread that keeps an end connected: it dials again, or accepts the peer's next connection.

use super::dial;
use super::door::Door;
use super::handshake::{Agreed, Failed, Hello};
use super::key::Key;
use super::state::Shared;
use crate::interface::{End, Refusal};
use crate::status::{Page, Word};
use onbeat_flow::clock::now_ns;
use std::io::PipeReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

pub enum Route {
    Connect(SocketAddr),
    Listen(TcpListener),
}

pub struct Terms {
    pub key: Key,
    pub hello: Hello,
    pub resume_within_ns: u64,
    pub page: Option<Arc<Page>>,
}

impl Terms {
    pub fn met(&self, stream: &TcpStream) {
        if let (Some(page), Ok(peer)) = (&self.page, stream.peer_addr()) {
            page.set_peer(&peer.to_string());
        }
    }

    pub fn count_refusal(&self, failed: &Failed) {
        if let (Some(page), Failed::Refused(_)) = (&self.page, failed) {
            page.count(Word::Refused, 1);
        }
    }
}

/// The pause after the first failed attempt to connect. It doubles after each attempt, up to
/// `MOST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MOST_PAUSE: Duration = Duration::from_millis(200);

pub fn connect_once(
    address: SocketAddr,
    key: &Key,
    hello: Hello,
) -> Result<(TcpStream, Agreed), Failed> {
    let stream = dial::connect(address)?;
    let agreed = dial::shake_connecting(&stream, key, hello)?;
    Ok((stream, agreed))
}

/// Reports whether a new attempt to connect would fail in the same way.
pub fn is_final(failed: &Failed) -> bool {
    let passing = matches!(
        failed,
        Failed::Broken(_) | Failed::Refused(Refusal::Silent | Refusal::Garbage)
    );
    !passing
}

fn install(shared: &Shared, terms: &Terms, stream: TcpStream, agreed: Agreed) {
    terms.met(&stream);
    if let Some(page) = &terms.page {
        page.count(Word::Resumed, 1);
    }
    shared.install(stream, terms.hello.sealed.then_some(agreed.keys));
}

pub fn keep_connecting(shared: &Shared, address: SocketAddr, terms: &Terms) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut state = shared.lock();
        while state.link.connection.is_some() && !state.stopping && state.end.is_none() {
            pause = FIRST_PAUSE;
            match shared.wait(&shared.connection_bell, state, None) {
                Some(next) => state = next,
                None => return,
            }
        }
        if state.stopping || state.end.is_some() {
            return;
        }
        let deadline = state
            .link
            .broken_since_ns
            .saturating_add(terms.resume_within_ns);
        let mut reason = state.link.reason.clone();
        let hello = Hello {
            is_unheard: !state.link.is_heard,
            ..terms.hello
        };
        drop(state);
        match connect_once(address, &terms.key, hello) {
            Ok((stream, agreed)) => {
                install(shared, terms, stream, agreed);
                continue;
            }
            Err(failed) if is_final(&failed) => {
                reason = format!("the peer refuses to resume the link: {failed}");
                shared.ended(End::Gone { reason });
            }
            Err(_) if now_ns() >= deadline => shared.ended(End::Gone { reason }),
            Err(_) => {
                let until = now_ns() + pause.as_nanos() as u64;
                let state = shared.lock();
                drop(shared.wait(&shared.connection_bell, state, Some(until)));
                pause = (pause * 2).min(MOST_PAUSE);
            }
        }
    }
}

/// Keeps a listening end connected until the link ends. Accepts a new connection of its session
/// even if the old one seems to work, because the peer may have noticed a break earlier.
pub fn keep_listening(
    shared: &Shared,
    listener: &TcpListener,
    wake: &mut PipeReader,
    terms: &Terms,
) {
    let mut door = match Door::new(listener, &terms.key, terms.hello) {
        Ok(door) => door,
        Err(error) => {
            let reason = format!("this end cannot accept connections any more: {error}");
            return shared.ended(End::Gone { reason });
        }
    };
    loop {
        let state = shared.lock();
        if state.stopping || state.end.is_some() {
            return;
        }
        let is_broken = state.link.connection.is_none();
        let deadline = state
            .link
            .broken_since_ns
            .saturating_add(terms.resume_within_ns);
        let reason = state.link.reason.clone();
        drop(state);
        if is_broken && now_ns() >= deadline {
            shared.ended(End::Gone { reason });
            return;
        }
        match door.greet(wake, is_broken.then_some(deadline)) {
            Some(Ok((stream, agreed))) => install(shared, terms, stream, agreed),
            Some(Err(failed)) => terms.count_refusal(&failed),
            None => {}
        }
    }
}
