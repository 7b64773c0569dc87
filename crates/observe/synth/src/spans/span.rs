//! The callback span: an execution of a callback that has begun, or is about to, and has not ended.

use super::account::Mark;
use crate::events::Input;
use crate::ids::{DecisionId, EntityId, InstanceId};
use crate::values::{Cpus, Release, Totals};

#[derive(Debug, Clone)]
pub(super) struct CallbackSpan {
    /// The entity from which the thread read. `None` for a ring buffer whose subscription is
    /// unknown.
    pub(super) entity: Option<EntityId>,
    pub(super) input: Input,
    pub(super) release: Release,
    pub(super) instance: Option<InstanceId>,
    pub(super) from: Mark,
    /// The times that the callback spent before `from`. They are kept here because `from` is set
    /// anew after each nested callback.
    pub(super) earlier: Totals,
    pub(super) cpus: Cpus,
    pub(super) bounds: Bounds,
}

/// The events from which the start and end of a span are known.
///
/// The variants are not boxed, because a box would cost one allocation per span. Unboxed spans are
/// stored in their threads, and there are few threads.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub(super) enum Bounds {
    /// The client library reports start and end with `callback_start` and `callback_end`.
    Exact(Exact),
    /// Start and end follow from the executor's calls before and after the callback.
    Inferred(Inferred),
}

#[derive(Debug, Clone)]
pub(super) struct Exact {
    pub(super) callback: u64,
    /// The executor on the thread has made calls since the callback began. Either the callback runs
    /// this executor itself, or an exception ended the callback.
    pub(super) spins: bool,
    /// The time of the executor's first call since the callback began, and the callback's own times
    /// until then.
    pub(super) left: Option<(Mark, Totals)>,
    /// The number of a decision that is still open: which callback made the publications after the
    /// executor's first call within this callback.
    pub(super) undecided: Option<DecisionId>,
}

/// The data of a span without start and end events. The span begins when an entity is read or a
/// timer is called.
#[derive(Debug, Clone)]
pub(super) struct Inferred {
    pub(super) buffer: Option<u64>,
    /// The thread is inside `execute_client`, whose return is the exact end of the callback.
    pub(super) client_call: bool,
    /// The time at which the callback's response was sent. A client library sends it right after
    /// the callback.
    pub(super) responded: Option<Mark>,
    pub(super) triggers: Triggers,
    pub(super) taken_together: Vec<Together>,
}

/// An input that rclpy took together with the input of a span. The server and the client of an
/// action each have one callback for all endpoints of the action.
#[derive(Debug, Clone, Copy)]
pub(super) struct Together {
    pub(super) entity: EntityId,
    pub(super) input: Input,
}

#[derive(Debug, Clone)]
pub(super) enum Triggers {
    None,
    /// A guard condition was triggered once, at the time `from` of the span. rclpy triggers it
    /// before the callback. Another pool of threads triggers it after the callback.
    Once {
        guard: u64,
        read_at: Mark,
    },
    /// A guard condition was triggered at least twice. In rclpy, the callback ran from the first to
    /// the last trigger.
    Several(Triggered),
}

#[derive(Debug, Clone)]
pub(super) struct Triggered {
    pub(super) guard: u64,
    pub(super) last: Mark,
    /// The longest interval between two successive triggers, except the one from the first to the
    /// second. Code that waited for a response ran in this interval.
    pub(super) longest: Option<(Mark, Mark)>,
    pub(super) undecided: Option<DecisionId>,
    pub(super) is_pending: bool,
    /// The callback's work on its worker seems to have ended: the worker waited for work after the
    /// trigger `last`, so later triggers belong to other work. A later trigger that follows a
    /// publication of the callback resets this flag.
    pub(super) is_over: bool,
    pub(super) more: u8,
}

impl CallbackSpan {
    pub(super) fn read(
        entity: Option<EntityId>,
        input: Input,
        release: Release,
        at: Mark,
        cpu: u16,
        inferred: Inferred,
    ) -> Self {
        let mut cpus = Cpus::default();
        cpus.add(cpu);
        CallbackSpan {
            entity,
            input,
            release,
            instance: None,
            from: at,
            earlier: Totals::default(),
            cpus,
            bounds: Bounds::Inferred(inferred),
        }
    }

