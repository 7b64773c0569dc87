//! Where a thread's time goes (Algorithm 3): running, ready but not running, asleep.

use crate::values::Totals;

/// A time with the sums up to it.
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

/// The account of one thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    state: State,
    since: u64,
    totals: Totals,
    /// From here on its scheduler events are in the recording.
    scheduled: bool,
}

impl Account {
    /// A thread of which nothing is known but that it did something: it runs.
    pub(crate) fn new(time: u64) -> Self {
        Account {
            state: State::Running,
            since: time,
            totals: Totals::default(),
            scheduled: false,
        }
    }

    /// Whether the recording has the thread's scheduler events.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    /// Since when it could run and has no CPU, if it is so.
    pub(crate) fn ready_since(&self) -> Option<u64> {
        (self.state == State::Ready).then_some(self.since)
    }

    /// The thread was made just now: it has not run yet.
    pub(crate) fn created(&mut self, time: u64) {
        self.turn(time, State::Ready);
    }

    /// The thread runs, and its scheduler events are recorded from now on.
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

    /// The sums up to `time`.
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

    /// `at`, with the time.
    pub(crate) fn mark(&self, time: u64) -> Mark {
        Mark {
            time,
            totals: self.at(time),
        }
    }

    /// The thread gets a CPU. True if it had one by the account: when it left that is missing.
    pub(crate) fn switch_in(&mut self, time: u64) -> bool {
        let missing = self.scheduled && self.state == State::Running;
        self.scheduled = true;
        self.turn(time, State::Running);
        missing
    }

    /// The thread leaves its CPU. True if it had none by the account: when it got it is missing.
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

    /// The hypervisor took `stolen_ns` of the time on the CPU up to now: the thread was ready, but
    /// did not run.
    pub(crate) fn stolen(&mut self, time: u64, stolen_ns: u64) {
        if self.state == State::Running {
            let span = time.saturating_sub(self.since);
            self.turn(time, State::Running);
            let stolen_ns = stolen_ns.min(span).min(self.totals.exec_ns);
            self.totals.exec_ns -= stolen_ns;
            self.totals.preempted_ns += stolen_ns;
        }
    }

    /// The thread is made runnable. True if it was asleep.
    pub(crate) fn wake(&mut self, time: u64) -> bool {
        let asleep = self.state == State::Blocked;
        if asleep {
            self.turn(time.max(self.since), State::Ready);
        }
        asleep
    }

    /// The thread did something, so it runs. True if it did not run by the account: when it got
    /// its CPU is missing.
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
    fn what_the_hypervisor_took_is_preemption() {
        let mut account = Account::new(0);
        account.switch_out(100, false);
        // Known only when it gets the CPU: it had been ready since 150.
        assert!(account.wake(150));
        account.switch_in(170);
        let begin = account.mark(200);
        account.stolen(500, 120);
        account.switch_out(700, true);
        account.stolen(800, 50); // not on a CPU: nothing was taken from it
        let spent = account.at(900).since(&begin.totals);
        assert_eq!(spent.exec_ns, 700 - 200 - 120);
        assert_eq!(spent.preempted_ns, 120 + 200);
        assert_eq!(account.at(900).blocked_ns, 50);
        assert_eq!(account.at(900).exec_ns, 100 + (700 - 170) - 120);
    }

    #[test]
    fn each_missing_switch_is_missing_once() {
        let mut account = Account::new(0);
        assert!(!account.switch_in(10), "before it nothing was recorded");
        assert!(!account.switch_out(20, false));
        assert!(account.switch_out(30, true), "it got its CPU in between");
        assert!(account.acted(40));
        assert!(!account.acted(41));
        assert!(account.switch_in(50), "it left its CPU in between");
        assert!(!account.switch_out(60, true));
    }

    #[test]
    fn a_thread_has_not_run_before_it_was_made_to() {
        let mut account = Account::new(0);
        account.created(0);
        assert!(!account.switch_in(30));
        assert_eq!(account.at(50).exec_ns, 20);
        // Without scheduler events it is not known when it began.
        let mut account = Account::new(0);
        account.created(0);
        assert!(!account.acted(30));
        assert!(!account.is_scheduled());
        account.watched(40);
        assert!(account.is_scheduled());
        assert_eq!(account.at(50).exec_ns, 20);
    }

    #[test]
    fn no_more_is_stolen_than_was_run() {
        let mut account = Account::new(0);
        account.switch_in(10);
        account.stolen(30, u64::MAX);
        assert_eq!(account.at(30).exec_ns, 10);
        assert_eq!(account.at(30).preempted_ns, 20);
    }
}
