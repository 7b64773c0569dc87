//! The sending side of a connection on a port: the posted chunks, and which of them the peer has
//! acknowledged.

use super::arbiter::{Answer, Arbiter, Lent, Patience, Rules, Urgency};
use super::meter::Sample;
use super::page::{Counts, Mapped, Seat, SHARES};
use super::settings::{wire_ns, InForce, Settings};
use super::sys::{self, SocketEvent};
use crate::pi::{Guard, Lock};
use crate::quiet::Quiet;
use crate::steps::{Step, StepWords};
use nix::sys::eventfd::{EfdFlags, EventFd};
use onbeat_flow::clock::now_ns;
use std::collections::VecDeque;
use std::io::{IoSlice, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// A chunk may be posted only if at least this part of its lease remains: the whole lease divided
/// by `LEAST_LEFT`. Less may remain if the thread was preempted after the grant.
const LEAST_LEFT: u64 = 2;

struct Posted {
    lent: Lent,
    need: usize,
    /// The number of bytes that the connection has sent up to the end of the chunk. `None` while
    /// the chunk is being written.
    end: Option<u64>,
    /// The latest time at which the peer should have acknowledged the chunk, in ns of
    /// CLOCK_MONOTONIC. It is computed from the port's rate and the chunks that leave before this
    /// chunk.
    due_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listener {
    Port,
    Poster,
}

struct Connection {
    stream: Option<TcpStream>,
    posted: VecDeque<Posted>,
    counted: u64,
    listener: Listener,
    /// The time at which this end last looked for acknowledgements, in ns of CLOCK_MONOTONIC.
    /// Reports from before this time contain nothing new.
    looked_ns: u64,
    round_trip_ns: u64,
}

/// The sending side of a connection on a port. Only one thread posts chunks. Other threads may ring
/// the transfer's bell (`Seat::bell`), so that this thread asks for shares of the window again.
pub struct Transfer {
    mapped: Arc<Mapped>,
    rules: Rules,
    settings: Settings,
    seat: usize,
    priority: u8,
    connection: Lock<Connection>,
    written: AtomicU64,
    /// The number of chunks that the port had granted when this transfer published its present
    /// request.
    published: AtomicU64,
    /// The number of chunks that the port had granted to more urgent transfers when it last granted
    /// one to this transfer.
    urgent: AtomicU64,
    wake: EventFd,
    steps: Option<Arc<dyn StepWords>>,
}

#[derive(Default)]
pub struct Turn {
    patience: Option<Patience>,
    since_ns: Option<u64>,
    preempted: bool,
    is_just_settled: bool,
    has_ended: bool,
}

pub enum Go {
    /// The chunk may be sent. The caller writes it now, and then calls [`Transfer::wrote`].
    Now,
    /// The chunk must wait. The caller asks again when the port wakes the transfer's thread, or at
    /// this time (ns of CLOCK_MONOTONIC).
    Later(u64),
    /// The connection's own chunks fill the window. The caller asks again when the peer
    /// acknowledges one of them, when the port wakes the transfer's thread, or at this time (ns of
    /// CLOCK_MONOTONIC).
    Full(u64),
}

impl Transfer {
    pub(super) fn new(
        mapped: Arc<Mapped>,
        settings: Settings,
        (seat, priority): (usize, u8),
        steps: Option<Arc<dyn StepWords>>,
    ) -> std::io::Result<Transfer> {
        let connection = Connection {
            stream: None,
            // Each chunk has at least one share, so the queue never grows.
            posted: VecDeque::with_capacity(SHARES + 1),
            counted: 0,
            listener: Listener::Port,
            looked_ns: 0,
            round_trip_ns: 0,
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Transfer {
            wake: EventFd::from_flags(flags)?,
            mapped,
            rules: settings.rules(),
            settings,
            seat,
            priority,
            connection: Lock::new(connection),
            written: AtomicU64::new(0),
            published: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
            steps,
        })
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

    /// Returns the port's given rate and its measured rate, bit/s.
    pub fn rates(&self) -> (u64, Option<u64>) {
        let given = self.settings.bits_per_second();
        (given, self.mapped.page().meter.measured(given))
    }

    pub fn chunk(&self) -> usize {
        self.in_force().chunk
    }

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
        let Some(round_trip_ns) = sys::shortest_round_trip_ns(stream.as_fd()) else {
            return;
        };
        let bits_per_second = Sample::rate(sent, took_ns);
        let window_ns = wire_ns(window_bytes, bits_per_second);
        let sample = Sample {
            bits_per_second,
            window_ns,
            round_trip_ns,
        };
        meter.judge(given, &sample);
    }

    fn own_seat(&self) -> &Seat {
        &self.mapped.page().seats[self.seat]
    }

    fn connection(&self) -> Guard<'_, Connection> {
        self.connection.lock()
    }

    pub(super) fn seat(&self) -> usize {
        self.seat
    }

    /// Makes the transfer send over the connection `stream` from now on. Chunks of the previous
    /// connection keep their shares of the window until their leases end.
    pub(super) fn begin(&self, stream: TcpStream) {
        // Without reports, leases end in time, and the next chunk looks for acknowledgements.
        let _ = sys::report_acknowledgements(stream.as_fd());
        let mut connection = self.connection();
        connection.posted.clear();
        connection.counted = 0;
        connection.listener = Listener::Port;
        connection.round_trip_ns = sys::shortest_round_trip_ns(stream.as_fd()).unwrap_or(0);
        connection.stream = Some(stream);
        self.written.store(0, Relaxed);
    }

    pub(super) fn end(&self) -> Option<TcpStream> {
        self.arbiter().withdraw(self.seat);
        let mut connection = self.connection();
        connection.posted.clear();
        connection.stream.take()
    }

    fn shares_needed(&self, bytes: usize) -> usize {
        let shares = self.settings.shares_of(bytes as u64);
        usize::try_from(shares).map_or(self.rules.shares, |n| n.min(self.rules.shares))
    }

    /// Publishes the size of the next message's next chunk, and the instant since which this
    /// message waits. `None` means that no message waits. The port then takes the message into
    /// account before the transfer's thread wakes up. Real-time safe: a few stores. If the next
    /// message is less urgent than the one before, call [`Transfer::pass_on`].
    pub fn publish(&self, next: Option<(usize, u64)>) {
        let urgency = |since_ns| Urgency::new(self.priority, since_ns);
        let next = next.map(|(bytes, since_ns)| (urgency(since_ns), self.shares_needed(bytes)));
        let granted = self.arbiter().publish(self.seat, next);
        self.published.store(granted, Relaxed);
    }

    pub fn pass_on(&self) {
        self.arbiter().wake_next(now_ns());
    }

    /// Asks whether a chunk with `bytes` bytes of content may be sent. The message to which the
    /// chunk belongs has waited since `message_ns`. Allocates nothing, and does not wait.
    pub fn ask(&self, bytes: usize, message_ns: u64, turn: &mut Turn) -> Go {
        let now = now_ns();
        let first_ns = *turn.since_ns.get_or_insert(now);
        let need = self.shares_needed(bytes);
        if !std::mem::take(&mut turn.is_just_settled) {
            self.settle(false);
        }
        let mut connection = self.connection();
        if let Some(until_ns) = self.blocked_by_own_chunks(&connection, need, message_ns, turn, now)
        {
            return match turn.has_ended {
                false => Go::Full(until_ns),
                true => Go::Later(until_ns),
            };
        }
        let urgency = Urgency::new(self.priority, message_ns);
        let patience = turn
            .patience
            .get_or_insert_with(|| Patience::since_grant(self.published.load(Relaxed)));
        let answer = self.arbiter().ask(self.seat, urgency, need, patience, now);
        let lent = match answer {
            Answer::Granted(lent) => lent,
            Answer::Wait { until_ns } => return Go::Later(until_ns),
        };
        let before = patience.granted_to_others();
        connection.posted.push_back(Posted {
            lent,
            need,
            end: None,
            due_ns: 0,
        });
        drop(connection);
        let now = now_ns();
        if lent.until_ns.saturating_sub(now) < self.rules.lease_ns / LEAST_LEFT {
            self.give_back_last();
            return Go::Later(now);
        }
        self.count_wait(now - first_ns.min(now));
        self.own_seat()
            .counts
            .most_before
            .fetch_max(before, Relaxed);
        // From now on the next chunk waits.
        let granted = self.mapped.page().granted.load(Relaxed);
        self.published.store(granted, Relaxed);
        let urgent = self.arbiter().granted_above(self.priority);
        turn.preempted = urgent > self.urgent.swap(urgent, Relaxed);
        Go::Now
    }

    /// Returns the time until which a chunk must wait because chunks of the same connection fill
    /// the window. While the leases of these chunks last, the waiting chunk keeps its place in the
    /// port's order. After that it loses its place. So a peer that does not acknowledge delays only
    /// the transfer to this peer.
    fn blocked_by_own_chunks(
        &self,
        connection: &Connection,
        need: usize,
        message_ns: u64,
        turn: &mut Turn,
        now: u64,
    ) -> Option<u64> {
        let own: usize = connection.posted.iter().map(|p| p.need).sum();
        let shares = self.in_force().shares;
        if own + need.min(shares) <= shares {
            return None;
        }
        let lent_until = connection
            .posted
            .front()
            .map_or(0, |first| first.lent.until_ns);
        if now < lent_until {
            let urgency = Urgency::new(self.priority, message_ns);
            self.arbiter().publish(self.seat, Some((urgency, need)));
            return Some(lent_until);
        }
        self.arbiter().withdraw(self.seat);
        turn.patience = Some(Patience::default());
        Some(now + self.rules.patience_ns)
    }

    fn leaves_within_ns(&self, shares: usize) -> u64 {
        let meter = &self.mapped.page().meter;
        let rate = meter.rate(self.settings.bits_per_second());
        wire_ns(self.settings.bytes_of(shares), rate)
    }

    /// Counts the acknowledgement of a chunk as a [`Step::Wire`]: how much later than expected it
    /// came. Chunks leave one after the other, so the delay of an earlier chunk is not counted
    /// again.
    fn count_acknowledged(&self, posted: &Posted, at_ns: u64) {
        let Some(steps) = &self.steps else {
            return;
        };
        let last = &self.mapped.page().acknowledged_ns;
        let last_ns = last.fetch_max(at_ns, Relaxed).min(at_ns);
        let after_it_ns = last_ns + self.leaves_within_ns(posted.need);
        steps.step(Step::Wire, posted.due_ns.max(after_it_ns), at_ns);
    }

    fn give_back_last(&self) {
        let last = self.connection().posted.pop_back();
        if let Some(posted) = last {
            let lost = self.arbiter().give_back(self.seat, &posted.lent);
            Counts::add(&self.own_seat().counts.expired, lost);
            self.arbiter().wake_first();
        }
    }

    fn count_wait(&self, wait_ns: u64) {
        let counts = &self.own_seat().counts;
        Counts::add(&counts.wait_ns, wait_ns);
        counts.longest_wait_ns.fetch_max(wait_ns, Relaxed);
    }

    pub fn wrote(&self, bytes: usize, offset: usize, is_last: bool, turn: &Turn) {
        let counts = &self.own_seat().counts;
        Counts::add(&counts.bytes, bytes as u64);
        Counts::add(&counts.chunks, 1);
        Counts::add(&counts.messages, u64::from(is_last));
        Counts::add(&counts.preemptions, u64::from(offset > 0 && turn.preempted));
        let mut connection = self.connection();
        let written = self.written.load(Relaxed);
        let (now, round_trip_ns) = (now_ns(), connection.round_trip_ns);
        if let Some(posted) = connection.posted.back_mut() {
            posted.end.get_or_insert(written);
            let arbiter = self.arbiter();
            let shares = arbiter.rules.shares - arbiter.free_shares(now).0;
            posted.due_ns = now + self.leaves_within_ns(shares) + round_trip_ns;
        }
        let listener = connection.listener;
        drop(connection);
        if listener == Listener::Port {
            // The peer may have acknowledged the chunk already, and the port's thread may have
            // heard of it.
            self.settle(false);
        }
    }

    /// Handles a socket event in the port's thread: gives the shares of acknowledged chunks back to
    /// the window. Returns whether the port's thread must wait for another event of this
    /// connection.
    pub(super) fn on_socket_event(&self) -> bool {
        if self.settle(true) {
            self.ring();
        }
        let connection = self.connection();
        connection.listener == Listener::Port && !connection.posted.is_empty()
    }

    /// Makes the port's thread wait for acknowledgements from now on. Returns whether any
    /// acknowledgements are still missing.
    pub(super) fn hand_over(&self) -> bool {
        let mut connection = self.connection();
        connection.listener = Listener::Port;
        connection.stream.is_some() && !connection.posted.is_empty()
    }

    pub(super) fn watch<T>(&self, watch: impl FnOnce(&TcpStream) -> T) -> Option<T> {
        self.connection().stream.as_ref().map(watch)
    }

    /// Gives the shares of acknowledged chunks back to the window. Returns whether there were such
    /// chunks. `reported` is true if the caller has seen a socket event.
    fn settle(&self, reported: bool) -> bool {
        let mut connection = self.connection();
        let connection = &mut *connection;
        let Some(stream) = &connection.stream else {
            return false;
        };
        let looked_ns = connection.looked_ns;
        let reported_ns = reported.then(|| sys::take_reports(stream.as_fd(), looked_ns));
        if connection.posted.is_empty() {
            return false;
        }
        connection.looked_ns = now_ns();
        // `written` is read before the count, so that no byte counts as acknowledged too early.
        let written = self.written.load(Relaxed);
        let Ok(left) = sys::unacknowledged_bytes(stream.as_fd()) else {
            return false;
        };
        let acknowledged = written.saturating_sub(left);
        let before = connection.counted;
        if !self.free_acknowledged(connection, acknowledged, reported_ns.flatten()) {
            return false;
        }
        if let Some(stream) = &connection.stream {
            self.measure(acknowledged.saturating_sub(before), stream);
        }
        true
    }

    fn free_acknowledged(
        &self,
        connection: &mut Connection,
        acknowledged: u64,
        reported_ns: Option<u64>,
    ) -> bool {
        let mut is_freed = false;
        let now = now_ns();
        while let Some(first) = connection.posted.front() {
            if first.end.is_none_or(|end| end > acknowledged) {
                break;
            }
            let lost = self.arbiter().give_back(self.seat, &first.lent);
            Counts::add(&self.own_seat().counts.expired, lost);
            self.count_acknowledged(first, reported_ns.unwrap_or(now));
            connection.posted.pop_front();
            is_freed = true;
        }
        if let (Some(steps), Some(due_ns), true) = (&self.steps, reported_ns, is_freed) {
            steps.step(Step::Hear, due_ns, now);
        }
        if is_freed {
            connection.counted = acknowledged;
            self.arbiter().wake_first();
        }
        is_freed
    }

    #[cfg(feature = "verbs")]
    pub fn posted_one(&self) {
        self.written.fetch_add(1, Relaxed);
    }

    /// Gives the shares of the connection's first `chunks` chunks, which the peer has acknowledged,
    /// back to the window. Real-time safe.
    #[cfg(feature = "verbs")]
    pub fn acknowledged(&self, chunks: u64) {
        let mut connection = self.connection();
        self.free_acknowledged(&mut connection, chunks, None);
    }

    pub(super) fn sleep(&self, bell: u32, until_ns: u64) {
        self.arbiter().sleep(self.seat, bell, until_ns);
    }

    /// Sleeps until the peer acknowledges bytes of this connection, the transfer's bell
    /// (`Seat::bell`) rings, or `until_ns` has come. Acknowledgements wake only this thread.
    /// Allocates nothing.
    pub fn sleep_until_acknowledged(
        &self,
        stream: &TcpStream,
        bell: u32,
        until_ns: u64,
        turn: &mut Turn,
    ) {
        self.connection().listener = Listener::Poster;
        let wait = || sys::wait_for_report(stream.as_fd(), &self.wake, until_ns);
        let heard = self.arbiter().sleep_on_connection(self.seat, bell, wait);
        if heard.is_some_and(|event| event != SocketEvent::Nothing) {
            self.settle(true);
            turn.is_just_settled = true;
            // Otherwise the thread could not sleep again before the reading thread has found out.
            turn.has_ended = heard == Some(SocketEvent::Ended);
        }
    }

    pub fn take_rung(&self) -> Option<u64> {
        self.arbiter().take_rung(self.seat)
    }

    pub fn bell(&self) -> u32 {
        self.arbiter().bell(self.seat)
    }

    pub fn ring(&self) {
        let arbiter = self.arbiter();
        arbiter.ring(self.seat);
        if arbiter.sleeps_on_connection(self.seat) {
            let _ = self.wake.write(1);
        }
    }

    pub fn waited_for_credit(&self, ns: u64) {
        Counts::add(&self.own_seat().counts.credit_wait_ns, ns);
    }

    /// Writes into the connection and counts the bytes. If `marked`, the port gets a report when
    /// the peer has acknowledged them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::io::Read;
    use std::net::TcpListener;

    const FAR_NS: u64 = 60_000_000_000;

    fn transfer() -> Transfer {
        let settings = Settings::of_rate(1_000_000_000).check().unwrap();
        let name = format!(".port/transfer-{}", std::process::id());
        let mapped = Mapped::alone(&name, settings.terms()).unwrap();
        let seat = mapped.sit(1, "test").unwrap();
        Transfer::new(Arc::new(mapped), settings, (seat, 1), None).unwrap()
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).set_recv_buffer_size(1).unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        SockRef::from(&sender)
            .set_send_buffer_size(1 << 22)
            .unwrap();
        (sender, listener.accept().unwrap().0)
    }

    fn fill(transfer: &Transfer, stream: &TcpStream, turn: &mut Turn) -> u32 {
        let chunk = vec![7; transfer.chunk()];
        loop {
            let bell = transfer.bell();
            match transfer.ask(chunk.len(), now_ns(), turn) {
                Go::Now => {}
                Go::Full(_) => return bell,
                Go::Later(_) => continue,
            }
            let part = [IoSlice::new(&chunk)];
            assert_eq!(transfer.write(stream, &part, true).unwrap(), chunk.len());
            transfer.wrote(chunk.len(), 0, true, turn);
        }
    }

    #[test]
    fn a_writer_that_waits_for_acknowledgements_also_wakes_for_items_and_at_the_end() {
        let transfer = transfer();
        let (sender, mut receiver) = connection();
        transfer.begin(sender.try_clone().unwrap());
        let mut turn = Turn::default();
        let far_ns = now_ns() + FAR_NS;
        let wait = |bell, turn: &mut Turn| {
            transfer.sleep_until_acknowledged(&sender, bell, far_ns, turn);
            assert!(now_ns() < far_ns, "it slept to the end");
        };
        // The bell rings during the sleep.
        let bell = fill(&transfer, &sender, &mut turn);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !transfer.arbiter().sleeps_on_connection(transfer.seat) {
                    std::thread::yield_now();
                }
                transfer.ring();
            });
            wait(bell, &mut turn);
        });
        // The bell rings before the sleep.
        let bell = transfer.bell();
        transfer.ring();
        wait(bell, &mut turn);
        // The peer reads at least a whole chunk.
        let mut taken = vec![0; transfer.chunk()];
        std::thread::scope(|scope| {
            scope.spawn(|| receiver.read_exact(&mut taken).unwrap());
            let posted = transfer.connection().posted.len();
            while transfer.connection().posted.len() == posted {
                let bell = transfer.bell();
                wait(bell, &mut turn);
            }
        });
        // The connection ends with unread bytes. The next answer does not wait for the connection.
        fill(&transfer, &sender, &mut turn);
        drop(receiver);
        while !turn.has_ended {
            let bell = transfer.bell();
            wait(bell, &mut turn);
        }
        let answer = transfer.ask(transfer.chunk(), now_ns(), &mut turn);
        assert!(matches!(answer, Go::Later(_)));
    }
}
