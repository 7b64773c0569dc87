//! Wrappers around a link's halves that count messages and show them to a recorder, for every
//! backend.
//!
//! Real-time: some relaxed atomics and one reading of the clock per message. No lock, no
//! allocation.

use super::layout::{State, Word};
use super::page::Page;
use crate::interface::{End, Halves, Incoming, Outgoing, SendError, Shown, Sizes};
use onbeat_flow::clock::now_ns;
use onbeat_flow::events::{EndEvents, LinkId};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Directions {
    out: Way,
    incoming: Way,
}

#[derive(Debug)]
struct Way {
    messages: LinkId,
    values: LinkId,
}

impl Directions {
    /// Makes the ids of the two directions of a link between machines. Both ends have the same
    /// `session`. `place` is the address of the listening end.
    pub(crate) fn between(session: &[u8; 32], place: &str, listens: bool) -> Directions {
        let way = |number, name| Way {
            messages: LinkId::new(spread(session, number), &format!("{place}/{name}")),
            values: LinkId::new(
                spread(session, number + 2),
                &format!("{place}/{name}.value"),
            ),
        };
        let (forth, back) = (way(0, "forth"), way(1, "back"));
        let (out, incoming) = if listens {
            (forth, back)
        } else {
            (back, forth)
        };
        Directions { out, incoming }
    }
}

/// Hashes a session into a number that stands for it in recordings. The number reveals none of the
/// session's bytes, which are secret. Uses FNV-1a and the last step of splitmix64.
fn spread(session: &[u8; 32], direction: u8) -> u64 {
    let bytes = session.iter().chain([&direction]);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

/// Wraps the halves of a connected link, so that they count their messages in `page`. If `links` is
/// given, also makes the messages visible to recorders, unless the halves do that themselves.
/// Without a page, returns the halves unchanged.
pub(crate) fn counted(
    page: Option<Arc<Page>>,
    links: Option<Directions>,
    sizes: Sizes,
    (out, incoming): Halves,
) -> Halves {
    let Some(page) = page else {
        return (out, incoming);
    };
    page.set_state(State::Connected);
    let (out_way, in_way) = links.map(|l| (l.out, l.incoming)).unzip();
    let (credits, with_values) = (sizes.credits, sizes.value_bytes > 0);
    let values = |way: &Option<Way>, events: fn(&LinkId, usize) -> EndEvents| {
        let way = way.as_ref().filter(|_| with_values);
        way.map(|w| events(&w.values, 1)).unwrap_or_default()
    };
    let (published, read) = (
        values(&out_way, EndEvents::sending),
        values(&in_way, EndEvents::receiving),
    );
    let out_link = out_way.map(|w| w.messages);
    let in_link = in_way.map(|w| w.messages);
    let half = CountedOutgoing {
        half: out,
        page: Arc::clone(&page),
        events: shown(&out_link, |l| EndEvents::sending(l, credits)),
        link: out_link,
        next: 0,
        published,
        next_value: 0,
    };
    let incoming = CountedIncoming {
        half: incoming,
        page,
        events: shown(&in_link, |l| EndEvents::receiving(l, credits)),
        link: in_link,
        read,
        last_read: None,
    };
    (Box::new(half), Box::new(incoming))
}

fn shown(link: &Option<LinkId>, events: impl FnOnce(&LinkId) -> EndEvents) -> EndEvents {
    link.as_ref().map(events).unwrap_or_default()
}

struct CountedOutgoing {
    half: Box<dyn Outgoing>,
    page: Arc<Page>,
    events: EndEvents,
    link: Option<LinkId>,
    next: u64,
    published: EndEvents,
    next_value: u64,
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
        let (events, next) = (&self.events, self.next);
        let sent = self.half.send(bytes, deadline_ns, &mut |slot| {
            fill(slot);
            // The message has its credit and leaves now. After `send` the peer could have received
            // it already.
            events.sent(next);
        });
        match &sent {
            Ok(number) => {
                self.next = number + 1;
                self.page.count(Word::Sent, 1);
                self.page.count(Word::SentBytes, bytes as u64);
                self.page.set(Word::SentNs, now_ns());
            }
            Err(error) => self.look_at(error),
        }
        sent
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        let (events, next) = (&self.published, self.next_value);
        let published = self.half.publish(bytes, &mut |slot| {
            fill(slot);
            // After `publish` the peer could have read the value already.
            events.sent(next);
        });
        match &published {
            Ok(()) => {
                self.next_value = next + 1;
                self.page.count(Word::Published, 1);
            }
            Err(error) => self.look_at(error),
        }
        published
    }

    fn page(&self) -> Option<Arc<dyn Shown>> {
        Some(Arc::clone(&self.page) as Arc<dyn Shown>)
    }

    fn unseen(&mut self) -> Option<LinkId> {
        self.events = EndEvents::default();
        self.half.unseen().or(self.link.clone())
    }
}

struct CountedIncoming {
    half: Box<dyn Incoming>,
    page: Arc<Page>,
    events: EndEvents,
    link: Option<LinkId>,
    read: EndEvents,
    last_read: Option<u64>,
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
        let (page, events) = (&self.page, &self.events);
        let came = self.half.receive(deadline_ns, &mut |number, message| {
            events.received(number);
            page.count(Word::Received, 1);
            page.count(Word::ReceivedBytes, message.len() as u64);
            page.set(Word::ReceivedNs, now_ns());
            take(number, message);
        });
        self.look_at(&came);
        came
    }

    fn read(&mut self, deadline_ns: Option<u64>, take: &mut dyn FnMut(&[u8])) -> Result<bool, End> {
        let (page, events, last) = (&self.page, &self.read, &mut self.last_read);
        let came = self.half.read_numbered(deadline_ns, &mut |number, value| {
            // A value that is read again is not a new input.
            if let Some(number) = number.filter(|n| Some(*n) > *last) {
                *last = Some(number);
                events.received(number);
            }
            page.count(Word::Read, 1);
            take(value);
        });
        self.look_at(&came);
        came
    }

    fn unseen(&mut self) -> Option<LinkId> {
        self.events = EndEvents::default();
        self.half.unseen().or(self.link.clone())
    }
}
