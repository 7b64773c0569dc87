//! The exchange of terms before the first message: it checks that both ends keep the same promises,
//! and measures the round trip ([`super::fresh`]).
//!
//! Each end sends its terms four times and receives the other's four times. Layout: head of 48
//! bytes, version (2), flags (1: acknowledges), five zeros, ns without a sign of life after which
//! the other counts as silent (8; 0: never), time at which the last terms of the other had left by
//! its clock (8), how long they were held here, ns (8).

use super::counts::Counters;
use super::fresh::Transit;
use super::head::{Head, Kind, HEAD_BYTES};
use crate::interface::{Halves, Refusal};
use onbeat_flow::clock::now_ns;

pub const TERMS_BYTES: usize = 32;
const VERSION: u16 = 1;
const ROUNDS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub acknowledges: bool,
    /// The time without a sign of life after which this end counts its peer as silent, ns. 0 means
    /// never.
    pub silence_ns: u64,
}

pub struct Met {
    pub theirs: Option<Terms>,
    pub transit: Transit,
}

pub enum NotMet {
    Late,
    Refused(Refusal),
}

struct Heard {
    terms: Terms,
    sent_ns: u64,
    echo_ns: u64,
    held_ns: u64,
}

fn body(terms: Terms, echo_ns: u64, held_ns: u64) -> [u8; TERMS_BYTES] {
    let mut body = [0; TERMS_BYTES];
    body[..2].copy_from_slice(&VERSION.to_le_bytes());
    body[2] = terms.acknowledges.into();
    body[8..16].copy_from_slice(&terms.silence_ns.to_le_bytes());
    body[16..24].copy_from_slice(&echo_ns.to_le_bytes());
    body[24..].copy_from_slice(&held_ns.to_le_bytes());
    body
}

fn hear(bytes: &[u8]) -> Result<Heard, Refusal> {
    let (head, body) = Head::parse(bytes).ok_or(Refusal::Quality)?;
    let body: &[u8; TERMS_BYTES] = body.try_into().map_err(|_| Refusal::Quality)?;
    if head.kind != Kind::Terms {
        return Err(Refusal::Quality);
    }
    let (ours, theirs) = (VERSION, u16::from_le_bytes([body[0], body[1]]));
    if ours != theirs {
        return Err(Refusal::Version { ours, theirs });
    }
    let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap_or([0; 8]));
    Ok(Heard {
        terms: Terms {
            acknowledges: body[2] != 0,
            silence_ns: number(8),
        },
        sent_ns: head.sent_ns,
        echo_ns: number(16),
        held_ns: number(24),
    })
}

/// Exchanges the ends' [`Terms`] with the peer. If the link ends meanwhile, the next call on a half
/// reports the end.
pub fn meet(
    (outgoing, incoming): &mut Halves,
    ours: Terms,
    counters: &Counters,
    deadline_ns: Option<u64>,
) -> Result<Met, NotMet> {
    let mut met = Met {
        theirs: None,
        transit: Transit::default(),
    };
    // The times at which the peer's last terms left and came, and at which this end's terms left.
    let (mut last, mut left) = ((0, now_ns()), 0);
    for round in 0..ROUNDS {
        let answered = std::mem::replace(&mut left, now_ns());
        let content = body(ours, last.0, left - last.1);
        let head = Head::new(Kind::Terms, round as u64, left).checking(&content);
        // After the end of the link, terms that came before it are still received.
        let _ = outgoing.send(HEAD_BYTES + TERMS_BYTES, deadline_ns, &mut |slot| {
            slot[..HEAD_BYTES].copy_from_slice(&head.bytes());
            slot[HEAD_BYTES..].copy_from_slice(&content);
        });
        let mut heard = None;
        let received = incoming.receive(deadline_ns, &mut |_, bytes| heard = Some(hear(bytes)));
        let (heard, now) = match (received, heard) {
            (Err(_), _) => return Ok(met),
            (Ok(_), None) => return Err(NotMet::Late),
            (Ok(_), Some(heard)) => (heard.map_err(NotMet::Refused)?, now_ns()),
        };
        if heard.terms.acknowledges != ours.acknowledges {
            return Err(NotMet::Refused(Refusal::Quality));
        }
        met.transit.held_ns(heard.sent_ns, now);
        if round > 0 && heard.echo_ns == answered {
            counters.round_trip((now - answered).saturating_sub(heard.held_ns));
        }
        met.theirs = Some(heard.terms);
        last = (heard.sent_ns, now);
    }
    Ok(met)
}
