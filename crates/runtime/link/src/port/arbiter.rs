//! Who may post the next chunk: the most urgent transfer, as far as the window has room.
//!
//! No lock. What a transfer wants is published when its message is pushed, before its thread wakes
//! up, and stands until the message's last chunk is posted: between two chunks too, and while one is
//! written. So grants follow the order of pushes, and what is written follows the grants. A transfer
//! takes shares of the window one by one; it posts when it has all that it needs *and* is still the
//! most urgent one that was published. What is on its way ahead of it is in the window. Each share
//! is lent until an instant: nobody needs to give it back. Who is the most urgent but does not take
//! what is free is passed over after a time.
//!
//! Nothing allocates, waits or calls the kernel but [`Arbiter::sleep`] and a wake-up. Loops go over
//! all seats and shares.

use super::meter::Load;
use super::page::{Page, Seat, SEATS, SHARES};
use super::sys;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The low bits of a want and of a share: an instant, ns of CLOCK_MONOTONIC (two years).
const INSTANT: u64 = (1 << 56) - 1;

/// What a seat's thread sleeps on: nothing, its bell, or its connection. No other process has to wake
/// it from the last, since it waits for its own bytes alone.
const AWAKE: u32 = 0;
const ON_BELL: u32 = 1;
const ON_CONNECTION: u32 = 2;

/// How long a share is still lent, ns; 0 if nobody has it any more.
fn left_ns(share: u64, now_ns: u64) -> u64 {
    let left = share.wrapping_sub(now_ns) & INSTANT;
    // The upper half is the past.
    if share == 0 || left > INSTANT / 2 {
        return 0;
    }
    left
}

/// How urgent a chunk is: by priority, and among equals by the instant since which its message
/// waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency(u64);

impl Urgency {
    /// Larger priorities are more urgent.
    pub fn new(priority: u8, since_ns: u64) -> Urgency {
        // At least 1, since 0 is nothing.
        Urgency((u64::from(priority) << 56 | (INSTANT - (since_ns & INSTANT))).max(1))
    }
}

/// Shares of the window that a chunk has, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lent {
    /// Which ones, by bit.
    shares: [u64; SHARES / 64],
    /// Until when, ns.
    pub until_ns: u64,
}

/// What a page's transfers have agreed on, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Shares of the window.
    pub shares: usize,
    /// For how long a chunk has them, ns.
    pub lease_ns: u64,
    /// How long the most urgent may leave free what it needs, ns.
    pub patience_ns: u64,
}

/// The answer to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It may be posted, until the lease ends.
    Granted(Lent),
    /// Not now; look again at this instant (ns) at the latest.
    Wait {
        /// The instant.
        until_ns: u64,
    },
}

/// What a waiting transfer has seen of the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience {
    /// Since when the one ahead could go and does not.
    since_ns: Option<u64>,
    granted: u64,
    /// Seats that are not waited for any more, by bit.
    passed: u64,
    /// Chunks that had been granted, of all, once its want was published, and before its own was.
    counted: Option<(u64, u64)>,
}

impl Patience {
    /// Of a want that was published when so many chunks had been granted, of all.
    pub fn since(granted: u64) -> Patience {
        let counted = Some((granted, 0));
        Patience {
            counted,
            ..Patience::default()
        }
    }

    /// Chunks that were granted to others between its want and its grant.
    pub fn others(&self) -> u64 {
        self.counted
            .map_or(0, |(first, own)| own.wrapping_sub(first))
    }
}

/// A page with its rules.
#[derive(Clone, Copy)]
pub struct Arbiter<'p> {
    pub page: &'p Page,
    pub rules: Rules,
    /// CLOCK_MONOTONIC, ns.
    pub clock: fn() -> u64,
}