    pub(super) fn spent(&self, to: &Mark) -> Totals {
        to.totals.since(&self.from.totals).plus(&self.earlier)
    }

    pub(super) fn pause(&mut self, now: &Mark) {
        self.earlier = self.spent(now);
        self.from.totals = now.totals;
    }

    pub(super) fn resume(&mut self, now: &Mark) {
        self.from.totals = now.totals;
    }

    pub(super) fn is_exact(&self) -> bool {
        matches!(self.bounds, Bounds::Exact(_))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.instance.is_none() && !self.is_exact()
    }

    /// Reports whether a callback that waits for nested callbacks may have taken this input itself.
    /// In this case, no other callback runs on the input.
    pub(super) fn may_be_own(&self) -> bool {
        let client_call = matches!(&self.bounds, Bounds::Inferred(i) if i.client_call);
        self.is_read_only() && !client_call
    }

    pub(super) fn inferred_mut(&mut self) -> Option<&mut Inferred> {
        match &mut self.bounds {
            Bounds::Exact(_) => None,
            Bounds::Inferred(inferred) => Some(inferred),
        }
    }

    pub(super) fn exact(&self) -> Option<&Exact> {
        match &self.bounds {
            Bounds::Exact(exact) => Some(exact),
            Bounds::Inferred(_) => None,
        }
    }

    pub(super) fn exact_mut(&mut self) -> Option<&mut Exact> {
        match &mut self.bounds {
            Bounds::Exact(exact) => Some(exact),
            Bounds::Inferred(_) => None,
        }
    }

    pub(super) fn is_callback(&self, callback: u64) -> bool {
        self.exact().is_some_and(|e| e.callback == callback)
    }

    /// Returns the guard condition and the mark at which the entity was read, if exactly one
    /// trigger of the span was seen so far.
    pub(super) fn once(&self) -> Option<(u64, Mark)> {
        match &self.bounds {
            Bounds::Inferred(Inferred {
                triggers: Triggers::Once { guard, read_at },
                ..
            }) => Some((*guard, *read_at)),
            _ => None,
        }
    }

    pub(super) fn read_at(&self) -> Option<Mark> {
        self.once().map(|once| once.1)
    }

    /// Reports whether this span is only rclpy's handling of a response for which other code waits.
    /// That code, and not this span, counts as the client's execution.
    pub(super) fn is_kept(&self) -> bool {
        self.instance.is_none() && self.triggered().is_some_and(|t| t.is_pending)
    }

    pub(super) fn triggered(&self) -> Option<&Triggered> {
        match &self.bounds {
            Bounds::Inferred(Inferred {
                triggers: Triggers::Several(triggered),
                ..
            }) => Some(triggered),
            _ => None,
        }
    }

    pub(super) fn set_triggered(&mut self, guard: u64, last: Mark) {
        if let Some(inferred) = self.inferred_mut() {
            inferred.triggers = Triggers::Several(Triggered {
                guard,
                last,
                longest: None,
                undecided: None,
                is_pending: false,
                is_over: false,
                more: 1,
            });
        }
    }

    pub(super) fn triggered_mut(&mut self) -> Option<&mut Triggered> {
        match &mut self.bounds {
            Bounds::Inferred(Inferred {
                triggers: Triggers::Several(triggered),
                ..
            }) => Some(triggered),
            _ => None,
        }
    }

    pub(super) fn take_undecided(&mut self) -> Option<DecisionId> {
        match &mut self.bounds {
            Bounds::Exact(exact) => exact.undecided.take(),
            Bounds::Inferred(_) => self.triggered_mut()?.undecided.take(),
        }
    }
}

/// Returns the one of two intervals of a thread in which the thread used more CPU time: `best`, or
/// the interval between `from` and `to`.
pub(super) fn longer(best: Option<(Mark, Mark)>, from: Mark, to: Mark) -> Option<(Mark, Mark)> {
    let exec = |m: &(Mark, Mark)| m.1.totals.since(&m.0.totals).exec_ns;
    match best {
        Some(b) if exec(&b) >= exec(&(from, to)) => Some(b),
        _ => Some((from, to)),
    }
}
