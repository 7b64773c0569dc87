//! The goals of rclpy's action servers. A task of the executor executes each goal after the
//! callback that accepted it, on any free thread. The task is recognised by its publications:
//! feedback and the state of the goal.
//!
//! The callback that accepts a goal publishes the goal's state and triggers the executor's guard,
//! which makes the task. A task is over when it has published a final state. Otherwise it is
//! suspended when its thread continues with something else.

use super::account::Mark;
use super::continuation::{Continuation, Goal, Times};
use super::span::CallbackSpan;
use super::{CloseReason, Spans};
use crate::entities::{ActionPart, EntityKind};
use crate::events::{Begin, Ending, Input, MadeBy, Owner, SpanEvent};
use crate::ids::{EntityId, HandId, InstanceId, ProcessIndex, ThreadIndex};
use crate::index::NameId;
use crate::notes::Note;
use crate::values::{Cpus, Release, Totals};
use crate::Context;

#[derive(Debug, Clone, Copy)]
struct Made {
    action: NameId,
    /// The number of the data that the callback handed to the task when it accepted the goal.
    /// `None` if the data may be meant for another goal's task.
    hand: Option<HandId>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    goal: Goal,
    instance: InstanceId,
    cpus: Cpus,
    thread: ThreadIndex,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Goals {
    made: Vec<Made>,
    open: Vec<Open>,
    unsent_results: Vec<(NameId, HandId)>,
}

/// The maximum number per process of tasks that wait to begin, of suspended tasks, and of results
/// that are not sent yet.
const MAX_GOALS: usize = 64;

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

    /// Records that a callback has published by `publisher`. If the publication is the state of a
    /// goal, the executor's triggers of its guard condition are counted from now on.
    pub(super) fn note_goal_state(&mut self, cx: &Context, ti: ThreadIndex, publisher: EntityId) {
        let action = cx.entities.get(publisher).action;
        if action.is_some_and(|a| a.part == ActionPart::Status) {
            let thread = &mut self.threads[ti];
            let runs = thread.span().is_some() && !thread.is_rclcpp();
            thread.calls.goal_state = runs.then_some((publisher, 0));
        }
    }

    /// Records one more trigger of the executor's guard condition in a span. After a goal's state
    /// was published, the first trigger creates a task, and the second one ends the callback.
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
        self.new_events.push(SpanEvent::Hand {
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

    /// Returns the task that owns a publication by `endpoint`, if this is an endpoint of an
    /// action's server and no callback runs on the thread.
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
                // Code that waits for a response does not publish by this endpoint.
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

    fn leave_for_goal(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        if let Some(task) = self.threads[ti].continuation() {
            // The code after the last publication may already belong to the next task.
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
            self.close(cx, ti, span, time, CloseReason::ExecutorWentOn);
        } else if !self.is_awaited(ti, &span) {
            self.push_pending(ti, &span);
        } else {
            self.threads[ti].put_span(span);
        }
    }

    /// Begins the task that executes an accepted goal, or continues the suspended task. Returns
    /// false if the task does not exist, or if several tasks of the action are suspended.
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
                // No task is suspended, or it is unknown which one continues.
                return false;
            };
            let open = goals.open.remove(at);
            (instance, earlier, cpus) = (open.instance, open.goal.earlier, open.cpus);
        }
        self.note_executor(ti, time);
        self.threads[ti].put_continuation(Continuation {
            entity,
            instance,
            cpus,
            times: Times::Beside,
            from,
            last_publication: from,
            trigger: None,
            asked_for_result: false,
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
        self.new_events.push(SpanEvent::Begin(Begin {
            instance,
            entity,
            start: from.time,
            thread: self.threads[ti].id,
            input: hand.map_or(Input::Ambiguous, |hand| Input::Made { hand }),
            idle: None,
            release: Release::Unknown,
        }));
        instance
    }

    fn finish_goal(&mut self, ti: ThreadIndex, instance: InstanceId, time: u64) {
        let hand = self.new_hand();
        self.new_events.push(SpanEvent::Hand {
            instance,
            hand,
            time,
        });
        let thread = &self.threads[ti];
        let process = thread.process;
        let action = thread.continuation().and_then(|c| c.goal).map(|g| g.action);
        if let Some(action) = action {
            push(&mut self.goals(process).unsent_results, (action, hand));
        }
    }

    /// Returns what produced a response of `service`: a goal if the service carries an action's
    /// results and the service's own callback does not run, otherwise the service's callback.
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
        let results = &mut goals.unsent_results;
        let mut own = results.iter().filter(|r| r.0 == action.action);
        let (first, others) = (own.next().map(|r| r.1), own.count());
        results.retain(|r| r.0 != action.action);
        match first.filter(|_| others == 0) {
            Some(hand) => MadeBy::Handed(hand),
            None => MadeBy::Unknown,
        }
    }

    // ---- ends

    /// Ends the current part of a task's execution at `to`. If the task's goal is done, the task
    /// ends; otherwise it is suspended.
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

    pub(super) fn end_goals(&mut self, process: ProcessIndex, time: u64, how: Ending) {
        let goals = self.processes[process.index()].goals.take();
        for open in goals.into_iter().flat_map(|goals| goals.open) {
            self.end_open_goal(&open, time, how);
        }
    }
}
