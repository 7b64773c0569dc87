//! The goals of rclpy's action servers: each is executed by a task of the executor, after the
//! callback that accepted it, on whatever thread is free. It shows by what it publishes: feedback
//! and the goal's state.
//!
//! The callback that accepts a goal publishes its state and triggers the executor's guard, which
//! makes the task. A task that has published a last state is over; one that has not is suspended
//! when its thread goes on.

use super::account::Mark;
use super::continuation::{Continuation, Goal};
use super::span::CallbackSpan;
use super::{Spans, Why};
use crate::entities::{ActionPart, EntityKind};
use crate::events::{Begin, Ending, Input, MadeBy, Owner, SpanEvent};
use crate::ids::{EntityId, HandId, InstanceId, ProcessIndex, ThreadIndex};
use crate::index::NameId;
use crate::notes::Note;
use crate::values::{Cpus, Release, Totals};
use crate::Context;

/// A task that was made and has not shown yet.
#[derive(Debug, Clone, Copy)]
struct Made {
    action: NameId,
    /// What it was handed; none where it may be another one's.
    hand: Option<HandId>,
}

/// A task that is suspended.
#[derive(Debug, Clone, Copy)]
struct Open {
    goal: Goal,
    instance: InstanceId,
    cpus: Cpus,
    thread: ThreadIndex,
}

/// The goals of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Goals {
    made: Vec<Made>,
    open: Vec<Open>,
    /// Results of goals that were executed, until they are sent.
    results: Vec<(NameId, HandId)>,
}

/// Most tasks that wait, are suspended, or have an unsent result.
const MAX_GOALS: usize = 64;

/// Adds to a list of limited length; the oldest goes.
fn push<T>(list: &mut Vec<T>, item: T) -> Option<T> {
    let oldest = (list.len() >= MAX_GOALS).then(|| list.remove(0));
    list.push(item);
    oldest
}

impl Spans {
    fn goals(&mut self, process: ProcessIndex) -> &mut Goals {
        self.processes[process.index()]
            .goals
            .get_or_insert_default()
    }

    // ---- the callback that accepts a goal

    /// A callback on a thread has published by an endpoint: perhaps the state of a goal.
    pub(super) fn note_goal_state(&mut self, cx: &Context, ti: ThreadIndex, publisher: EntityId) {
        let action = cx.entities.get(publisher).action;
        if action.is_some_and(|a| a.part == ActionPart::Status) {
            let thread = &mut self.threads[ti];
            let runs = thread.span().is_some() && !thread.is_rclcpp();
            thread.calls.goal_state = runs.then_some((publisher, 0));
        }
    }

    /// The executor's guard is triggered once more in a span. The second time after it published
    /// a goal's state, it has ended, and the first time it has made a task.
    pub(super) fn note_goal(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        span: &CallbackSpan,
        time: u64,
    ) {
        let Some((publisher, triggers)) = &mut self.threads[ti].calls.goal_state else {
            return;
        };
        *triggers += 1;
        let (publisher, triggers) = (*publisher, *triggers);
        if triggers < 2 {
            return;
        }
        self.threads[ti].calls.goal_state = None;
        let of = |e: EntityId| cx.entities.get(e).action;
        let goal = span.entity.and_then(of);
        let goal = goal.filter(|a| a.part == ActionPart::Goal);
        let (Some(goal), Some(instance)) = (goal, span.instance) else {
            return;
        };
        if of(publisher).map(|a| a.action) != Some(goal.action) {
            return;
        }
        let hand = self.new_hand();
        self.out.push(SpanEvent::Hand {
            instance,
            hand,
            time,
        });
        let made = Made {
            action: goal.action,
            hand: Some(hand),
        };
        let process = self.threads[ti].process;
        push(&mut self.goals(process).made, made);
    }

    // ---- the task

