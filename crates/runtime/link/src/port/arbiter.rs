//! Decides which transfer may post the next chunk on a port: the most urgent one, as far as the
//! window has room.
//!
//! No lock is taken. A transfer publishes what it wants when its message is pushed, before its
//! thread wakes up. The want stands until the message's last chunk is posted: also between two
//! chunks, and while one is written. So grants follow the order of pushes, and writes follow the
//! grants. A transfer takes shares of the window one by one. It posts when it has all the shares
//! that it needs *and* is still the most urgent one that was published. The chunks ahead of it are
//! in the window. Each share is lent until an instant, so nobody needs to give it back. If the most
//! urgent transfer leaves free shares unused, it is passed over after a time.
//!
//! Nothing allocates, waits or calls the kernel, except [`Arbiter::sleep`] and a wake-up. Loops go
//! over all seats and shares.

use super::meter::Load;
use super::page::{Page, Seat, SEATS, SHARES};
use super::sys;
use onbeat_flow::clock::now_ns;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The bits of a word that contain a time, in ns of CLOCK_MONOTONIC. The time overflows after two
/// years. The words of requests, and the words of shares of the window, contain such a time.
const INSTANT: u64 = (1 << 56) - 1;

const AWAKE: u32 = 0;
/// The state of a transfer's thread that sleeps until its bell rings. The bell is a counter in
/// shared memory: another transfer increases it when this thread may ask for shares of the window
/// again.
const ON_BELL: u32 = 1;
/// The state of a transfer's thread that sleeps until its connection reports an event. Other
/// processes never wake such a thread.
const ON_CONNECTION: u32 = 2;

fn lease_end_left_ns(share: u64, now_ns: u64) -> u64 {
    let left = share.wrapping_sub(now_ns) & INSTANT;
    // The upper half is the past.
    if share == 0 || left > INSTANT / 2 {
        return 0;
    }
    left
}

/// The urgency of a chunk. The priority decides first. Among equal priorities, the chunk whose
/// message has waited longer is more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency(u64);

