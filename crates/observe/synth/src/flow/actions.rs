//! Counts the goals, cancellations, results and feedback messages of actions, and measures how long
//! each goal took. A client asks for a result in the callback that the answer to a goal started:
//! the result belongs to this goal.

use super::Flow;
use crate::entities::ActionPart;
use crate::events::{Begin, Input, Owner, Publication, Request};
use crate::ids::{EntityId, InstanceId, ProcessIndex};
use crate::index::NameId;
use crate::marks::Marks;
use crate::mode_rules::PerMode;
use crate::Context;
use onbeat_document::schema::ActionFigures;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy)]
struct Goal {
    action: NameId,
    process: ProcessIndex,
    client: EntityId,
    sequence: i64,
    sent: u64,
    answered_by: Option<InstanceId>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    client: EntityId,
    sequence: i64,
    goal_sent: Option<u64>,
}

/// The maximum number of goals that wait for their results, and of requests for results that wait
/// for a response. Rejected goals never get a result, so they are dropped only by this limit.
const MAX_WAITING: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(crate) struct Actions {
    pub(crate) figures: BTreeMap<NameId, PerMode<ActionFigures>>,
    goals: Vec<Goal>,
    asked: Vec<Asked>,
}

fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() >= MAX_WAITING {
        list.remove(0);
    }
    list.push(item);
}

impl Actions {
    pub(super) fn forget_clients(&mut self, freed: &Marks) {
        self.goals.retain(|goal| !freed.has(goal.client.index()));
        self.asked.retain(|asked| !freed.has(asked.client.index()));
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        for goal in &self.goals {
            names.add(goal.action.index());
        }
    }

    fn asked_for(&mut self, action: NameId, process: ProcessIndex, owner: Owner) -> Option<u64> {
        let of_action = |g: &Goal| g.action == action && g.process == process;
        let by_answer = |g: &Goal| match owner {
            Owner::Instance(i) => of_action(g) && g.answered_by == Some(i),
            _ => false,
        };
        let at = self.goals.iter().position(by_answer).or_else(|| {
            // Another callback asked for the result. The goal is certain only if there is a single
            // one.
            let mut all = self.goals.iter().enumerate().filter(|(_, g)| of_action(g));
            let (at, _) = all.next()?;
            all.next().is_none().then_some(at)
        })?;
        Some(self.goals.remove(at).sent)
    }
}

impl Flow {
    pub(super) fn action_request(&mut self, cx: &Context, request: &Request, owner: Owner) {
        let it = cx.entities.get(request.client);
        let Some(of) = it.action else {
            return;
        };
        let actions = &mut self.ways.services.actions;
        let mode = self.graph.switches.at(request.time);
        let figures = actions.figures.entry(of.action).or_default().of(mode);
        match of.part {
            ActionPart::Goal => {
                figures.goals += 1;
                let goal = Goal {
                    action: of.action,
                    process: it.process,
                    client: request.client,
                    sequence: request.sequence,
                    sent: request.time,
                    answered_by: None,
                };
                push(&mut actions.goals, goal);
            }
            ActionPart::Cancel => figures.cancels += 1,
            ActionPart::Result => {
                let asked = Asked {
                    client: request.client,
                    sequence: request.sequence,
                    goal_sent: actions.asked_for(of.action, it.process, owner),
                };
                push(&mut actions.asked, asked);
            }
            ActionPart::Feedback | ActionPart::Status => {}
        }
    }

    pub(super) fn action_begin(&mut self, cx: &Context, begin: &Begin) {
        let Some(of) = cx.entities.get(begin.entity).action else {
            return;
        };
        let actions = &mut self.ways.services.actions;
        let mode = self.graph.switches.at(begin.start);
        let figures = actions.figures.entry(of.action).or_default().of(mode);
        match (of.part, begin.input) {
            (ActionPart::Goal, Input::Request { .. }) => figures.served += 1,
            (ActionPart::Goal, Input::Response { sequence, .. }) => {
                let mut goals = actions.goals.iter_mut();
                let own = |g: &&mut Goal| g.client == begin.entity && g.sequence == sequence;
                if let Some(goal) = goals.find(own) {
                    goal.answered_by = Some(begin.instance);
                }
            }
            (ActionPart::Result, Input::Response { sequence, at }) => {
                figures.results += 1;
                let own = |a: &Asked| a.client == begin.entity && a.sequence == sequence;
                let asked = actions.asked.iter().position(own);
                match asked.and_then(|i| actions.asked.remove(i).goal_sent) {
                    Some(sent) => figures.goal_to_result_ns.record(at.saturating_sub(sent)),
                    None => figures.untimed += 1,
                }
            }
            _ => {}
        }
    }

    pub(super) fn action_publish(&mut self, cx: &Context, publication: &Publication) {
        if let Some(of) = cx.entities.get(publication.publisher).action {
            if of.part == ActionPart::Feedback {
                self.ways
                    .services
                    .actions
                    .figures
                    .entry(of.action)
                    .or_default()
                    .of(self.graph.switches.at(publication.time))
                    .feedback += 1;
            }
        }
    }

    pub(super) fn action_end(&mut self, instance: InstanceId) {
        for goal in &mut self.ways.services.actions.goals {
            if goal.answered_by == Some(instance) {
                goal.answered_by = None;
            }
        }
    }
}
