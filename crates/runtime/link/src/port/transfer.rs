//! The sending side of a connection on a port: what it has posted, and what is acknowledged of it.

use super::arbiter::{Answer, Arbiter, Lent, Patience, Rules, Urgency};
use super::meter::Sample;
use super::page::{Counts, Mapped, Seat, SHARES};
use super::settings::{wire_ns, InForce, Settings};
use super::sys;
use crate::pi::{Guard, Lock};
use crate::quiet::Quiet;
use onbeat_flow::clock::now_ns;
use std::collections::VecDeque;
use std::io::{IoSlice, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// A chunk is posted only while at least this part of its lease is left: its thread may have been
/// kept from the processor since it got it.
const LEAST_LEFT: u64 = 2;

/// A chunk that may not have left yet.
struct Posted {
    lent: Lent,
    need: usize,
    /// Bytes of the connection up to its end; none while it is being written.
    end: Option<u64>,
}

/// The present connection.
#[derive(Default)]
struct Way {
    stream: Option<TcpStream>,
    posted: VecDeque<Posted>,
    /// Bytes of the connection that were acknowledged, and counted.
    counted: u64,
}

/// The sending side of a connection on a port. One thread posts; others may ring.
pub struct Transfer {
    mapped: Arc<Mapped>,
    rules: Rules,
    settings: Settings,
    seat: usize,
    priority: u8,
    way: Lock<Way>,
    /// Bytes written into the present connection.
    written: AtomicU64,
    /// Chunks of all that had been granted once the present want was published.
    published: AtomicU64,
    /// Chunks of more urgent transfers that had been granted at its own last grant.
    urgent: AtomicU64,
}

/// A chunk on its way to be posted.
#[derive(Default)]
pub struct Turn {
    patience: Option<Patience>,
    since_ns: Option<u64>,
    /// Something more urgent went between the chunk before and this one.
    preempted: bool,
}

/// Whether a chunk may go.
pub enum Go {
    /// Write it, and call [`Transfer::wrote`].
    Now,
    /// Look again when the bell rings, or at this instant (ns).
    Later(u64),
}

impl Transfer {
    pub(super) fn new(
        mapped: Arc<Mapped>,
        settings: Settings,
        seat: usize,
        priority: u8,
    ) -> Transfer {
        let way = Way {
            stream: None,
            // Each has a share at least, so it never grows.
            posted: VecDeque::with_capacity(SHARES + 1),
            counted: 0,
        };
        Transfer {
            mapped,
            rules: settings.rules(),
            settings,
            seat,
            priority,
            way: Lock::new(way),
            written: AtomicU64::new(0),
            published: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
        }
    }

    fn arbiter(&self) -> Arbiter<'_> {
        let (page, clock) = (self.mapped.page(), now_ns as fn() -> u64);
        let shares = self.in_force().shares;
        let rules = Rules {
            shares,
            ..self.rules
        };
        Arbiter { page, rules, clock }
    }

    fn in_force(&self) -> InForce {
        let given = self.settings.bits_per_second();
        self.settings.at_rate(self.mapped.page().meter.rate(given))
    }

    /// The port's rate as it was given, and as it was measured, bit/s.
    pub fn rates(&self) -> (u64, Option<u64>) {
        let given = self.settings.bits_per_second();
        (given, self.mapped.page().meter.measured(given))
    }

    /// Bytes of a chunk's content now: what was agreed, or less on a wire that is slower than given.
    pub fn chunk(&self) -> usize {
        self.in_force().chunk
    }

    /// So many bytes more were acknowledged: what that says of the rate.
    fn measure(&self, bytes: u64, stream: &TcpStream) {
        let (arbiter, settings) = (self.arbiter(), &self.settings);
        let window_bytes = settings.bytes_of(arbiter.rules.shares);
        let (meter, given) = (&arbiter.page.meter, settings.bits_per_second());
        let now = now_ns();
        let load = arbiter.load(now);
        let wire = settings.carried(bytes);
        let over = meter.acknowledged(wire, load, window_bytes, now);
        let Some((sent, took_ns)) = over else {
            return;
        };
        let Some(way_ns) = sys::shortest_way_ns(stream.as_fd()) else {
            return;
        };
        let bits_per_second = Sample::rate(sent, took_ns);
        let window_ns = wire_ns(window_bytes, bits_per_second);
        let sample = Sample {
            bits_per_second,
            window_ns,
            way_ns,
        };
        meter.judge(given, &sample);
    }

    fn own(&self) -> &Seat {
        &self.mapped.page().seats[self.seat]
    }

    fn way(&self) -> Guard<'_, Way> {
        self.way.lock()
    }

    /// The seat, which names it among the port's.
    pub(super) fn seat(&self) -> usize {
        self.seat
    }

    /// From now on it sends through this connection. What was posted through the one before counts
    /// until its lease ends.
    pub(super) fn begin(&self, stream: TcpStream) {
        // Without reports leases end, and the next chunk looks.
        let _ = sys::report_acknowledgements(stream.as_fd());
        let mut way = self.way();
        way.posted.clear();
        way.counted = 0;
        way.stream = Some(stream);
        self.written.store(0, Relaxed);
    }

    /// The connection has ended; returns it.
    pub(super) fn end(&self) -> Option<TcpStream> {
        self.arbiter().withdraw(self.seat);
        let mut way = self.way();
        way.posted.clear();
        way.stream.take()
    }

    /// Shares of a chunk with that many bytes of content.
    fn need(&self, bytes: usize) -> usize {
        let shares = self.settings.shares_of(bytes as u64);
        usize::try_from(shares).map_or(self.rules.shares, |n| n.min(self.rules.shares))
    }

    /// Publishes which message is next: how many bytes its next chunk has, and since when it waits;
    /// or that there is none. So it has its place before its thread wakes up. Real-time safe: some
    /// stores. If it replaces a message that is more urgent, call [`Transfer::pass_on`].
    pub fn publish(&self, next: Option<(usize, u64)>) {
        let urgency = |since_ns| Urgency::new(self.priority, since_ns);
        let next = next.map(|(bytes, since_ns)| (urgency(since_ns), self.need(bytes)));
        let granted = self.arbiter().publish(self.seat, next);
        self.published.store(granted, Relaxed);
    }

    /// Lets whoever is next now look. Allocates nothing, and does not wait.
    pub fn pass_on(&self) {
        self.arbiter().wake_next(now_ns());
    }

    /// Asks whether a chunk with that many bytes of content may go. It belongs to a message that
    /// waits since `message_ns`. Allocates nothing, and does not wait.
    pub fn ask(&self, bytes: usize, message_ns: u64, turn: &mut Turn) -> Go {
        let now = now_ns();
        let first_ns = *turn.since_ns.get_or_insert(now);
        let need = self.need(bytes);
        self.settle(false);
        let mut way = self.way();
        if let Some(until_ns) = self.own_window(&way, need, message_ns, turn, now) {
            return Go::Later(until_ns);
        }
        let urgency = Urgency::new(self.priority, message_ns);
        let patience = turn
            .patience
            .get_or_insert_with(|| Patience::since(self.published.load(Relaxed)));
        let answer = self.arbiter().ask(self.seat, urgency, need, patience, now);
        let lent = match answer {
            Answer::Granted(lent) => lent,
            Answer::Wait { until_ns } => return Go::Later(until_ns),
        };
        let before = patience.others();
        let end = None;
        way.posted.push_back(Posted { lent, need, end });
        drop(way);
        let now = now_ns();
        if lent.until_ns.saturating_sub(now) < self.rules.lease_ns / LEAST_LEFT {
            self.take_back();
            return Go::Later(now);
        }
        self.count_wait(now - first_ns.min(now));
        self.own().counts.most_before.fetch_max(before, Relaxed);
        // From now on the next chunk waits.
        let granted = self.mapped.page().granted.load(Relaxed);
        self.published.store(granted, Relaxed);
        let urgent = self.arbiter().granted_above(self.priority);
        turn.preempted = urgent > self.urgent.swap(urgent, Relaxed);
        Go::Now
    }

    /// Until when a chunk has to wait because its own connection has the window. It keeps its place
    /// while the peer may still acknowledge; a peer that does not keeps its own transfer, even if
    /// leases end.
    fn own_window(
        &self,
        way: &Way,
        need: usize,
        message_ns: u64,
        turn: &mut Turn,
        now: u64,
    ) -> Option<u64> {
        let own: usize = way.posted.iter().map(|p| p.need).sum();
        let shares = self.in_force().shares;
        if own + need.min(shares) <= shares {
            return None;
        }
        let lent_until = way.posted.front().map_or(0, |first| first.lent.until_ns);
        if now < lent_until {
            let urgency = Urgency::new(self.priority, message_ns);
            self.arbiter().publish(self.seat, Some((urgency, need)));
            return Some(lent_until);
        }
        self.arbiter().withdraw(self.seat);
        turn.patience = Some(Patience::default());
        Some(now + self.rules.patience_ns)
    }

    /// The last chunk was not written.
    fn take_back(&self) {
        let last = self.way().posted.pop_back();
        if let Some(posted) = last {
            let lost = self.arbiter().give_back(self.seat, &posted.lent);
            Counts::add(&self.own().counts.expired, lost);
            self.arbiter().wake_first();
        }
    }

    fn count_wait(&self, wait_ns: u64) {
        let counts = &self.own().counts;
        Counts::add(&counts.wait_ns, wait_ns);
        counts.longest_wait_ns.fetch_max(wait_ns, Relaxed);
    }

    /// A chunk of a message, which may go, was written. `offset`: where in its message it begins.
    pub fn wrote(&self, bytes: usize, offset: usize, is_last: bool, turn: &Turn) {
        let counts = &self.own().counts;
        Counts::add(&counts.bytes, bytes as u64);
        Counts::add(&counts.chunks, 1);
        Counts::add(&counts.messages, u64::from(is_last));
        Counts::add(&counts.preemptions, u64::from(offset > 0 && turn.preempted));
        let mut way = self.way();
        let written = self.written.load(Relaxed);
        if let Some(posted) = way.posted.back_mut() {
            posted.end.get_or_insert(written);
        }
        drop(way);
        // It may be acknowledged already.
        self.settle(false);
    }

    /// Gives back the shares of what the peer has acknowledged. `reported`: by an event of the
    /// socket.
    pub(super) fn settle(&self, reported: bool) {
        let mut way = self.way();
        let way = &mut *way;
        let Some(stream) = &way.stream else {
            return;
        };
        if reported {
            sys::take_reports(stream.as_fd());
        }
        if way.posted.is_empty() {
            return;
        }
        // Read before the count: so at most what is acknowledged counts as such.
        let written = self.written.load(Relaxed);
        let Ok(left) = sys::unacknowledged(stream.as_fd()) else {
            return;
        };
        let acknowledged = written.saturating_sub(left);
        let mut is_freed = false;
        while let Some(first) = way.posted.front() {
            if first.end.is_none_or(|end| end > acknowledged) {
                break;
            }
            let lost = self.arbiter().give_back(self.seat, &first.lent);
            Counts::add(&self.own().counts.expired, lost);
            way.posted.pop_front();
            is_freed = true;
        }
        if is_freed {
            let before = std::mem::replace(&mut way.counted, acknowledged);
            self.measure(acknowledged.saturating_sub(before), stream);
            self.arbiter().wake_first();
            if reported {
                self.ring();
            }
        }
    }

    /// Waits for the bell, until that instant (ns) at most.
    pub fn sleep(&self, bell: u32, until_ns: u64) {
        self.arbiter().sleep(self.seat, bell, until_ns);
    }

    /// The bell, to be read before the questions whose answers let it sleep.
    pub fn bell(&self) -> u32 {
        self.arbiter().bell(self.seat)
    }

    /// Lets the posting thread look again.
    pub fn ring(&self) {
        self.arbiter().ring(self.seat);
    }

    /// The application has waited for a credit.
    pub fn waited_for_credit(&self, ns: u64) {
        Counts::add(&self.own().counts.credit_wait_ns, ns);
    }

    /// Writes into the connection, and counts. With `marked` the port hears when it is
    /// acknowledged.
    pub fn write(
        &self,
        stream: &TcpStream,
        parts: &[IoSlice<'_>],
        marked: bool,
    ) -> std::io::Result<usize> {
        let written = if marked {
            sys::write_marked(stream.as_fd(), parts)
        } else {
            Quiet(stream).write_vectored(parts)
        }?;
        self.written.fetch_add(written as u64, Relaxed);
        Ok(written)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.arbiter().withdraw(self.seat);
        self.mapped.leave(self.seat);
    }
}
