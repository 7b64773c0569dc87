//! The endpoints of actions, recognised by the names that rcl_action gives them.

use super::{ActionPart, Entities, EntityKind, HandleKind, NewEntity};
use crate::ids::EntityId;
use crate::index::NameId;

impl Entities {
    /// Returns the task that executes the goals of `action`. The task belongs to the process of
    /// `status`, the publisher by which the action's server reports the states of the goals.
    /// Creates the task if it does not exist.
    pub(crate) fn goal_task(&mut self, status: EntityId, action: NameId) -> EntityId {
        let p = self.get(status).process;
        let key = (HandleKind::Task, action.index() as u64 + 1);
        if let Some(task) = self.handle(p, key.0, key.1) {
            return task;
        }
        let node = self.get(status).node();
        let node = node.unwrap_or_else(|| self.stand_in(p));
        self.get_mut(status).looks.node = Some(node);
        let name = self.names.get(action).to_string();
        let new = NewEntity {
            kind: EntityKind::Task,
            handles: [key, (HandleKind::Task, 0)],
            node: Some(node),
            name: &name,
            depth: 0,
            period_ns: None,
        };
        self.create(p, new)
    }
}

pub(super) fn of_name(kind: EntityKind, name: &str) -> Option<(&str, ActionPart)> {
    let (action, last) = name.rsplit_once("/_action/")?;
    let service = matches!(kind, EntityKind::Service | EntityKind::Client);
    let topic = matches!(kind, EntityKind::Subscription | EntityKind::Publisher);
    let part = match last {
        "send_goal" if service => ActionPart::Goal,
        "cancel_goal" if service => ActionPart::Cancel,
        "get_result" if service => ActionPart::Result,
        "feedback" if topic => ActionPart::Feedback,
        "status" if topic => ActionPart::Status,
        _ => return None,
    };
    Some((action, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_endpoints_are_recognised_by_kind_and_name() {
        let of = |kind, name| of_name(kind, name);
        let goal = Some(("/arm/move", ActionPart::Goal));
        assert_eq!(of(EntityKind::Service, "/arm/move/_action/send_goal"), goal);
        assert_eq!(of(EntityKind::Client, "/arm/move/_action/send_goal"), goal);
        assert_eq!(
            of(EntityKind::Publisher, "/arm/move/_action/send_goal"),
            None
        );
        assert_eq!(
            of(EntityKind::Subscription, "/a/_action/feedback"),
            Some(("/a", ActionPart::Feedback))
        );
        assert_eq!(of(EntityKind::Subscription, "/a/_action/other"), None);
        assert_eq!(of(EntityKind::Subscription, "/a/feedback"), None);
    }
}
