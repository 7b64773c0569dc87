//! The account of a thread's time (Algorithm 3): running, ready but not running, asleep.
//!
//! The account follows from switch events. The kernel does not report every switch, and a host can
//! take the CPU away. If the recording has the kernel's own account of the CPU time, it corrects
//! the sums ([`Account::cpu_time`]). A gap that remains is a doubt, which [`Totals::doubts`]
//! counts.

use crate::values::Totals;

/// A point in time of a thread, with the sums of the thread's times up to this point: on the CPU,
/// preempted and blocked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    pub(crate) time: u64,
    pub(crate) totals: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ready,
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedFrom {
    /// The CPU time that the kernel reports counts from the moment at which the thread last left a
    /// CPU, or from the previous report if that was later.
    SwitchOut,
    /// The CPU time that the kernel reports counts from the previous report.
    Reading,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    state: State,
    since: u64,
    totals: Totals,
    scheduled: bool,
    /// The recording states that it has no scheduler events of the thread.
    unscheduled: bool,
    /// The sums of the thread's times when it last left a CPU, or when the kernel last reported its
    /// CPU time if that was later.
    at_switch_out: Option<Totals>,
    at_reading: Option<Totals>,
}

impl Account {
    pub(crate) fn new(time: u64) -> Self {
        Account {
            state: State::Running,
            since: time,
            totals: Totals::default(),
            scheduled: false,
            unscheduled: false,
            at_switch_out: None,
            at_reading: None,
        }
    }

