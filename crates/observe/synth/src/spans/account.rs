//! The account of a thread's time (Algorithm 3): running, ready but not running, asleep.

use crate::values::Totals;

/// A time of a thread, with the sums of the account up to this time.
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

#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    state: State,
    since: u64,
    totals: Totals,
    scheduled: bool,
}

impl Account {
    /// Starts the account of a thread that runs. Nothing else is known of it.
    pub(crate) fn new(time: u64) -> Self {
        Account {
            state: State::Running,
            since: time,
            totals: Totals::default(),
            scheduled: false,
        }
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

    /// Notes that the thread runs and that its scheduler events are recorded from now on.
    pub(crate) fn watched(&mut self, time: u64) {
        if !self.scheduled {
            self.scheduled = true;
            self.turn(time, State::Running);
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

    /// Notes that the thread gets a CPU. Returns true if the account already has the thread on a
    /// CPU. In this case, the event with which the thread left that CPU is missing.
    pub(crate) fn switch_in(&mut self, time: u64) -> bool {
        let missing = self.scheduled && self.state == State::Running;
        self.scheduled = true;
        self.turn(time, State::Running);
        missing
    }

    /// Notes that the thread leaves its CPU. Returns true if it had none according to the account,
    /// so that the event of getting it is missing.
    pub(crate) fn switch_out(&mut self, time: u64, preempted: bool) -> bool {
        let missing = self.scheduled && self.state != State::Running;
        self.scheduled = true;
        if preempted {
            self.turn(time, State::Ready);
            self.totals.preemptions = self.totals.preemptions.wrapping_add(1);
        } else {
            self.turn(time, State::Blocked);
            self.totals.blockings = self.totals.blockings.wrapping_add(1);
        }
        missing
    }

    /// Moves `stolen_ns` of the latest time on the CPU to the preempted time, because the
    /// hypervisor took it.
    pub(crate) fn stolen(&mut self, time: u64, stolen_ns: u64) {
        if self.state == State::Running {
            let span = time.saturating_sub(self.since);
            self.turn(time, State::Running);
            let stolen_ns = stolen_ns.min(span).min(self.totals.exec_ns);
            self.totals.exec_ns -= stolen_ns;
            self.totals.preempted_ns += stolen_ns;
        }
    }

    /// Notes that the thread became runnable. Returns true if it was asleep.
    pub(crate) fn wake(&mut self, time: u64) -> bool {
        let asleep = self.state == State::Blocked;
        if asleep {
            self.turn(time.max(self.since), State::Ready);
        }
        asleep
    }

    /// Notes that the thread did something and therefore runs. Returns true if it had no CPU
    /// according to the account, so that the event of getting it is missing.
    pub(crate) fn acted(&mut self, time: u64) -> bool {
        if self.state == State::Running {
            return false;
        }
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
        // The thread has been ready since 150, which only its next switch shows.
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
        assert!(!account.switch_in(10), "nothing was recorded before");
        assert!(!account.switch_out(20, false));
        assert!(
            account.switch_out(30, true),
            "the event of getting its CPU is missing"
        );
        assert!(account.acted(40));
        assert!(!account.acted(41));
        assert!(
            account.switch_in(50),
            "the event of leaving its CPU is missing"
        );
        assert!(!account.switch_out(60, true));
    }

    #[test]
    fn a_new_thread_does_not_run_before_its_first_switch_in() {
        let mut account = Account::new(0);
        account.created(0);
        assert!(!account.switch_in(30));
        assert_eq!(account.at(50).exec_ns, 20);
        // Without scheduler events, the beginning of its run is unknown.
        let mut account = Account::new(0);
        account.created(0);
        assert!(!account.acted(30));
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