impl Urgency {
    pub fn new(priority: u8, since_ns: u64) -> Urgency {
        // At least 1, since 0 is nothing.
        Urgency((u64::from(priority) << 56 | (INSTANT - (since_ns & INSTANT))).max(1))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lent {
    shares: [u64; SHARES / 64],
    pub until_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub shares: usize,
    pub lease_ns: u64,
    /// The longest time, in ns, for which the most urgent transfer may leave free shares (parts) of
    /// the window unused. After that, other transfers go first.
    pub patience_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Granted(Lent),
    /// The chunk must wait. Its transfer asks again at this instant (ns of CLOCK_MONOTONIC) at the
    /// latest.
    Wait {
        until_ns: u64,
    },
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Patience {
    /// The time since which a more urgent transfer could have posted a chunk and has not done so,
    /// in ns of CLOCK_MONOTONIC. `None` if it cannot post, or has posted a chunk meanwhile.
    since_ns: Option<u64>,
    granted: u64,
    passed: u64,
    /// Two values of the port's count of granted chunks: when this transfer published its request,
    /// and when the port granted this transfer's chunk. The second value is 0 before the grant.
    /// `None` before the request.
    counted: Option<(u64, u64)>,
}

impl Patience {
    pub fn since_grant(granted: u64) -> Patience {
        let counted = Some((granted, 0));
        Patience {
            counted,
            ..Patience::default()
        }
    }

    pub fn granted_to_others(&self) -> u64 {
        self.counted
            .map_or(0, |(first, own)| own.wrapping_sub(first))
    }
}

#[derive(Clone, Copy)]
pub struct Arbiter<'p> {
    pub page: &'p Page,
    pub rules: Rules,
    pub clock: fn() -> u64,
}

impl<'p> Arbiter<'p> {
    fn seat(&self, seat: usize) -> &'p Seat {
        &self.page.seats[seat]
    }

    fn most_urgent_waiting(&self, passed: u64, but: Option<usize>) -> Option<(u64, usize)> {
        let waits = |seat: usize| {
            let want = self.seat(seat).want.load(SeqCst);
            let counts = want != 0 && passed & 1 << seat == 0 && but != Some(seat);
            counts.then_some((want, seat))
        };
        // Of equally urgent seats, the lowest one.
        (0..SEATS)
            .filter_map(waits)
            .max_by_key(|&(want, seat)| (want, SEATS - seat))
    }

    fn is_first(&self, seat: usize, want: u64, passed: u64) -> bool {
        let ahead = self.most_urgent_waiting(passed, Some(seat));
        ahead.is_none_or(|(other, at)| (other, SEATS - at) < (want, SEATS - seat))
    }

    /// Returns how much longer the transfer that has this share (part) of the window may keep it,
    /// in ns. If the share is free, returns the share's word as an error. If no transfer can have
    /// written the word, sets it to 0, which means a free share.
    fn lease_left_ns(&self, share: &AtomicU64, now_ns: u64) -> Result<u64, u64> {
        let seen = share.load(SeqCst);
        match lease_end_left_ns(seen, now_ns) {
            0 => Err(seen),
            left if left <= self.rules.lease_ns => Ok(left),
            // The share was lent after `now_ns`, or its word is nonsense: reading the clock after
            // the share decides.
            _ => {
                let left = lease_end_left_ns(seen, (self.clock)());
                if left > self.rules.lease_ns {
                    let _ = share.compare_exchange(seen, 0, SeqCst, SeqCst);
                    return Err(0);
                }
                Ok(left)
            }
        }
    }

    pub fn free_shares(&self, now_ns: u64) -> (usize, u64) {
        let (mut free, mut next_ns) = (0, u64::MAX);
        for share in &self.page.shares[..self.rules.shares] {
            match self.lease_left_ns(share, now_ns) {
                Err(_) => free += 1,
                Ok(left) => next_ns = next_ns.min(now_ns + left),
            }
        }
        (free, next_ns)
    }

    fn take(&self, seat: usize, need: usize, now_ns: u64) -> Option<Lent> {
        let until_ns = now_ns + self.rules.lease_ns;
        let mine = (seat as u64 + 1) << 56 | (until_ns & INSTANT);
        let (mut lent, mut taken) = (Lent::default(), 0);
        lent.until_ns = until_ns;
        for (at, share) in self.page.shares[..self.rules.shares].iter().enumerate() {
            if taken == need {
                break;
            }
            let free = self.lease_left_ns(share, now_ns).err();
            let takes = |seen| share.compare_exchange(seen, mine, SeqCst, SeqCst).is_ok();
            if free.is_some_and(takes) {
                lent.shares[at / 64] |= 1 << (at % 64);
                taken += 1;
            }
        }
        if taken == need {
            return Some(lent);
        }
        self.give_back(seat, &lent);
        // A more urgent transfer may have seen these shares taken.
        self.wake_first();
        None
    }

    /// Gives a transfer's shares (parts) of the window back. Skips shares that another transfer has
    /// taken in the meantime, and returns the number of skipped shares.
    pub fn give_back(&self, seat: usize, lent: &Lent) -> u64 {
        let mine = (seat as u64 + 1) << 56 | (lent.until_ns & INSTANT);
        let mut lost = 0;
        for (at, share) in self.page.shares[..self.rules.shares].iter().enumerate() {
            let had = lent.shares[at / 64] & 1 << (at % 64) != 0;
            if had && share.compare_exchange(mine, 0, SeqCst, SeqCst).is_err() {
                lost += 1;
            }
        }
        lost
    }

    /// Publishes the request of a transfer: the urgency of its next chunk and the number of shares
    /// that the chunk needs. `None` means that the transfer has no chunk to send. Returns the
    /// number of chunks that the port had granted up to this call. Wakes no thread. If the new
    /// request is less urgent than the one before, or `None`, call [`Arbiter::wake_next`].
    pub fn publish(&self, seat: usize, next: Option<(Urgency, usize)>) -> u64 {
        let own = self.seat(seat);
        if let Some((_, need)) = next {
            own.need.store(need as u32, Relaxed);
        }
        let want = next.map_or(0, |(urgency, _)| urgency.0);
        own.want.store(want, SeqCst);
        self.page.granted.load(SeqCst)
    }

    /// Asks for `need` shares of the window for a chunk of this urgency. Until the shares are
    /// granted, the caller asks again when its bell (`Seat::bell`) rings, and at the latest at the
    /// time in the answer. To give up, the caller calls [`Arbiter::withdraw`]. After a grant the
    /// request stays published until the caller has posted the chunk, so that no later chunk
    /// overtakes it. Then the caller publishes its next request.
    pub fn ask(
        &self,
        seat: usize,
        urgency: Urgency,
        need: usize,
        patience: &mut Patience,
        now_ns: u64,
    ) -> Answer {
        let need = need.clamp(1, self.rules.shares);
        // The want may have been withdrawn.
        let now_granted = self.publish(seat, Some((urgency, need)));
        let first_granted = patience.counted.get_or_insert((now_granted, 0)).0;
        if !self.is_first(seat, urgency.0, patience.passed) {
            return self.answer_behind(seat, urgency.0, patience, now_ns);
        }
        patience.since_ns = None;
        let (free, next_ns) = self.free_shares(now_ns);
        let lent = (free >= need).then(|| self.take(seat, need, now_ns));
        let Some(lent) = lent.flatten() else {
            let until_ns = next_ns.min(now_ns + self.rules.patience_ns);
            return Answer::Wait { until_ns };
        };
        // A more urgent transfer may have come meanwhile, and goes first.
        if !self.is_first(seat, urgency.0, patience.passed) {
            self.give_back(seat, &lent);
            self.wake_first();
            return self.answer_behind(seat, urgency.0, patience, now_ns);
        }
        self.seat(seat).counts.granted.fetch_add(1, SeqCst);
        let granted = self.page.granted.fetch_add(1, SeqCst);
        patience.counted = Some((first_granted, granted));
        Answer::Granted(lent)
    }

    /// Answers a transfer while a more urgent transfer waits. Withdraws the request of the more
    /// urgent transfer if it could post a chunk and does not do so for `patience_ns`.
    fn answer_behind(
        &self,
        seat: usize,
        want: u64,
        patience: &mut Patience,
        now_ns: u64,
    ) -> Answer {
        let granted = self.page.granted.load(SeqCst);
        let first = self.most_urgent_waiting(patience.passed, Some(seat));
        let needs = first.map_or(0, |(_, at)| self.seat(at).need.load(Relaxed) as usize);
        let (free, next_ns) = self.free_shares(now_ns);
        let could_go = free >= needs.clamp(1, self.rules.shares);
        if !could_go || granted != patience.granted {
            patience.since_ns = None;
        }
        patience.granted = granted;
        let wait = |until_ns| Answer::Wait { until_ns };
        if !could_go {
            return wait(next_ns.min(now_ns + self.rules.patience_ns));
        }
        let since_ns = *patience.since_ns.get_or_insert(now_ns);
        let until_ns = since_ns + self.rules.patience_ns;
        if now_ns < until_ns {
            return wait(until_ns);
        }
        self.pass_over(seat, want, patience);
        patience.since_ns = None;
        wait(now_ns)
    }

    fn pass_over(&self, seat: usize, want: u64, patience: &mut Patience) {
        for at in (0..SEATS).filter(|at| *at != seat) {
            let other = self.seat(at);
            let seen = other.want.load(SeqCst);
            if (seen, SEATS - at) > (want, SEATS - seat) {
                let _ = other.want.compare_exchange(seen, 0, SeqCst, SeqCst);
                other.counts.passed_over.fetch_add(1, Relaxed);
                patience.passed |= 1 << at;
            }
        }
    }

    pub fn withdraw(&self, seat: usize) {
        if self.seat(seat).want.swap(0, SeqCst) != 0 {
            self.wake_first();
        }
    }

    /// Returns the number of chunks that the port granted to transfers of a priority above
    /// `priority`. The returned number can fall: the count of a place on the port restarts at 0
    /// when another transfer takes the place.
    pub fn granted_above(&self, priority: u8) -> u64 {
        let above = |seat: &&Seat| seat.priority.load(Relaxed) > u32::from(priority);
        let seats = self.page.seats.iter().filter(above);
        seats.fold(0, |sum: u64, seat| {
            sum.wrapping_add(seat.counts.granted.load(SeqCst))
        })
    }

    /// Wakes the most urgent waiting transfer if the window has free shares. Call this after
    /// posting a chunk and publishing the next request.
    pub fn wake_next(&self, now_ns: u64) {
        if self.free_shares(now_ns).0 > 0 {
            self.wake_first();
        }
    }

    pub fn load(&self, now_ns: u64) -> Load {
        if self.most_urgent_waiting(0, None).is_some() {
            Load::Waited
        } else if self.free_shares(now_ns).0 < self.rules.shares {
            Load::Busy
        } else {
            Load::Idle
        }
    }

    pub fn wake_first(&self) {
        if let Some((_, seat)) = self.most_urgent_waiting(0, None) {
            self.ring(seat);
        }
    }

    pub fn ring(&self, seat: usize) {
        let seat = self.seat(seat);
        // The first of several rings counts.
        let _ = seat.rung_ns.compare_exchange(0, now_ns(), Relaxed, Relaxed);
        seat.bell.fetch_add(1, SeqCst);
        if seat.asleep.load(SeqCst) == ON_BELL {
            sys::wake(&seat.bell);
        }
    }

    /// Returns and clears the time at which the transfer's bell first rang, in ns of
    /// CLOCK_MONOTONIC. Returns `None` if the bell has not rung since the last call.
    pub fn take_rung(&self, seat: usize) -> Option<u64> {
        let rung_ns = self.seat(seat).rung_ns.swap(0, Relaxed);
        (rung_ns > 0).then_some(rung_ns)
    }

    /// Returns how often the transfer's bell (`Seat::bell`) has rung. Read this count before asking
    /// for shares of the window: [`Arbiter::sleep`] returns at once if the bell has rung since
    /// then.
    pub fn bell(&self, seat: usize) -> u32 {
        self.seat(seat).bell.load(SeqCst)
    }

    pub fn sleep(&self, seat: usize, bell: u32, until_ns: u64) {
        let seat = self.seat(seat);
        seat.asleep.store(ON_BELL, SeqCst);
        sys::wait(&seat.bell, bell, until_ns);
        seat.asleep.store(AWAKE, SeqCst);
    }

    /// Sleeps by calling `wait`, and returns its result. Returns `None` without sleeping if the
    /// transfer's bell has rung since [`Arbiter::bell`] returned `bell`. [`Arbiter::ring`] does not
    /// end this sleep: the thread that rings must then check [`Arbiter::sleeps_on_connection`], and
    /// wake this thread through its connection.
    pub fn sleep_on_connection<T>(
        &self,
        seat: usize,
        bell: u32,
        wait: impl FnOnce() -> T,
    ) -> Option<T> {
        let seat = self.seat(seat);
        seat.asleep.store(ON_CONNECTION, SeqCst);
        let slept = (seat.bell.load(SeqCst) == bell).then(wait);
        seat.asleep.store(AWAKE, SeqCst);
        slept
    }

    pub fn sleeps_on_connection(&self, seat: usize) -> bool {
        self.seat(seat).asleep.load(SeqCst) == ON_CONNECTION
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;

    const RULES: Rules = Rules {
        shares: 32,
        lease_ns: 1000,
        patience_ns: 100,
    };
    const NOW: u64 = 1_000_000;

    fn page() -> Box<Page> {
        // SAFETY: the page consists of atomic words, and all zeros are a valid page.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    thread_local! {
        static CLOCK: Cell<u64> = const { Cell::new(NOW) };
        static NEXT_WANT: Cell<Option<(&'static Page, usize, Urgency)>> = const { Cell::new(None) };
    }

    fn clock() -> u64 {
        if let Some((page, seat, urgency)) = NEXT_WANT.take() {
            page.seats[seat].need.store(1, SeqCst);
            page.seats[seat].want.store(urgency.0, SeqCst);
        }
        CLOCK.get()
    }

    fn arbiter(page: &Page) -> Arbiter<'_> {
        let (rules, clock) = (RULES, clock as fn() -> u64);
        Arbiter { page, rules, clock }
    }

    #[derive(Debug, Clone, Copy)]
    struct Message {
        urgency: Urgency,
        need: usize,
        chunks: usize,
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A message arrives at a transfer that has no other message. The fields are the transfer's
        /// place on the port, priority, shares per chunk, number of chunks.
        Comes(usize, u8, usize, usize),
        Acknowledged,
    }

    fn step() -> impl Strategy<Value = Step> {
        let comes = (0..8_usize, 0..3_u8, 1..33_usize, 1..4_usize);
        prop_oneof![
            comes.prop_map(|(seat, priority, need, chunks)| Step::Comes(
                seat, priority, need, chunks
            )),
            Just(Step::Acknowledged),
        ]
    }

    fn decide_for_all(waiting: &mut [Option<Message>; 8], free: &mut usize) -> Vec<(usize, usize)> {
        let mut went = Vec::new();
        loop {
            let waits = (0..8).filter_map(|seat| waiting[seat].map(|m| (m, seat)));
            let first = waits.min_by_key(|(m, seat)| (std::cmp::Reverse(m.urgency), *seat));
            let Some((message, seat)) = first.filter(|(m, _)| m.need <= *free) else {
                return went;
            };
            *free -= message.need;
            went.push((seat, message.need));
            let chunks = message.chunks - 1;
            waiting[seat] = (chunks > 0).then_some(Message { chunks, ..message });
        }
    }

    fn decide_by_asking(
        page: &Page,
        waiting: &mut [Option<Message>; 8],
        start: usize,
        posted: &mut Vec<(usize, usize, Lent)>,
    ) -> Vec<(usize, usize)> {
        let mut went = Vec::new();
        let mut quiet = 0;
        for seat in (start..).map(|n| n % 8) {
            quiet += 1;
            if quiet > 8 {
                break;
            }
            let Some(message) = waiting[seat] else {
                continue;
            };
            let (urgency, need) = (message.urgency, message.need);
            let answer = arbiter(page).ask(seat, urgency, need, &mut Patience::default(), NOW);
            if let Answer::Granted(lent) = answer {
                quiet = 0;
                posted.push((seat, need, lent));
                went.push((seat, need));
                let chunks = message.chunks - 1;
                waiting[seat] = (chunks > 0).then_some(Message { chunks, ..message });
                if chunks == 0 {
                    arbiter(page).publish(seat, None);
                }
            }
        }
        went
    }

    proptest! {
        #[test]
        fn chunks_leave_in_the_order_of_an_ideal_scheduler(steps in prop::collection::vec((step(), 0..8_usize), 1..60)) {
            let page = page();
            let (mut waiting, mut expected) = ([None; 8], [None; 8]);
            let (mut posted, mut free) = (Vec::new(), RULES.shares);
            for (number, (step, start)) in steps.into_iter().enumerate() {
                match step {
                    Step::Comes(seat, priority, need, chunks) if waiting[seat].is_none() => {
                        let urgency = Urgency::new(priority, NOW + number as u64);
                        let message = Message { urgency, need, chunks };
                        (waiting[seat], expected[seat]) = (Some(message), Some(message));
                        page.seats[seat].want.store(urgency.0, SeqCst);
                        page.seats[seat].need.store(need as u32, SeqCst);
                    }
                    Step::Acknowledged if !posted.is_empty() => {
                        let (seat, need, lent) = posted.remove(0);
                        prop_assert_eq!(arbiter(&page).give_back(seat, &lent), 0);
                        free += need;
                    }
                    _ => {}
                }
                let went = decide_by_asking(&page, &mut waiting, start, &mut posted);
                prop_assert_eq!(went, decide_for_all(&mut expected, &mut free));
                let used: usize = posted.iter().map(|(_, need, _)| need).sum();
                prop_assert_eq!(used + free, RULES.shares);
            }
        }

        #[test]
        fn a_corrupt_page_delays_a_transfer_by_a_lease_and_a_patience_at_most(
            wants in prop::collection::vec((0..SEATS, any::<u64>(), any::<u32>()), 0..70),
            shares in prop::collection::vec((0..SHARES, prop_oneof![any::<u64>(), NOW..NOW + 2000]), 0..300),
            granted: u64,
        ) {
            let page = page();
            for (seat, want, need) in wants {
                page.seats[seat].want.store(want, SeqCst);
                page.seats[seat].need.store(need, SeqCst);
            }
            for (at, share) in shares {
                page.shares[at].store(share, SeqCst);
            }
            page.granted.store(granted, SeqCst);
            let (mut now, mut patience) = (NOW, Patience::default());
            loop {
                let urgency = Urgency::new(0, now);
                CLOCK.set(now);
                match arbiter(&page).ask(63, urgency, 32, &mut patience, now) {
                    Answer::Granted(_) => break,
                    Answer::Wait { until_ns } => now = now.max(until_ns),
                }
                prop_assert!(now <= NOW + RULES.lease_ns + RULES.patience_ns, "{}", now - NOW);
            }
        }
    }

    #[test]
    fn concurrent_threads_stay_within_the_window_and_all_finish() {
        let (page, used) = (page(), AtomicUsize::new(0));
        // No lease ends here, and nobody is passed over: a thread that misses its wake-up would
        // sleep for good.
        let (lease_ns, patience_ns) = (INSTANT / 4, INSTANT / 4);
        let rules = Rules {
            lease_ns,
            patience_ns,
            ..RULES
        };
        let clock = now_ns as fn() -> u64;
        let page = &*page;
        let arbiter = Arbiter { page, rules, clock };
        let works = &|seat: usize| {
            for number in 0..3000_usize {
                let need = 1 + (seat * 7 + number * 5) % RULES.shares;
                let urgency = Urgency::new((seat % 3) as u8, now_ns());
                let mut patience = Patience::default();
                let lent = loop {
                    let bell = arbiter.bell(seat);
                    match arbiter.ask(seat, urgency, need, &mut patience, now_ns()) {
                        Answer::Granted(lent) => break lent,
                        Answer::Wait { until_ns } => arbiter.sleep(seat, bell, until_ns),
                    }
                };
                let posted = used.fetch_add(need, SeqCst) + need;
                assert!(posted <= RULES.shares, "{posted} shares are posted");
                arbiter.publish(seat, None);
                arbiter.wake_next(now_ns());
                used.fetch_sub(need, SeqCst);
                assert_eq!(arbiter.give_back(seat, &lent), 0);
                arbiter.wake_first();
            }
        };
        std::thread::scope(|scope| {
            for seat in 0..6 {
                scope.spawn(move || works(seat));
            }
        });
        assert_eq!(arbiter.free_shares(now_ns()).0, RULES.shares);
        assert_eq!(page.granted.load(SeqCst), 6 * 3000);
    }

    #[test]
    fn a_more_urgent_transfer_that_comes_while_shares_are_taken_goes_first() {
        let page: &'static Page = Box::leak(page());
        // An impossible word, which makes the arbiter read the clock once more.
        page.shares[0].store(NOW + 10 * RULES.lease_ns, SeqCst);
        NEXT_WANT.set(Some((page, 5, Urgency::new(9, NOW))));
        let mut patience = Patience::default();
        let low = Urgency::new(1, NOW);
        let answer = arbiter(page).ask(0, low, RULES.shares, &mut patience, NOW);
        assert!(matches!(answer, Answer::Wait { .. }), "{answer:?}");
        assert_eq!(arbiter(page).free_shares(NOW).0, RULES.shares);
        assert_eq!(page.granted.load(SeqCst), 0);
    }

    #[test]
    fn a_late_thread_does_not_take_shares_of_the_window_that_were_lent_meanwhile() {
        let page = page();
        let late = NOW + 50;
        CLOCK.set(late);
        let (urgency, patience) = (Urgency::new(1, NOW), Patience::default);
        let Answer::Granted(lent) = arbiter(&page).ask(0, urgency, 32, &mut patience(), late)
        else {
            panic!("nobody else is there");
        };
        let answer = arbiter(&page).ask(1, urgency, 1, &mut patience(), NOW);
        assert!(matches!(answer, Answer::Wait { .. }), "{answer:?}");
        assert_eq!(arbiter(&page).give_back(0, &lent), 0);
    }

    #[test]
    fn shares_of_the_window_are_free_again_when_their_lease_ends() {
        let page = page();
        let mut patience = Patience::default();
        let mut ask = |seat, now| {
            let urgency = Urgency::new(1, NOW);
            arbiter(&page).ask(seat, urgency, 32, &mut patience, now)
        };
        let Answer::Granted(first) = ask(0, NOW) else {
            panic!("nobody else is there");
        };
        arbiter(&page).publish(0, None);
        let end = NOW + RULES.lease_ns;
        assert!(matches!(ask(1, end - 1), Answer::Wait { until_ns } if until_ns == end));
        let Answer::Granted(second) = ask(1, end) else {
            panic!("the lease is over");
        };
        assert_eq!(arbiter(&page).give_back(0, &first), 32);
        assert_eq!(arbiter(&page).give_back(1, &second), 0);
    }

    #[test]
    fn a_message_keeps_its_place_in_the_order_until_its_last_chunk_is_posted() {
        let page = page();
        let (first, second) = (Urgency::new(1, NOW), Urgency::new(1, NOW + 1));
        arbiter(&page).publish(0, Some((first, 4)));
        let goes = |seat, urgency| {
            let answer = arbiter(&page).ask(seat, urgency, 4, &mut Patience::default(), NOW);
            matches!(answer, Answer::Granted(_))
        };
        assert!(!goes(1, second), "before the first one's thread comes");
        assert!(goes(0, first));
        assert!(!goes(1, second), "while it is written");
        assert!(goes(0, first));
        assert!(goes(2, Urgency::new(9, NOW + 2)));
        arbiter(&page).publish(2, None);
        arbiter(&page).publish(0, Some((Urgency::new(1, NOW + 2), 4)));
        assert!(goes(1, second), "before the first one's next message");
        assert!(!goes(0, Urgency::new(1, NOW + 2)));
    }

    #[test]
    fn a_transfer_that_leaves_free_shares_unused_is_passed_over() {
        let page = page();
        let (mut own, mut its) = (Patience::default(), Patience::default());
        let (high, low) = (Urgency::new(9, NOW), Urgency::new(1, NOW));
        page.seats[0].want.store(high.0, SeqCst);
        let until = NOW + RULES.patience_ns;
        for now in [NOW, until - 1] {
            let answer = arbiter(&page).ask(1, low, 8, &mut own, now);
            assert_eq!(answer, Answer::Wait { until_ns: until });
        }
        let passing = arbiter(&page).ask(1, low, 8, &mut own, until);
        assert!(matches!(passing, Answer::Wait { until_ns } if until_ns == until));
        let went = arbiter(&page).ask(1, low, 8, &mut own, until);
        assert!(matches!(went, Answer::Granted(_)));
        assert_eq!(page.seats[0].counts.passed_over.load(SeqCst), 1);
        let went = arbiter(&page).ask(0, high, 8, &mut its, until);
        assert!(matches!(went, Answer::Granted(_)));
    }
}