    /// The owner of a publication by `endpoint`, where it is of an action's server and no callback
    /// runs on the thread: the task that executes the goal.
    pub(super) fn goal_owner(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        endpoint: Option<EntityId>,
    ) -> Option<Owner> {
        let thread = &self.threads[ti];
        let running = thread.continuation().and_then(|c| c.goal);
        let endpoint = endpoint?;
        let it = cx.entities.get(endpoint);
        let action = it.action.filter(|_| it.kind() == EntityKind::Publisher);
        if action.is_none() && running.is_none() {
            return None;
        }
        let inside = |span: &CallbackSpan| span.triggered().is_none();
        if thread.is_rclcpp() || !thread.outer().is_empty() || thread.span().is_some_and(inside) {
            return None;
        }
        let goes_on = match (running, action) {
            (Some(goal), Some(action)) => goal.action == action.action && !goal.done,
            (Some(_), None) => self.is_within_goal(cx, ti, endpoint),
            (None, _) => false,
        };
        if !goes_on {
            self.leave_for_goal(cx, ti, time);
            let action = action?.action;
            if !self.start_goal(cx, ti, time, (endpoint, action)) {
                // Nobody who waits for a response publishes this.
                return Some(Owner::Outside);
            }
        }
        let thread = &mut self.threads[ti];
        let now = thread.account.mark(time);
        thread.sleeps.restart(&now);
        let continuation = thread.continuation_mut()?;
        (continuation.last_publication, continuation.trigger) = (now, None);
        let instance = continuation.instance;
        let goal = continuation.goal.as_mut()?;
        let ends = action.is_some_and(|a| a.part == ActionPart::Status);
        if ends && !std::mem::replace(&mut goal.done, true) {
            self.finish_goal(ti, instance, time);
        }
        Some(Owner::Instance(instance))
    }

    /// Whether the task on a thread publishes by another endpoint than its action's.
    fn is_within_goal(&self, cx: &Context, ti: ThreadIndex, endpoint: EntityId) -> bool {
        let thread = &self.threads[ti];
        let Some(task) = thread.continuation() else {
            return false;
        };
        let node = |e| cx.entities.node_of_entity(e);
        let slept = || thread.sleeps.since(task.last_publication.time).is_some();
        let over = task.goal.is_some_and(|g| g.done) && (task.trigger.is_some() || slept());
        !over && node(endpoint) == node(task.entity)
    }

    /// A goal is executed on a thread from now on: what ran there before is over.
    fn leave_for_goal(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        if let Some(task) = self.threads[ti].continuation() {
            // What follows its last publication may be the next one's already.
            let last = task.last_publication;
            let to = task.trigger.or_else(|| self.slept_since(ti, last));
            let to = to.unwrap_or(last);
            self.end_continuation(ti, to);
            let rounds = &mut self.threads[ti].rounds;
            (rounds.last_act, rounds.last_trigger) = (Some(to), Some(to));
        }
        let Some(span) = self.threads[ti].take_span() else {
            return;
        };
        if !self.waits_for_response(cx, ti, &span) {
            self.close(cx, ti, span, time, Why::Executor);
        } else if !self.is_awaited(ti, &span) {
            self.push_pending(ti, &span);
        } else {
            self.threads[ti].put_span(span);
        }
    }

    /// Begins the task that executes a goal, or lets the one that is suspended go on. False where
    /// none was accepted: it is not the executor that publishes.
    fn start_goal(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        (endpoint, action): (EntityId, NameId),
    ) -> bool {
        let thread = &self.threads[ti];
        let process = thread.process;
        if self.processes[process.index()].goals.is_none() {
            return false;
        }
        let up = thread.sleeps.up().filter(|_| !thread.waits);
        let now = thread.account.mark(time);
        let from = up.or(thread.rounds.last_act).unwrap_or(now);
        let entity = cx.entities.goal_task(endpoint, action);
        let goals = self.goals(process);
        let mut cpus = Cpus::default();
        let (instance, earlier);
        if let Some(at) = goals.made.iter().position(|m| m.action == action) {
            let hand = goals.made.remove(at).hand;
            let mut others = goals.made.iter_mut().filter(|m| m.action == action);
            let doubt = others.next().map(|other| other.hand = None).is_some();
            others.for_each(|other| other.hand = None);
            let hand = hand.filter(|_| !doubt);
            instance = self.begin_goal(ti, entity, from, hand);
            earlier = Totals::default();
            if hand.is_none() {
                cx.notes.count(Note::UnknownGoal(action), 1);
            }
        } else {
            let mut open = goals.open.iter().enumerate();
            let mut open = open.by_ref().filter(|(_, o)| o.goal.action == action);
            let (Some((at, _)), None) = (open.next(), open.next()) else {
                // None, or one of several.
                return false;
            };
            let open = goals.open.remove(at);
            (instance, earlier, cpus) = (open.instance, open.goal.earlier, open.cpus);
        }
        self.is_of_executor(ti, time);
        self.threads[ti].put_continuation(Continuation {
            entity,
            instance,
            cpus,
            alone: false,
            from,
            last_publication: from,
            trigger: None,
            asked: false,
            goal: Some(Goal {
                action,
                earlier,
                done: false,
            }),
        });
        true
    }

