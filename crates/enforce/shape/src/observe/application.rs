//! Collects everything observed about the plan's callbacks in the running application. Pure.

use super::{
    is_synchroniser, Executions, Instances, Others, PlanObservation, Roles, Runs, Unplanned,
    Watcher,
};
use onbeat_plan::schema::{Hold, Output};
use onbeat_plan::Plan;
use onbeat_trace::Event;

const RUNS_NEEDED: u64 = 3;

pub(crate) struct Application<'a> {
    plan: &'a Plan,
    watcher: Watcher,
    pub(crate) executions: Executions,
    pub(crate) roles: Roles,
    pub(crate) runs: Runs,
    pub(crate) others: Others,
    pub(crate) instances: Instances,
}

impl<'a> Application<'a> {
    pub(crate) fn new(plan: &'a Plan, is_running: fn(u32) -> bool) -> Application<'a> {
        let watcher = Watcher::new(plan);
        let callbacks = watcher.callbacks();
        Application {
            plan,
            executions: Executions::new(plan, callbacks),
            roles: Roles::new(plan, callbacks),
            runs: Runs::new(callbacks.len()),
            others: Others::new(plan, callbacks),
            instances: Instances::new(callbacks.len(), is_running),
            watcher,
        }
    }

    pub(crate) fn observe(&mut self, events: &[Event]) -> Vec<PlanObservation> {
        let mut found = Vec::new();
        self.watcher.push(events, &mut found);
        found
    }

    pub(crate) fn name(&self, callback: usize) -> &str {
        let names = self.watcher.callbacks();
        names.get(callback).map_or("?", String::as_str)
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        let names = self.watcher.callbacks().iter().enumerate();
        names
            .filter(|&(c, name)| self.roles.seen(c) < RUNS_NEEDED && self.plan.requires(name))
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// Returns the callbacks outside of the plan that share a thread with a gated callback, and
    /// therefore run only in slots. Each call returns only the callbacks found since the previous
    /// call.
    pub(crate) fn sharing(&mut self, is_gated: impl Fn(usize) -> bool) -> Vec<Unplanned> {
        let mut unplanned = self.watcher.take_unplanned();
        unplanned.retain(|u| {
            let role = self.roles.threads().get(&u.tid);
            let role = role.filter(|role| role.pid == u.pid);
            role.and_then(|role| role.server).is_some_and(&is_gated)
        });
        unplanned.sort_by(|a, b| (b.runs, &a.id, a.tid).cmp(&(a.runs, &b.id, b.tid)));
        unplanned
    }

    pub(crate) fn publishers(&self, output: &Output) -> Vec<usize> {
        let names = self.watcher.callbacks().iter().enumerate();
        names
            .filter(|(_, name)| publishes(output, name))
            .map(|(c, _)| c)
            .collect()
    }

    pub(crate) fn needs_shaper(&self, callback: usize) -> bool {
        let name = self.name(callback);
        let is_output = |o: &Output| o.hold == Hold::Republish && publishes(o, name);
        self.plan.outputs.iter().any(is_output) || (callback == 0 && !self.plan.inputs.is_empty())
    }

    /// Returns the output that `callback` publishes directly on the output's final topic. A shaper
    /// cannot hold this output back.
    pub(crate) fn output_past_shaper(
        &self,
        callback: usize,
        topic: Option<&str>,
    ) -> Option<&'a Output> {
        let name = self.name(callback);
        self.plan.outputs.iter().find(|o| {
            let is_past = o.held_topic.as_deref() != topic && Some(o.topic.as_str()) == topic;
            o.hold == Hold::Republish && publishes(o, name) && is_past
        })
    }
}

/// Returns true if this callback can publish the output. If a synchroniser publishes the output,
/// all callbacks of the synchroniser's node count, because the subscription whose message comes
/// last publishes it.
fn publishes(output: &Output, callback: &str) -> bool {
    let node = |id: &str| id.split(':').next().map(str::to_owned);
    output.callback == callback
        || (is_synchroniser(&output.callback) && node(&output.callback) == node(callback))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_plan::schema::Ms;

    #[test]
    fn each_subscription_of_a_synchroniser_node_publishes_its_output() {
        let output = |callback: &str| Output {
            topic: "/out".into(),
            callback: callback.into(),
            node: "/join".into(),
            hold: Hold::Republish,
            held_topic: None,
            server: "delta".into(),
            earliest_ms: Ms(0),
        };
        let of_sync = output("/join:sync(/out)");
        assert!(publishes(&of_sync, "/join:subscription(/a)"));
        assert!(publishes(&of_sync, "/join:subscription(/b)"));
        assert!(!publishes(&of_sync, "/joined:subscription(/a)"));
        let of_one = output("/join:subscription(/a)");
        assert!(publishes(&of_one, "/join:subscription(/a)"));
        assert!(!publishes(&of_one, "/join:subscription(/b)"));
    }
}
