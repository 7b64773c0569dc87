//! Finds the node and topic names of handles.
use onbeat_trace::event::{Event, EventKind};
use parquet::data_type::ByteArray;
use std::collections::HashMap;

#[derive(Clone, Default)]
pub(super) struct Entity {
    pub(super) node: Option<ByteArray>,
    pub(super) topic: Option<ByteArray>,
}

#[derive(Default)]
pub(super) struct Names {
    entities: HashMap<(u32, u64), Entity>,
    /// The node that each thread created last. It owns the clock that the thread creates next.
    latest_node: HashMap<(u32, u32), Entity>,
    /// The callback of each timer. In rclcpp, the callback is known before the timer's node.
    timer_callbacks: HashMap<(u32, u64), u64>,
}

impl Names {
    pub(super) fn learn(&mut self, event: &Event) {
        let pid = event.pid;
        match &event.kind {
            EventKind::NodeInit {
                node,
                name,
                namespace,
                ..
            } => {
                let slash = if namespace.ends_with('/') { "" } else { "/" };
                let name = format!("{namespace}{slash}{name}");
                let entity = Entity {
                    node: Some(name.into_bytes().into()),
                    topic: None,
                };
                self.latest_node.insert((pid, event.tid), entity.clone());
                self.entities.insert((pid, *node), entity);
            }
            EventKind::NodeFound { node, name } if *node != 0 => {
                let entity = Entity {
                    node: Some(ByteArray::from(&**name)),
                    topic: None,
                };
                self.entities.insert((pid, *node), entity);
            }
            EventKind::ClockInit { clock } | EventKind::ClockKind { clock, .. } => {
                // Only the first clock after a node belongs to it.
                match self.latest_node.remove(&(pid, event.tid)) {
                    Some(entity) => self.entities.insert((pid, *clock), entity),
                    None => self.entities.remove(&(pid, *clock)),
                };
            }
            EventKind::TimerInit { timer, .. } => {
                self.timer_callbacks.remove(&(pid, *timer));
            }
            EventKind::Exit if event.tid == pid => {
                self.entities.retain(|(p, _), _| *p != pid);
                self.latest_node.retain(|(p, _), _| *p != pid);
                self.timer_callbacks.retain(|(p, _), _| *p != pid);
            }
            kind => {
                self.learn_endpoint(pid, kind);
                self.learn_relation(pid, kind);
            }
        }
    }

    fn learn_endpoint(&mut self, pid: u32, kind: &EventKind) {
        match kind {
            EventKind::PublisherInit {
                publisher: rcl,
                node,
                rmw,
                topic,
                ..
            }
            | EventKind::SubscriptionInit {
                subscription: rcl,
                node,
                rmw,
                topic,
                ..
            }
            | EventKind::ServiceInit {
                service: rcl,
                node,
                rmw,
                name: topic,
            }
            | EventKind::ClientInit {
                client: rcl,
                node,
                rmw,
                name: topic,
            } => {
                let entity = Entity {
                    node: self.get(pid, *node).and_then(|e| e.node.clone()),
                    topic: Some(ByteArray::from(&**topic)),
                };
                self.entities.insert((pid, *rcl), entity.clone());
                self.entities.insert((pid, *rmw), entity);
            }
            EventKind::EndpointFound { rcl, rmw, name, .. } => {
                let entity = Entity {
                    node: None,
                    topic: Some(ByteArray::from(&**name)),
                };
                if *rcl != 0 {
                    self.entities.insert((pid, *rcl), entity.clone());
                }
                self.entities.insert((pid, *rmw), entity);
            }
            EventKind::EndpointNode { rcl, node, .. } => {
                let node = self.get(pid, *node).and_then(|e| e.node.clone());
                if let Some(entity) = self.entities.get_mut(&(pid, *rcl)) {
                    entity.node = node;
                }
            }
            _ => {}
        }
    }

    fn learn_relation(&mut self, pid: u32, kind: &EventKind) {
        let (handle, other) = match kind {
            EventKind::TimerClock { timer, clock } => (timer, clock),
            EventKind::TimerNode { timer, node } => (timer, node),
            EventKind::TimerCallback { timer, callback } => (callback, timer),
            EventKind::SubscriptionObject {
                subscription,
                object,
            } => (object, subscription),
            EventKind::SubscriptionCallback { object, callback } => (callback, object),
            EventKind::ServiceCallback { service, callback } => (callback, service),
            _ => return,
        };
        match kind {
            EventKind::TimerCallback { timer, callback } => {
                self.timer_callbacks.insert((pid, *timer), *callback);
            }
            // Another node's timer may have had this address before.
            EventKind::TimerClock { timer, .. } => {
                self.entities.remove(&(pid, *timer));
            }
            _ => {}
        }
        let Some(entity) = self.get(pid, *other).cloned() else {
            return;
        };
        if let EventKind::TimerNode { timer, .. } = kind {
            if let Some(callback) = self.timer_callbacks.get(&(pid, *timer)) {
                self.entities.insert((pid, *callback), entity.clone());
            }
        }
        self.entities.insert((pid, *handle), entity);
    }

    fn get(&self, pid: u32, handle: u64) -> Option<&Entity> {
        self.entities.get(&(pid, handle))
    }

    pub(super) fn of(&self, event: &Event) -> Option<&Entity> {
        let handle = match &event.kind {
            EventKind::CallbackStart { callback, .. } | EventKind::CallbackEnd { callback } => {
                callback
            }
            EventKind::TimerCall { timer }
            | EventKind::TimerReset { timer }
            | EventKind::TimerCancel { timer }
            | EventKind::TimerPeriod { timer, .. } => timer,
            EventKind::Take { rmw, .. }
            | EventKind::Publish { rmw, .. }
            | EventKind::RequestSend { rmw, .. }
            | EventKind::RequestTake { rmw, .. }
            | EventKind::ResponseSend { rmw, .. }
            | EventKind::ResponseTake { rmw, .. } => rmw,
            EventKind::IntraPublish { publisher, .. } | EventKind::RclPublish { publisher, .. } => {
                publisher
            }
            EventKind::ExecutorExecute { handle } => handle,
            EventKind::NodeInit { node, .. } => node,
            EventKind::PublisherInit { rmw, .. }
            | EventKind::SubscriptionInit { rmw, .. }
            | EventKind::ServiceInit { rmw, .. }
            | EventKind::ClientInit { rmw, .. }
            | EventKind::EndpointFound { rmw, .. } => rmw,
            _ => return None,
        };
        self.get(event.pid, *handle)
    }
}
