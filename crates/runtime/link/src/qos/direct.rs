//! The halves of a link without acknowledgement: a head in each slot, no thread, no copy.

use super::counts::{Count, Counters};
use super::fresh::Transit;
use super::head::{Head, Kind, HEAD_BYTES};
use super::path::{Arrived, Receives, Request, Sends};
use super::OnBreach;
use crate::interface::{Breach, End, Incoming, Outgoing, SendError};
use onbeat_flow::clock::now_ns;
use onbeat_flow::events::EndEvents;
use std::sync::Arc;

pub struct DirectOutgoing {
    pub inner: Box<dyn Outgoing>,
    pub events: EndEvents,
    pub next: u64,
}

impl Sends for DirectOutgoing {
    fn send(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError> {
        let mut head = Head::new(Kind::Message, self.next, 0);
        head.oldest = self.next;
        let bytes = HEAD_BYTES + request.bytes;
        self.inner.send(bytes, request.deadline_ns, &mut |slot| {
            head = request.write(slot, head, fill);
            if head.kind == Kind::Message {
                self.events.sent(head.number);
            }
        })?;
        self.next += u64::from(head.kind == Kind::Message);
        Ok(head)
    }

    fn publish(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError> {
        let mut head = Head::new(Kind::Value, 0, 0);
        self.inner
            .publish(HEAD_BYTES + request.bytes, &mut |slot| {
                head = request.write(slot, head, fill);
            })?;
        Ok(head)
    }
}

pub struct DirectIncoming {
    pub inner: Box<dyn Incoming>,
    pub next: u64,
    pub transit: Transit,
    pub counters: Arc<Counters>,
    pub on_corrupt: OnBreach,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Taken,
    Skipped,
    Corrupt,
}

struct Judge<'a> {
    next: &'a mut u64,
    transit: &'a mut Transit,
    counters: &'a Counters,
}

impl Judge<'_> {
    fn message(&mut self, bytes: &[u8], take: &mut dyn FnMut(Arrived, &[u8])) -> Verdict {
        let Some((head, content)) = Head::parse(bytes) else {
            return self.corrupt();
        };
        let expires_ns = self
            .transit
            .expires_ns(head.sent_ns, head.remaining_ns, now_ns());
        if head.kind != Kind::Message {
            return Verdict::Skipped;
        }
        let number = head.number;
        if number < *self.next {
            self.counters.one(Count::Doubled);
            return Verdict::Skipped;
        }
        self.counters.add(Count::Lost, number - *self.next);
        self.counters.one(Count::Received);
        *self.next = number.saturating_add(1);
        take(Arrived { number, expires_ns }, content);
        Verdict::Taken
    }

    fn value(&mut self, bytes: &[u8], take: &mut dyn FnMut(Arrived, &[u8])) -> Verdict {
        match Head::parse(bytes) {
            Some((head, content)) if head.kind == Kind::Value => {
                let left = head.remaining_ns;
                let expires_ns = self.transit.expires_ns(head.sent_ns, left, now_ns());
                let number = head.number;
                take(Arrived { number, expires_ns }, content);
                Verdict::Taken
            }
            Some(_) => Verdict::Skipped,
            None => self.corrupt(),
        }
    }

    fn corrupt(&mut self) -> Verdict {
        self.counters.one(Count::Corrupt);
        Verdict::Corrupt
    }
}

impl DirectIncoming {
    fn parts(&mut self) -> (&mut dyn Incoming, Judge<'_>) {
        let judge = Judge {
            next: &mut self.next,
            transit: &mut self.transit,
            counters: &self.counters,
        };
        (&mut *self.inner, judge)
    }
}

impl Receives for DirectIncoming {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End> {
        let on_corrupt = self.on_corrupt;
        loop {
            let (inner, mut judge) = self.parts();
            let mut verdict = Verdict::Skipped;
            let any = inner.receive(deadline_ns, &mut |_, bytes| {
                verdict = judge.message(bytes, take);
            })?;
            match verdict {
                _ if !any => return Ok(false),
                Verdict::Taken => return Ok(true),
                Verdict::Corrupt if on_corrupt == OnBreach::Fail => {
                    return Err(Breach::Corrupt.into())
                }
                Verdict::Corrupt | Verdict::Skipped => {}
            }
        }
    }

    fn read(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End> {
        let on_corrupt = self.on_corrupt;
        let (inner, mut judge) = self.parts();
        let mut verdict = Verdict::Skipped;
        let any = inner.read(deadline_ns, &mut |bytes| {
            verdict = judge.value(bytes, take);
        })?;
        match verdict {
            Verdict::Corrupt if on_corrupt == OnBreach::Fail => Err(Breach::Corrupt.into()),
            verdict => Ok(any && verdict == Verdict::Taken),
        }
    }
}