    fn begin_goal(
        &mut self,
        ti: ThreadIndex,
        entity: EntityId,
        from: Mark,
        hand: Option<HandId>,
    ) -> InstanceId {
        let instance = self.instances.next();
        self.out.push(SpanEvent::Begin(Begin {
            instance,
            entity,
            start: from.time,
            thread: self.threads[ti].id,
            input: hand.map_or(Input::Untold, |hand| Input::Made { hand }),
            idle: None,
            release: Release::Unknown,
        }));
        instance
    }

    /// A task has published its goal's last state: its result is there.
    fn finish_goal(&mut self, ti: ThreadIndex, instance: InstanceId, time: u64) {
        let hand = self.new_hand();
        self.out.push(SpanEvent::Hand {
            instance,
            hand,
            time,
        });
        let thread = &self.threads[ti];
        let process = thread.process;
        let action = thread.continuation().and_then(|c| c.goal).map(|g| g.action);
        if let Some(action) = action {
            push(&mut self.goals(process).results, (action, hand));
        }
    }

    /// A service responds: with the result of a goal, if it is an action's and not its own
    /// callback runs.
    pub(super) fn result_of_goal(
        &mut self,
        cx: &Context,
        ti: ThreadIndex,
        service: EntityId,
    ) -> MadeBy {
        let Some(action) = cx.entities.get(service).action else {
            return MadeBy::Service;
        };
        let thread = &self.threads[ti];
        let inside =
            |span: &CallbackSpan| span.entity == Some(service) && span.triggered().is_none();
        if action.part != ActionPart::Result || thread.span().is_some_and(inside) {
            return MadeBy::Service;
        }
        let process = thread.process.index();
        let Some(goals) = self.processes[process].goals.as_deref_mut() else {
            return MadeBy::Service;
        };
        let results = &mut goals.results;
        let mut own = results.iter().filter(|r| r.0 == action.action);
        let (first, others) = (own.next().map(|r| r.1), own.count());
        results.retain(|r| r.0 != action.action);
        match first.filter(|_| others == 0) {
            Some(hand) => MadeBy::Handed(hand),
            None => MadeBy::Unknown,
        }
    }

    // ---- ends

    /// What a thread ran of a task ends: the task itself, unless its goal has not.
    pub(super) fn end_goal_stretch(&mut self, ti: ThreadIndex, task: &Continuation, to: Mark) {
        let Some(mut goal) = task.goal else {
            return;
        };
        let spent = to.totals.since(&task.from.totals).plus(&goal.earlier);
        if goal.done {
            self.end(
                ti,
                task.instance,
                (to.time, spent),
                Ending::Inferred,
                task.cpus,
            );
            return;
        }
        goal.earlier = spent;
        let open = Open {
            goal,
            instance: task.instance,
            cpus: task.cpus,
            thread: ti,
        };
        let process = self.threads[ti].process;
        if let Some(oldest) = push(&mut self.goals(process).open, open) {
            self.end_open_goal(&oldest, to.time, Ending::Aborted);
        }
    }

    fn end_open_goal(&mut self, open: &Open, time: u64, how: Ending) {
        let end = (time, open.goal.earlier);
        self.end(open.thread, open.instance, end, how, open.cpus);
    }

    /// Ends what is suspended in a process.
    pub(super) fn end_goals(&mut self, process: ProcessIndex, time: u64, how: Ending) {
        let goals = self.processes[process.index()].goals.take();
        for open in goals.into_iter().flat_map(|goals| goals.open) {
            self.end_open_goal(&open, time, how);
        }
    }
}