impl<'p> Arbiter<'p> {
    fn seat(&self, seat: usize) -> &'p Seat {
        &self.page.seats[seat]
    }

    /// The most urgent seat that waits, but those of `passed` and `but`.
    fn first(&self, passed: u64, but: Option<usize>) -> Option<(u64, usize)> {
        let waits = |seat: usize| {
            let want = self.seat(seat).want.load(SeqCst);
            let counts = want != 0 && passed & 1 << seat == 0 && but != Some(seat);
            counts.then_some((want, seat))
        };
        // Among equals the lowest seat.
        (0..SEATS)
            .filter_map(waits)
            .max_by_key(|&(want, seat)| (want, SEATS - seat))
    }

    fn is_first(&self, seat: usize, want: u64, passed: u64) -> bool {
        let ahead = self.first(passed, Some(seat));
        ahead.is_none_or(|(other, at)| (other, SEATS - at) < (want, SEATS - seat))
    }

    /// For how long somebody has a share, ns; or what stands there if nobody has. What no transfer
    /// can have written is cleared, so that it does not become a lease later.
    fn lent(&self, share: &AtomicU64, now_ns: u64) -> Result<u64, u64> {
        let seen = share.load(SeqCst);
        match left_ns(seen, now_ns) {
            0 => Err(seen),
            left if left <= self.rules.lease_ns => Ok(left),
            // Lent since `now_ns`, or nonsense: a clock that is read after the share tells which.
            _ => {
                let left = left_ns(seen, (self.clock)());
                if left > self.rules.lease_ns {
                    let _ = share.compare_exchange(seen, 0, SeqCst, SeqCst);
                    return Err(0);
                }
                Ok(left)
            }
        }
    }

    /// Free shares, and when the next one of the others is.
    fn free(&self, now_ns: u64) -> (usize, u64) {
        let (mut free, mut next_ns) = (0, u64::MAX);
        for share in &self.page.shares[..self.rules.shares] {
            match self.lent(share, now_ns) {
                Err(_) => free += 1,
                Ok(left) => next_ns = next_ns.min(now_ns + left),
            }
        }
        (free, next_ns)
    }

    /// Takes that many shares, or none.
    fn take(&self, seat: usize, need: usize, now_ns: u64) -> Option<Lent> {
        let until_ns = now_ns + self.rules.lease_ns;
        let mine = (seat as u64 + 1) << 56 | (until_ns & INSTANT);
        let (mut lent, mut taken) = (Lent::default(), 0);
        lent.until_ns = until_ns;
        for (at, share) in self.page.shares[..self.rules.shares].iter().enumerate() {
            if taken == need {
                break;
            }
            let free = self.lent(share, now_ns).err();
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
        // Who is more urgent may have seen them taken.
        self.wake_first();
        None
    }

    /// Gives shares back, but those that were lent to somebody else since. Returns how many these
    /// are.
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

    /// Publishes what a seat wants next; `None` is nothing. Returns how many chunks had been granted
    /// then, of all. Wakes nobody: if it wants less than before, call [`Arbiter::wake_next`].
    pub fn publish(&self, seat: usize, next: Option<(Urgency, usize)>) -> u64 {
        let own = self.seat(seat);
        if let Some((_, need)) = next {
            own.need.store(need as u32, Relaxed);
        }
        let want = next.map_or(0, |(urgency, _)| urgency.0);
        own.want.store(want, SeqCst);
        self.page.granted.load(SeqCst)
    }

    /// Asks for `need` shares for a chunk of this urgency. Call it again when the bell has rung, or
    /// at the latest at the instant of the answer, or else [`Arbiter::withdraw`]. The want stands
    /// also when it is granted: until the chunk is posted, so that nobody who is behind overtakes it
    /// on the way. Then [`Arbiter::publish`] what is next.
    pub fn ask(
        &self,
        seat: usize,
        urgency: Urgency,
        need: usize,
        patience: &mut Patience,
        now_ns: u64,
    ) -> Answer {
        let need = need.clamp(1, self.rules.shares);
        // It may have been withdrawn.
        let now_granted = self.publish(seat, Some((urgency, need)));
        let first_granted = patience.counted.get_or_insert((now_granted, 0)).0;
        if !self.is_first(seat, urgency.0, patience.passed) {
            return self.behind(seat, urgency.0, patience, now_ns);
        }
        patience.since_ns = None;
        let (free, next_ns) = self.free(now_ns);
        let lent = (free >= need).then(|| self.take(seat, need, now_ns));
        let Some(lent) = lent.flatten() else {
            let until_ns = next_ns.min(now_ns + self.rules.patience_ns);
            return Answer::Wait { until_ns };
        };
        // Something more urgent may have come meanwhile: that one goes first.
        if !self.is_first(seat, urgency.0, patience.passed) {
            self.give_back(seat, &lent);
            self.wake_first();
            return self.behind(seat, urgency.0, patience, now_ns);
        }
        self.seat(seat).counts.granted.fetch_add(1, SeqCst);
        let granted = self.page.granted.fetch_add(1, SeqCst);
        patience.counted = Some((first_granted, granted));
        Answer::Granted(lent)
    }

    /// Something more urgent waits. If it does not go although it could, it is passed over.
    fn behind(&self, seat: usize, want: u64, patience: &mut Patience, now_ns: u64) -> Answer {
        let granted = self.page.granted.load(SeqCst);
        let first = self.first(patience.passed, Some(seat));
        let needs = first.map_or(0, |(_, at)| self.seat(at).need.load(Relaxed) as usize);
        let (free, next_ns) = self.free(now_ns);
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

    /// Withdraws the wants of all that are more urgent.
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

    /// Wants nothing any more.
    pub fn withdraw(&self, seat: usize) {
        if self.seat(seat).want.swap(0, SeqCst) != 0 {
            self.wake_first();
        }
    }

    /// Chunks that were granted to transfers of greater priority. A seat that was taken anew begins
    /// at 0.
    pub fn granted_above(&self, priority: u8) -> u64 {
        let above = |seat: &&Seat| seat.priority.load(Relaxed) > u32::from(priority);
        let seats = self.page.seats.iter().filter(above);
        seats.fold(0, |sum: u64, seat| {
            sum.wrapping_add(seat.counts.granted.load(SeqCst))
        })
    }

    /// A chunk was posted, and what its seat wants next is published: another may fit too.
    pub fn wake_next(&self, now_ns: u64) {
        if self.free(now_ns).0 > 0 {
            self.wake_first();
        }
    }

    /// Whether anybody waits; else whether anything is on its way.
    pub fn load(&self, now_ns: u64) -> Load {
        if self.first(0, None).is_some() {
            Load::Waited
        } else if self.free(now_ns).0 < self.rules.shares {
            Load::Busy
        } else {
            Load::Idle
        }
    }

    /// Lets the most urgent look again.
    pub fn wake_first(&self) {
        if let Some((_, seat)) = self.first(0, None) {
            self.ring(seat);
        }
    }

    /// Lets a seat's thread look again. A system call only while it sleeps.
    pub fn ring(&self, seat: usize) {
        let seat = self.seat(seat);
        seat.bell.fetch_add(1, SeqCst);
        if seat.asleep.load(SeqCst) == ON_BELL {
            sys::wake(&seat.bell);
        }
    }

    /// The bell, to be read before the questions whose answers let it sleep.
    pub fn bell(&self, seat: usize) -> u32 {
        self.seat(seat).bell.load(SeqCst)
    }

    /// Sleeps until the bell has rung since it was read, or that instant.
    pub fn sleep(&self, seat: usize, bell: u32, until_ns: u64) {
        let seat = self.seat(seat);
        seat.asleep.store(ON_BELL, SeqCst);
        sys::wait(&seat.bell, bell, until_ns);
        seat.asleep.store(AWAKE, SeqCst);
    }

    /// Sleeps by `wait`, unless the bell has rung since it was read. [`Arbiter::ring`] does not wake
    /// it; who may, looks at [`Arbiter::sleeps_on_connection`] after it has rung.
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

    /// Whether the seat's thread waits for its connection.
    pub fn sleeps_on_connection(&self, seat: usize) -> bool {
        self.seat(seat).asleep.load(SeqCst) == ON_CONNECTION
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_flow::clock::now_ns;
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
        // SAFETY: all of it is atomic words, and zeros are a page.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    thread_local! {
        static CLOCK: Cell<u64> = const { Cell::new(NOW) };
        /// What the next reader of the clock finds published meanwhile.
        static COMES: Cell<Option<(&'static Page, usize, Urgency)>> = const { Cell::new(None) };
    }

    fn clock() -> u64 {
        if let Some((page, seat, urgency)) = COMES.take() {
            page.seats[seat].need.store(1, SeqCst);
            page.seats[seat].want.store(urgency.0, SeqCst);
        }
        CLOCK.get()
    }

    fn arbiter(page: &Page) -> Arbiter<'_> {
        let (rules, clock) = (RULES, clock as fn() -> u64);
        Arbiter { page, rules, clock }
    }

    /// A message of that many chunks.
    #[derive(Debug, Clone, Copy)]
    struct Message {
        urgency: Urgency,
        need: usize,
        chunks: usize,
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A message comes at a seat; ignored while that one has another.
        Comes(usize, u8, usize, usize),
        /// The oldest chunk is acknowledged.
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

    /// The whole decision, over all at once: the most urgent goes if the window has room, and else
    /// nobody.
    fn reference(waiting: &mut [Option<Message>; 8], free: &mut usize) -> Vec<(usize, usize)> {
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

    /// The same by the seats, which ask one by one, from `start` on, until nobody goes.
    fn asked(
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
        /// Chunks go in the order that a scheduler decides which sees everything, and within the
        /// window.
        #[test]
        fn the_order_is_the_references(steps in prop::collection::vec((step(), 0..8_usize), 1..60)) {
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
                let went = asked(&page, &mut waiting, start, &mut posted);
                prop_assert_eq!(went, reference(&mut expected, &mut free));
                let used: usize = posted.iter().map(|(_, need, _)| need).sum();
                prop_assert_eq!(used + free, RULES.shares);
            }
        }

        /// Whatever stands in the page, nobody waits longer than a lease and a patience.
        #[test]
        fn nobody_waits_for_what_is_not_so(
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

    /// Whoever asks at the same time, from whatever thread: what is granted fits into the window,
    /// nobody is left asleep, and in the end all of it is free again.
    #[test]
    fn threads_keep_within_the_window() {
        let (page, used) = (page(), AtomicUsize::new(0));
        // No lease ends here, and nobody is passed over: who sleeps too long is never woken.
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
        assert_eq!(arbiter.free(now_ns()).0, RULES.shares);
        assert_eq!(page.granted.load(SeqCst), 6 * 3000);
    }

    #[test]
    fn who_comes_while_shares_are_taken_goes_first() {
        let page: &'static Page = Box::leak(page());
        // Nonsense, for which the clock is read once more.
        page.shares[0].store(NOW + 10 * RULES.lease_ns, SeqCst);
        COMES.set(Some((page, 5, Urgency::new(9, NOW))));
        let mut patience = Patience::default();
        let low = Urgency::new(1, NOW);
        let answer = arbiter(page).ask(0, low, RULES.shares, &mut patience, NOW);
        assert!(matches!(answer, Answer::Wait { .. }), "{answer:?}");
        assert_eq!(arbiter(page).free(NOW).0, RULES.shares);
        assert_eq!(page.granted.load(SeqCst), 0);
    }

    /// A thread that was kept from the processor after it read the clock takes nothing from those
    /// who came meanwhile.
    #[test]
    fn what_was_lent_meanwhile_is_not_free() {
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

    /// Its chunk counts as gone after the lease, and what it gives back then is nobody's loss.
    #[test]
    fn a_lease_ends() {
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

    /// What was pushed first goes first, although the thread of another comes earlier: before the
    /// first chunk, while it is written, between two chunks. What is more urgent waits for none of it.
    #[test]
    fn a_message_has_its_place_until_its_last_chunk_is_posted() {
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

    /// The most urgent one that does not take what is free is passed over, and is the first again
    /// when it comes back.
    #[test]
    fn who_does_not_go_is_passed_over() {
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