    pub(crate) fn doubts(&self) -> u32 {
        self.totals.doubts
    }

    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.state == State::Blocked
    }

    pub(crate) fn ready_since(&self) -> Option<u64> {
        (self.state == State::Ready).then_some(self.since)
    }

    pub(crate) fn created(&mut self, time: u64) {
        self.turn(time, State::Ready);
    }

    pub(crate) fn unwatched(&mut self) {
        self.unscheduled = true;
    }

    /// Reports whether the recording states that it has no scheduler events of the thread. A thread
    /// without events and without this statement counts as running.
    pub(crate) fn is_unscheduled(&self) -> bool {
        self.unscheduled && !self.scheduled
    }

    /// Records that the thread runs, and that its scheduler events are recorded from now on.
    pub(crate) fn watched(&mut self, time: u64) {
        if !self.scheduled {
            self.schedule();
            self.turn(time, State::Running);
        }
    }

    /// Records that scheduler events of the thread begin now. If the recording stated earlier that
    /// the thread has no scheduler events, the thread's earlier times are uncertain, and one doubt
    /// is counted.
    fn schedule(&mut self) {
        if !self.scheduled {
            self.scheduled = true;
            self.doubt(self.unscheduled);
        }
    }

    fn turn(&mut self, time: u64, state: State) {
        self.totals = self.at(time);
        self.since = time;
        self.state = state;
    }

    pub(crate) fn at(&self, time: u64) -> Totals {
        let mut totals = self.totals;
        let span = time.saturating_sub(self.since);
        match self.state {
            State::Running => totals.exec_ns += span,
            State::Ready => totals.preempted_ns += span,
            State::Blocked => totals.blocked_ns += span,
        }
        totals
    }

    pub(crate) fn mark(&self, time: u64) -> Mark {
        Mark {
            time,
            totals: self.at(time),
        }
    }

    /// Counts one doubt about the thread's times if `missing` is set, that is, if an event before
    /// the current one is missing.
    fn doubt(&mut self, missing: bool) {
        if missing && self.scheduled {
            self.totals.doubts = self.totals.doubts.wrapping_add(1);
        }
    }

    /// Records that the thread gets a CPU. If the account shows that the thread already had one,
    /// the event at which it left that CPU is missing.
    pub(crate) fn switch_in(&mut self, time: u64) {
        self.doubt(self.state == State::Running);
        self.schedule();
        self.turn(time, State::Running);
    }

    /// Records that the thread leaves its CPU. If the account shows that the thread had no CPU, the
    /// event at which it got the CPU is missing.
    pub(crate) fn switch_out(&mut self, time: u64, preempted: bool) {
        self.doubt(self.state != State::Running);
        self.schedule();
        if preempted {
            self.turn(time, State::Ready);
            self.totals.preemptions = self.totals.preemptions.wrapping_add(1);
        } else {
            self.turn(time, State::Blocked);
            self.totals.blockings = self.totals.blockings.wrapping_add(1);
        }
        self.at_switch_out = Some(self.totals);
    }

    /// Corrects the sums by `used_ns`, the CPU time that the kernel reports at `time`. The thread
    /// has a CPU at this time. `from` says since when `used_ns` counts.
    ///
    /// The correction closes all gaps since then. If the kernel counted less CPU time than the
    /// account, the difference becomes preempted time.
    pub(crate) fn cpu_time(&mut self, time: u64, used_ns: u64, from: CountedFrom) {
        self.turn(time, State::Running);
        let base = match from {
            CountedFrom::SwitchOut => self.at_switch_out,
            CountedFrom::Reading => self.at_reading,
        };
        if let Some(base) = base {
            let spent = self.totals.since(&base);
            let length_ns = spent.exec_ns + spent.preempted_ns + spent.blocked_ns;
            let exec_ns = used_ns.min(length_ns);
            let blocked_ns = spent.blocked_ns.min(length_ns - exec_ns);
            self.totals.exec_ns = base.exec_ns + exec_ns;
            self.totals.blocked_ns = base.blocked_ns + blocked_ns;
            self.totals.preempted_ns = base.preempted_ns + length_ns - exec_ns - blocked_ns;
            self.totals.doubts = base.doubts;
        }
        self.at_switch_out = Some(self.totals);
        self.at_reading = Some(self.totals);
    }

    /// Moves `stolen_ns` of the latest time on the CPU to the preempted time, because the
    /// hypervisor had the CPU.
    pub(crate) fn stolen(&mut self, time: u64, stolen_ns: u64) {
        if self.state == State::Running {
            let span = time.saturating_sub(self.since);
            self.turn(time, State::Running);
            let stolen_ns = stolen_ns.min(span).min(self.totals.exec_ns);
            self.totals.exec_ns -= stolen_ns;
            self.totals.preempted_ns += stolen_ns;
        }
    }

    /// Records that the thread became runnable. Returns true if it was asleep.
    pub(crate) fn wake(&mut self, time: u64) -> bool {
        let asleep = self.state == State::Blocked;
        if asleep {
            self.turn(time.max(self.since), State::Ready);
        }
        asleep
    }

    /// Records that the thread made a recorded call and therefore runs. Returns true if the account
    /// shows that the thread had no CPU. The event at which it got the CPU is then missing.
    pub(crate) fn acted(&mut self, time: u64) -> bool {
        if self.state == State::Running {
            return false;
        }
        self.doubt(true);
        self.turn(time, State::Running);
        self.scheduled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_taken_by_the_hypervisor_counts_as_preempted() {
        let mut account = Account::new(0);
        account.switch_out(100, false);
        // The thread has been ready since 150. Only its next switch shows that.
        assert!(account.wake(150));
        account.switch_in(170);
        let begin = account.mark(200);
        account.stolen(500, 120);
        account.switch_out(700, true);
        account.stolen(800, 50); // the thread was not on a CPU, so nothing is taken
        let spent = account.at(900).since(&begin.totals);
        assert_eq!(spent.exec_ns, 700 - 200 - 120);
        assert_eq!(spent.preempted_ns, 120 + 200);
        assert_eq!(account.at(900).blocked_ns, 50);
        assert_eq!(account.at(900).exec_ns, 100 + (700 - 170) - 120);
    }

    #[test]
    fn each_missing_switch_is_counted_once() {
        let mut account = Account::new(0);
        account.switch_in(10); // nothing was recorded before
        account.switch_out(20, false);
        assert_eq!(account.doubts(), 0);
        account.switch_out(30, true); // the event of getting its CPU is missing
        assert_eq!(account.doubts(), 1);
        account.acted(40);
        account.acted(41);
        assert_eq!(account.doubts(), 2);
        account.switch_in(50); // the event of leaving its CPU is missing
        assert_eq!(account.doubts(), 3);
        account.switch_out(60, true);
        assert_eq!(account.doubts(), 3);
    }

    fn parts(totals: Totals) -> [u64; 3] {
        [totals.exec_ns, totals.preempted_ns, totals.blocked_ns]
    }

    #[test]
    fn the_kernels_cpu_time_fills_the_gap_of_a_missing_switch() {
        let mut account = Account::new(0);
        account.switch_in(100);
        let begin = account.mark(110);
        account.switch_out(200, true);
        // The switch to the thread is missing. It got its CPU at 500.
        account.cpu_time(900, 400, CountedFrom::SwitchOut);
        let spent = account.at(950).since(&begin.totals);
        assert_eq!(parts(spent), [90 + 400 + 50, 300, 0]);
        assert_eq!(spent.doubts, 0);
        // The same with an event of the thread in between, which shows that it runs.
        account.switch_out(1000, false);
        account.acted(1500);
        let within = account.mark(1500);
        account.cpu_time(1600, 250, CountedFrom::SwitchOut);
        let spent = account.at(1600).since(&begin.totals);
        assert_eq!(parts(spent), [90 + 400 + 100 + 250, 300, 350]);
        assert_eq!(spent.doubts, 0, "all of the gap lies within");
        let spent = account.at(1600).since(&within.totals);
        assert_ne!(spent.doubts, 0, "it begins in the gap");
    }

    #[test]
    fn the_kernels_cpu_time_leaves_out_time_that_a_host_took() {
        let mut account = Account::new(0);
        account.cpu_time(0, 0, CountedFrom::Reading);
        let begin = account.mark(0);
        account.switch_out(300, false);
        account.switch_in(400);
        account.cpu_time(1000, 700, CountedFrom::Reading);
        let spent = account.at(1000).since(&begin.totals);
        assert_eq!(parts(spent), [700, 200, 100]);
        // There is nothing from which the first reading counts.
        let mut account = Account::new(0);
        account.switch_in(100);
        account.cpu_time(200, 5, CountedFrom::SwitchOut);
        assert_eq!(account.at(200).exec_ns, 200);
        // A CPU time never exceeds the length of its stretch.
        account.switch_out(300, false);
        account.switch_in(400);
        account.cpu_time(500, u64::MAX, CountedFrom::SwitchOut);
        assert_eq!(parts(account.at(500)), [500, 0, 0]);
    }

    #[test]
    fn a_new_thread_does_not_run_before_its_first_switch_in() {
        let mut account = Account::new(0);
        account.created(0);
        account.switch_in(30);
        assert_eq!(account.at(50).exec_ns, 20);
        // Without scheduler events, the beginning of the thread's run is unknown.
        let mut account = Account::new(0);
        account.created(0);
        account.acted(30);
        assert_eq!(account.doubts(), 0);
        assert!(!account.is_scheduled());
        account.watched(40);
        assert!(account.is_scheduled());
        assert_eq!(account.at(50).exec_ns, 20);
    }

    #[test]
    fn stolen_time_never_exceeds_the_time_on_the_cpu() {
        let mut account = Account::new(0);
        account.switch_in(10);
        account.stolen(30, u64::MAX);
        assert_eq!(account.at(30).exec_ns, 10);
        assert_eq!(account.at(30).preempted_ns, 20);
    }
}
