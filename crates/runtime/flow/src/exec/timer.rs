//! A one-shot timer as an input of a task: a watchdog or a time-out. The functions are pure: the
//! time is an argument.

/// The event from which a one-shot timer counts. Each execution of its task cancels the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerStart {
    /// The task's start, and the end of each execution. This makes a watchdog: it runs the task if
    /// nothing else has run the task for the delay.
    Completion,
    /// The first unused item at the input with this number. This makes a time-out, for example for
    /// a request whose answer comes at another input.
    Item(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Timer {
    delay_ns: u64,
    start: TimerStart,
    due_ns: Option<u64>,
}

impl Timer {
    pub(crate) fn new(delay_ns: u64, start: TimerStart) -> Timer {
        Timer {
            delay_ns,
            start,
            due_ns: None,
        }
    }

    pub(crate) fn is_set_by(&self, input: usize) -> bool {
        self.start == TimerStart::Item(input)
    }

    fn is_wanted(&self, arrived: &[u32]) -> bool {
        match self.start {
            TimerStart::Completion => true,
            TimerStart::Item(input) => arrived[input] > 0,
        }
    }

    /// Sets the timer when its start event ([`TimerStart`]) has occurred. Cancels the timer if this
    /// event no longer applies. Real-time safe.
    #[inline]
    pub(crate) fn observe(&mut self, now_ns: u64, arrived: &[u32]) {
        if !self.is_wanted(arrived) {
            self.due_ns = None;
        } else if self.due_ns.is_none() {
            self.due_ns = Some(now_ns.saturating_add(self.delay_ns));
        }
    }

    #[inline]
    pub(crate) fn cancel(&mut self) {
        self.due_ns = None;
    }

    #[inline]
    pub(crate) fn has_fired(&self, now_ns: u64) -> bool {
        self.due_ns.is_some_and(|due| due <= now_ns)
    }

    /// Returns when the timer fires, in ns. If the timer is not set, returns when it would fire if
    /// it were set now. Returns `None` if its start event ([`TimerStart`]) has not occurred.
    pub(crate) fn due_ns(&self, now_ns: u64, arrived: &[u32]) -> Option<u64> {
        let due = self.due_ns;
        let due = due.unwrap_or_else(|| now_ns.saturating_add(self.delay_ns));
        self.is_wanted(arrived).then_some(due)
    }
}
