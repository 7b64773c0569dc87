//! The two halves of a link with quality of service ([`Qos`](super::Qos)). They check freshness,
//! deadlines and signs of life.
//!
//! Real-time: no allocation, and no lock but the backend's.

use super::counts::{Count, Counters};
use super::head::{Head, Kind};
use super::path::{Receives, Request, Sends};
use super::Qos;
use crate::interface::{Breach, End, Incoming, Outgoing, SendError, Sizes};
use onbeat_flow::clock::now_ns;
use onbeat_flow::events::EndEvents;
use std::sync::Arc;

/// The sending half of a link with quality of service ([`Qos`](super::Qos)).
pub struct QosOutgoing {
    pub(super) way: Box<dyn Sends>,
    pub(super) qos: Qos,
    pub(super) sizes: Sizes,
    pub(super) counters: Arc<Counters>,
    /// The last call returned the error that this end is late. The next call sends its message
    /// without that error.
    pub(super) reported_late: bool,
}

/// The receiving half of a link with quality of service ([`Qos`](super::Qos)).
pub struct QosIncoming {
    pub(super) way: Box<dyn Receives>,
    pub(super) qos: Qos,
    pub(super) counters: Arc<Counters>,
    pub(super) events: EndEvents,
    pub(super) expires_ns: Option<u64>,
    /// The last call returned the error that nothing came. The next call receives without that
    /// error.
    pub(super) reported_late: bool,
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn fits(asked: usize, most: usize) -> Result<(), SendError> {
    let error = SendError::TooLarge { asked, most };
    (asked <= most).then_some(()).ok_or(error)
}

impl QosOutgoing {
    /// Sends like [`Outgoing::send`], but the data becomes stale at `expires_ns` of
    /// CLOCK_MONOTONIC. A program that passes data on gives [`QosIncoming::expires_ns`] here, so
    /// that the age includes the time in the program. The earlier of `expires_ns` and the link's
    /// own limit applies.
    ///
    /// # Errors
    /// The errors of [`Outgoing::send`]. In addition, a [`Breach`] if a promise is broken and its
    /// policy is to fail.
    pub fn send_expiring(
        &mut self,
        bytes: usize,
        expires_ns: Option<u64>,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        fits(bytes, self.sizes.message_bytes)?;
        let counters = Arc::clone(&self.counters);
        let pace = &counters.paces[0];
        let fails_late = self.qos.fails(self.qos.send_every);
        let reported_late = std::mem::take(&mut self.reported_late);
        if pace.pass(now_ns()) > 0 && fails_late && !reported_late {
            self.reported_late = true;
            return Err(Breach::SentLate.into());
        }
        if self.counters.is_silent() && self.qos.fails(self.qos.alive_within) {
            return Err(Breach::Silent.into());
        }
        let mut request = self.request(bytes, expires_ns)?;
        let due_ns = pace.due_ns().filter(|_| fails_late);
        request.deadline_ns = earlier(deadline_ns, due_ns);
        let head = match self.way.send(request, fill) {
            Err(SendError::NoCredit { .. }) if pace.pass(now_ns()) > 0 && fails_late => {
                self.reported_late = true;
                return Err(Breach::SentLate.into());
            }
            other => other?,
        };
        self.judge(head)?;
        self.counters.one(Count::Sent);
        pace.happens(now_ns());
        Ok(head.number)
    }

    fn request(&self, bytes: usize, expires_ns: Option<u64>) -> Result<Request, SendError> {
        let now = now_ns();
        let limit = self.qos.fresh_for.map(|p| now.saturating_add(p.value));
        let expires_ns = earlier(expires_ns, limit);
        let stale_may_leave = !self.qos.fails(self.qos.fresh_for);
        if expires_ns.is_some_and(|e| now >= e) && !stale_may_leave {
            self.counters.one(Count::SentStale);
            return Err(Breach::Stale.into());
        }
        Ok(Request {
            bytes,
            deadline_ns: None,
            expires_ns,
            is_checked: self.qos.checked.is_some(),
            stale_may_leave,
        })
    }

    fn judge(&self, head: Head) -> Result<(), SendError> {
        if head.remaining_ns == Some(0) {
            self.counters.one(Count::SentStale);
        }
        match head.kind {
            Kind::Void => Err(Breach::Stale.into()),
            _ => Ok(()),
        }
    }
}

impl Outgoing for QosOutgoing {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        self.send_expiring(bytes, None, deadline_ns, fill)
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        fits(bytes, self.sizes.value_bytes)?;
        let request = self.request(bytes, None)?;
        let head = self.way.publish(request, fill)?;
        self.judge(head)
    }
}

impl QosIncoming {
    /// Returns when the data of the last receive or read becomes stale, in ns of CLOCK_MONOTONIC.
    /// `None` if the data does not age.
    pub fn expires_ns(&self) -> Option<u64> {
        self.expires_ns
    }

    fn check_before(&mut self, reported_late: bool) -> Result<(), Breach> {
        let fails_late = self.qos.fails(self.qos.receive_every);
        if self.counters.paces[1].pass(now_ns()) > 0 && fails_late && !reported_late {
            self.reported_late = true;
            return Err(Breach::CameLate);
        }
        Ok(())
    }

    fn hand_over(
        &mut self,
        is_message: bool,
        receive: impl FnOnce(
            &mut dyn Receives,
            &mut dyn FnMut(super::path::Arrived, &[u8]),
        ) -> Result<bool, End>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End> {
        let fails_stale = self.qos.fails(self.qos.fresh_for);
        let (counters, expires_ns) = (&self.counters, &mut self.expires_ns);
        // The backend shows values to the recorder, by their own numbers.
        let events = is_message.then_some(&self.events);
        let mut is_refused = false;
        let any = receive(&mut *self.way, &mut |arrived, content| {
            *expires_ns = arrived.expires_ns;
            let is_stale = arrived.expires_ns.is_some_and(|e| now_ns() >= e);
            if is_stale {
                counters.one(Count::ReceivedStale);
            }
            is_refused = is_stale && fails_stale;
            if !is_refused {
                if let Some(events) = events {
                    events.received(arrived.number);
                }
                take(arrived.number, content);
            }
        })?;
        match is_refused {
            true => Err(Breach::Stale.into()),
            false => Ok(any),
        }
    }
}

impl Incoming for QosIncoming {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End> {
        let mut reported_late = std::mem::take(&mut self.reported_late);
        loop {
            self.check_before(std::mem::take(&mut reported_late))?;
            let until_ns = earlier(deadline_ns, self.counters.paces[1].due_ns());
            let counters = Arc::clone(&self.counters);
            let come = &mut |number, content: &[u8]| take(number, content);
            let any = self.hand_over(
                true,
                |way, hand| {
                    way.receive(until_ns, &mut |arrived, content| {
                        counters.paces[1].happens(now_ns());
                        hand(arrived, content);
                    })
                },
                come,
            )?;
            if any || deadline_ns.is_some_and(|d| now_ns() >= d) {
                return Ok(any);
            }
        }
    }

    fn read(&mut self, deadline_ns: Option<u64>, take: &mut dyn FnMut(&[u8])) -> Result<bool, End> {
        self.hand_over(
            false,
            |way, hand| way.read(deadline_ns, hand),
            &mut |_, content| take(content),
        )
    }
}
