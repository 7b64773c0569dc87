//! Halves that count what passes, whatever the backend.
//!
//! Real-time: some relaxed atomics and a look at the clock per message. No lock, no allocation.

use super::layout::{State, Word};
use super::page::Page;
use crate::interface::{End, Halves, Incoming, Outgoing, SendError, Shown};
use onbeat_flow::clock::now_ns;
use std::sync::Arc;

/// The same halves, counted in this page. The peer is there.
pub(crate) fn counted(page: Option<Arc<Page>>, (out, incoming): Halves) -> Halves {
    let Some(page) = page else {
        return (out, incoming);
    };
    page.set_state(State::Connected);
    let half = CountedOutgoing {
        half: out,
        page: Arc::clone(&page),
    };
    let incoming = CountedIncoming {
        half: incoming,
        page,
    };
    (Box::new(half), Box::new(incoming))
}

struct CountedOutgoing {
    half: Box<dyn Outgoing>,
    page: Arc<Page>,
}

impl CountedOutgoing {
    fn look_at(&self, error: &SendError) {
        match error {
            SendError::NoCredit { .. } => self.page.count(Word::NoCredit, 1),
            SendError::Ended(_) => self.page.set_state(State::Ended),
            _ => {}
        }
    }
}

impl Outgoing for CountedOutgoing {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        let sent = self.half.send(bytes, deadline_ns, fill);
        match &sent {
            Ok(_) => {
                self.page.count(Word::Sent, 1);
                self.page.count(Word::SentBytes, bytes as u64);
                self.page.set(Word::SentNs, now_ns());
            }
            Err(error) => self.look_at(error),
        }
        sent
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        let published = self.half.publish(bytes, fill);
        match &published {
            Ok(()) => self.page.count(Word::Published, 1),
            Err(error) => self.look_at(error),
        }
        published
    }

    fn page(&self) -> Option<Arc<dyn Shown>> {
        Some(Arc::clone(&self.page) as Arc<dyn Shown>)
    }
}

struct CountedIncoming {
    half: Box<dyn Incoming>,
    page: Arc<Page>,
}

impl CountedIncoming {
    fn look_at(&self, came: &Result<bool, End>) {
        if came.is_err() {
            self.page.set_state(State::Ended);
        }
    }
}

impl Incoming for CountedIncoming {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End> {
        let page = &self.page;
        let came = self.half.receive(deadline_ns, &mut |number, message| {
            page.count(Word::Received, 1);
            page.count(Word::ReceivedBytes, message.len() as u64);
            page.set(Word::ReceivedNs, now_ns());
            take(number, message);
        });
        self.look_at(&came);
        came
    }

    fn read(&mut self, deadline_ns: Option<u64>, take: &mut dyn FnMut(&[u8])) -> Result<bool, End> {
        let page = &self.page;
        let came = self.half.read(deadline_ns, &mut |value| {
            page.count(Word::Read, 1);
            take(value);
        });
        self.look_at(&came);
        came
    }
}
