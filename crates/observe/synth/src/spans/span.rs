//! One callback span: an execution of a callback that has begun, or is about to, and has not
//! ended.

use super::account::Mark;
use crate::events::Input;
use crate::ids::{DecisionId, EntityId, InstanceId};
use crate::values::{Cpus, Release, Totals};

/// A callback span on a thread.
#[derive(Debug, Clone)]
pub(super) struct CallbackSpan {
    /// Unknown for a ring buffer of an unknown subscription.
    pub(super) entity: Option<EntityId>,
    pub(super) input: Input,
    /// When the timer was due.
    pub(super) release: Release,
    /// Set once [`SpanEvent::Begin`](crate::events::SpanEvent) has been sent.
    pub(super) instance: Option<InstanceId>,
    pub(super) from: Mark,
    /// Its own times before `from`'s sums: those before another callback ran within it.
    pub(super) earlier: Totals,
    pub(super) cpus: Cpus,
    pub(super) bounds: Bounds,
}

/// How the start and end of a span are known.
///
/// A span lies in its thread, of which there are few; a box would cost an allocation per span.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub(super) enum Bounds {
    /// By `callback_start` and `callback_end`.
    Exact(Exact),
    /// From what the executor does before and after.
    Inferred(Inferred),
}

/// A span with events of its own.
#[derive(Debug, Clone)]
pub(super) struct Exact {
    /// The callback's address.
    pub(super) callback: u64,
    /// An executor did something since it began: it runs one itself, or was left by an exception.
    pub(super) spins: bool,
    /// Names the undecided owner of publications after that.
    pub(super) undecided: Option<DecisionId>,
}

/// What is known of a span without events of its own: it began with the read of an entity, or
/// the call of a timer.
#[derive(Debug, Clone)]
pub(super) struct Inferred {
    /// Ring buffer that the input came from.
    pub(super) buffer: Option<u64>,
    /// Inside `execute_client`, so that its return is the exact end.
    pub(super) client_call: bool,
    /// When it sent its response, which a client library does right after the callback.
    pub(super) responded: Option<Mark>,
    pub(super) triggers: Triggers,
    /// What rclpy took with its input, for the same execution.
    pub(super) with: Vec<Together>,
}

/// What rclpy took together with the input of a span: an action has one callback for all of its
/// endpoints on a side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Together {
    pub(super) entity: EntityId,
    pub(super) input: Input,
}

/// Triggers of the executor's guard condition since the read.
#[derive(Debug, Clone)]
pub(super) enum Triggers {
    None,
    /// One trigger, at the span's `from`: rclpy's before the callback, or a pool's after it.
    Once {
        guard: u64,
        /// When the entity was read.
        opened: Mark,
    },
    /// Two or more: rclpy's callback ran from the first to the last.
    Several(Triggered),
}

/// Two or more triggers of rclpy's guard.
#[derive(Debug, Clone)]
pub(super) struct Triggered {
    pub(super) guard: u64,
    pub(super) last: Mark,
    /// Longest time between two triggers after the first: where code that waited for a response
    /// ran.
    pub(super) longest: Option<(Mark, Mark)>,
    /// Names the undecided owner of publications after the last trigger.
    pub(super) undecided: Option<DecisionId>,
    /// The response is already among those that code waits for.
    pub(super) pushed: bool,
}

impl CallbackSpan {
    /// Starts a span at the read of its entity.
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

    /// Its own times from its beginning to a mark.
    pub(super) fn spent(&self, to: &Mark) -> Totals {
        to.totals.since(&self.from.totals).plus(&self.earlier)
    }

    /// Another callback runs within it from now on.
    pub(super) fn pause(&mut self, now: &Mark) {
        self.earlier = self.spent(now);
        self.from.totals = now.totals;
    }

    /// It goes on.
    pub(super) fn resume(&mut self, now: &Mark) {
        self.from.totals = now.totals;
    }

    pub(super) fn is_exact(&self) -> bool {
        matches!(self.bounds, Bounds::Exact(_))
    }

    /// Whether only the read of its input is known yet.
    pub(super) fn is_read_only(&self) -> bool {
        self.instance.is_none() && !self.is_exact()
    }

    /// Whether it may be what a callback that waits took itself, and no callback runs on it.
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

    /// Whether it is the callback of this address, by its own events.
    pub(super) fn is_callback(&self, callback: u64) -> bool {
        self.exact().is_some_and(|e| e.callback == callback)
    }

    /// The single trigger so far: its guard, and when the entity was read.
    pub(super) fn once(&self) -> Option<(u64, Mark)> {
        match &self.bounds {
            Bounds::Inferred(Inferred {
                triggers: Triggers::Once { guard, opened },
                ..
            }) => Some((*guard, *opened)),
            _ => None,
        }
    }

    /// When its entity was read, if one trigger came since.
    pub(super) fn opened(&self) -> Option<Mark> {
        self.once().map(|once| once.1)
    }

    /// It is the handling of a response that is kept: its execution is the code that waits for it.
    pub(super) fn is_kept(&self) -> bool {
        self.instance.is_none() && self.triggered().is_some_and(|t| t.pushed)
    }

    /// The triggers of rclpy's executor, once there are two.
    pub(super) fn triggered(&self) -> Option<&Triggered> {
        match &self.bounds {
            Bounds::Inferred(Inferred {
                triggers: Triggers::Several(triggered),
                ..
            }) => Some(triggered),
            _ => None,
        }
    }

    /// Two triggers of a guard: the callback ran until the last one.
    pub(super) fn set_triggered(&mut self, guard: u64, last: Mark) {
        if let Some(inferred) = self.inferred_mut() {
            inferred.triggers = Triggers::Several(Triggered {
                guard,
                last,
                longest: None,
                undecided: None,
                pushed: false,
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

    /// Takes the undecided owner of its last publications.
    pub(super) fn take_undecided(&mut self) -> Option<DecisionId> {
        match &mut self.bounds {
            Bounds::Exact(exact) => exact.undecided.take(),
            Bounds::Inferred(_) => self.triggered_mut()?.undecided.take(),
        }
    }
}

/// Of two stretches of a thread, the one with more time on the CPU.
pub(super) fn longer(best: Option<(Mark, Mark)>, from: Mark, to: Mark) -> Option<(Mark, Mark)> {
    let exec = |m: &(Mark, Mark)| m.1.totals.since(&m.0.totals).exec_ns;
    match best {
        Some(b) if exec(&b) >= exec(&(from, to)) => Some(b),
        _ => Some((from, to)),
    }
}
