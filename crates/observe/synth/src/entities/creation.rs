//! The events of creation. Each one helps to find which node an entity belongs to, or which entity
//! a callback belongs to.

use super::entity::{Looks, TimeBase};
use super::nodes::{full_name, Identity};
use super::process::Clock;
use super::process::Tie;
use super::{Entities, EntityKind, HandleKind, NewEntity};
use crate::ids::{EntityId, NodeId, ProcessIndex};
use crate::index::NameId;
use crate::values::Gid;
use onbeat_document::schema::qos;
use onbeat_document::schema::Qos;
use onbeat_trace::EndpointKind;

/// The node that a thread created last, and the timer that the thread is creating. They show to
/// which node the next clock belongs, and which clock the timer uses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Creation {
    node: Option<NodeId>,
    /// Set while the thread is inside `rcl_timer_init2`: the handles of the new timer and of its
    /// clock, and the time of the call.
    timer_clock: Option<(u64, u64, u64)>,
}

impl Entities {
    pub(crate) fn node_init(
        &mut self,
        p: ProcessIndex,
        creation: &mut Creation,
        node: u64,
        namespace: &str,
        name: &str,
    ) {
        creation.node = Some(self.node(p, node, &full_name(namespace, name)));
    }

    pub(crate) fn node_found(&mut self, p: ProcessIndex, node: u64, name: &str) {
        self.process_mut(p).found = true;
        self.node(p, node, &full_name("", name));
    }

    /// Handles `rcl_clock_init`. A clock that a thread creates right after a node belongs to that
    /// node. `time` is the kind of clock, an `rcl_clock_type_t`.
    pub(crate) fn clock_init(
        &mut self,
        p: ProcessIndex,
        creation: &mut Creation,
        clock: u64,
        time: Option<u8>,
    ) {
        let made = Clock {
            node: creation.node.take(),
            time: match time {
                // ROS time is system time until it is overridden.
                Some(1 | 2) => TimeBase::System,
                Some(3) => TimeBase::Steady,
                _ => TimeBase::Unknown,
            },
        };
        self.process_mut(p).clocks.insert(clock, made);
    }

    pub(crate) fn endpoint_init(
        &mut self,
        p: ProcessIndex,
        endpoint: EndpointKind,
        [rcl, rmw, node]: [u64; 3],
        name: &str,
        depth: u64,
    ) -> EntityId {
        let (kind, [rcl_kind, rmw_kind]) = handles_of(endpoint);
        self.create(
            p,
            NewEntity {
                kind,
                handles: [(rcl_kind, rcl), (rmw_kind, rmw)],
                node: self.node_of_handle(p, node),
                name,
                depth,
                period_ns: None,
            },
        )
    }

    pub(crate) fn endpoint_qos(
        &mut self,
        p: ProcessIndex,
        endpoint: EndpointKind,
        rcl: u64,
        qos: Qos,
    ) {
        let (kind, [handle, _]) = handles_of(endpoint);
        let Some(e) = self.handle(p, handle, rcl).filter(|&e| !self.is_hidden(e)) else {
            return;
        };
        let entity = self.get_mut(e);
        entity.qos = Some(qos);
        if let (Some(node), Some(name)) = (entity.node(), entity.name()) {
            let of = self.qos.entry((kind, node, name)).or_default();
            qos::add(of, [qos]);
        }
    }

    pub(crate) fn link_init(
        &mut self,
        p: ProcessIndex,
        end: u64,
        (link, depth, sends): (u64, u64, bool),
        name: &str,
    ) {
        let kind = match sends {
            true => EndpointKind::Publisher,
            false => EndpointKind::Subscription,
        };
        let e = self.endpoint_init(p, kind, [end, end, 0], name, depth);
        self.get_mut(e).link = Some(link);
    }

    pub(crate) fn endpoint_found(
        &mut self,
        p: ProcessIndex,
        endpoint: EndpointKind,
        [rcl, rmw]: [u64; 2],
        name: &str,
    ) {
        let (kind, [rcl_kind, rmw_kind]) = handles_of(endpoint);
        let handles = [(rcl_kind, rcl), (rmw_kind, rmw)];
        let name_id = self.names.intern(name);
        let used = handles.into_iter().filter(|h| h.1 != 0);
        let process = self.process(p);
        let known = used
            .clone()
            .filter_map(|h| process.handles.get(&h).copied())
            .find(|&e| self.get(e).name() == Some(name_id));
        let by_ring = match known {
            None if kind == EntityKind::Subscription => self.take_by_ring(p, name_id),
            _ => None,
        };
        if let Some(e) = known.or(by_ring) {
            // The endpoint may now be known by its other handle too.
            self.process_mut(p).handles.extend(used.map(|h| (h, e)));
            return;
        }
        self.create(
            p,
            NewEntity {
                kind,
                handles,
                node: None,
                name,
                depth: 0,
                period_ns: None,
            },
        );
    }

    /// Late attach: assigns an endpoint to the node with this handle. The node also gets everything
    /// that was assigned to its stand-in.
    pub(crate) fn endpoint_node(
        &mut self,
        p: ProcessIndex,
        endpoint: EndpointKind,
        rcl: u64,
        node: u64,
    ) {
        let (_, [kind, _]) = handles_of(endpoint);
        let (Some(e), Some(node)) = (self.handle(p, kind, rcl), self.node_of_handle(p, node))
        else {
            return;
        };
        let before = self.get_mut(e).looks.node.replace(node);
        let Some(before) = before.filter(|&b| b != node) else {
            return;
        };
        if matches!(self.nodes.get(before).identity, Identity::Same(_)) {
            self.nodes.set_identity(before, Identity::Same(node));
        }
    }

    /// Handles `rmw_client_init`, which reports a client's identifier, usually before
    /// `rcl_client_init`. Returns the client if it is known.
    pub(crate) fn client_gid(&mut self, p: ProcessIndex, rmw: u64, gid: Gid) -> Option<EntityId> {
        let client = self.handle(p, HandleKind::RmwClient, rmw);
        if client.is_none() {
            self.process_mut(p).gids.insert(rmw, gid);
        }
        client
    }

    pub(crate) fn announced_gid(&mut self, p: ProcessIndex, rmw: u64) -> Option<Gid> {
        self.process_mut(p).gids.remove(&rmw)
    }

    /// Handles the call of `rcl_timer_init2`, which names the clock of the next timer. The timer's
    /// first release counts from the time of the call.
    ///
    /// In a late attach, the timer may already be known without a clock. It then gets this clock.
    pub(crate) fn timer_clock(
        &mut self,
        p: ProcessIndex,
        creation: &mut Creation,
        timer: u64,
        clock: u64,
        time: u64,
    ) {
        creation.timer_clock = Some((timer, clock, time));
        let known = self.process(p).clocks.get(&clock).copied();
        if let Some(timer) = self.timer_mut(p, timer) {
            if timer.clock == 0 {
                (timer.clock, timer.time) = (clock, known.unwrap_or_default().time);
            }
        }
    }

    pub(crate) fn timer_init(
        &mut self,
        p: ProcessIndex,
        creation: &mut Creation,
        timer: u64,
        period_ns: i64,
        time: u64,
    ) {
        let clock = creation.timer_clock.take();
        let clock = clock.filter(|&(of, clock, _)| of == timer && clock != 0);
        let (clock, time) = clock.map_or((0, time), |(_, clock, entered)| (clock, entered));
        let known = self.process(p).clocks.get(&clock).copied();
        let known = known.unwrap_or_default();
        let period_ns = u64::try_from(period_ns).ok().filter(|&p| p > 0);
        let e = self.create_timer(p, timer, known.node, period_ns);
        let unseen_calls = self.process(p).unseen_calls;
        if let Some(timer) = self.get_mut(e).timer_mut() {
            timer.unseen_calls = unseen_calls;
            timer.due = period_ns.map(|period| time.saturating_add(period));
            (timer.period_ns, timer.clock, timer.time) = (period_ns, clock, known.time);
        }
    }

    pub(crate) fn timer_found(&mut self, p: ProcessIndex, timer: u64) -> EntityId {
        match self.handle(p, HandleKind::Timer, timer) {
            Some(e) => e,
            None => self.create_timer(p, timer, None, None),
        }
    }

    fn create_timer(
        &mut self,
        p: ProcessIndex,
        timer: u64,
        node: Option<NodeId>,
        period_ns: Option<u64>,
    ) -> EntityId {
        self.create(
            p,
            NewEntity {
                kind: EntityKind::Timer,
                handles: [(HandleKind::Timer, timer), (HandleKind::Timer, 0)],
                node,
                name: "",
                depth: 0,
                period_ns,
            },
        )
    }

    pub(crate) fn timer_node(&mut self, p: ProcessIndex, timer: u64, node: u64) {
        let node = self.node_of_handle(p, node);
        if let Some(e) = self.handle(p, HandleKind::Timer, timer) {
            if self.get(e).looks.node != node && node.is_some() {
                self.set_looks(p, e, |looks| looks.node = node);
            }
        }
    }

    pub(super) fn set_looks(
        &mut self,
        p: ProcessIndex,
        e: EntityId,
        change: impl FnOnce(&mut Looks),
    ) {
        let mut looks = self.get(e).looks;
        change(&mut looks);
        let slot = self.free_slot(p, &looks, Some(e));
        self.change_looks(p, e, looks, slot);
        self.get_mut(e).vertex = None;
    }

    pub(crate) fn set_callback(
        &mut self,
        p: ProcessIndex,
        callback: u64,
        kind: HandleKind,
        handle: u64,
    ) {
        let process = self.process_mut(p);
        process.ties.remove(&(Tie::CallbackObject, callback));
        let key = (HandleKind::Callback, callback);
        match process.handles.get(&(kind, handle)).copied() {
            Some(e) => {
                process.handles.insert(key, e);
                self.get_mut(e).exact = true;
            }
            None => {
                process.handles.remove(&key);
            }
        }
    }

    pub(crate) fn subscription_object(&mut self, p: ProcessIndex, subscription: u64, object: u64) {
        let process = self.process_mut(p);
        let key = (Tie::ObjectSubscription, object);
        process.ties.insert(key, subscription);
        if let Some(e) = self.handle(p, HandleKind::RclSubscription, subscription) {
            self.get_mut(e).exact = true;
        }
    }

    pub(crate) fn subscription_callback(&mut self, p: ProcessIndex, object: u64, callback: u64) {
        let process = self.process_mut(p);
        process.handles.remove(&(HandleKind::Callback, callback));
        process.ties.insert((Tie::CallbackObject, callback), object);
    }

    pub(crate) fn intra_buffer(&mut self, p: ProcessIndex, ipb: u64, object: u64) {
        let process = self.process_mut(p);
        process.ties.insert((Tie::IntraObject, ipb), object);
    }

    pub(crate) fn ring_intra_buffer(&mut self, p: ProcessIndex, buffer: u64, ipb: u64) {
        let process = self.process_mut(p);
        process.handles.remove(&(HandleKind::RingBuffer, buffer));
        process.ties.insert((Tie::RingIntra, buffer), ipb);
    }

    pub(crate) fn callback_symbol(
        &mut self,
        p: ProcessIndex,
        callback: u64,
        symbol: &str,
    ) -> Option<(EntityId, NameId)> {
        let e = self.callback(p, callback)?;
        let symbol = self.names.intern(symbol);
        self.get_mut(e).symbol = Some(symbol);
        Some((e, symbol))
    }
}

fn handles_of(endpoint: EndpointKind) -> (EntityKind, [HandleKind; 2]) {
    match endpoint {
        EndpointKind::Publisher => (
            EntityKind::Publisher,
            [HandleKind::RclPublisher, HandleKind::RmwPublisher],
        ),
        EndpointKind::Subscription => (
            EntityKind::Subscription,
            [HandleKind::RclSubscription, HandleKind::RmwSubscription],
        ),
        EndpointKind::Service => (
            EntityKind::Service,
            [HandleKind::RclService, HandleKind::RmwService],
        ),
        EndpointKind::Client => (
            EntityKind::Client,
            [HandleKind::RclClient, HandleKind::RmwClient],
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::entities::HandleKind;
    use crate::testing::Harness;

    #[test]
    fn a_clock_created_right_after_a_node_shows_the_node_of_timers() {
        let harness = Harness::new(
            "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=a
1ms cpu0 10/10 clock_init clock=0x7
1ms cpu0 10/10 clock_init clock=0x8
1ms cpu0 10/10 timer_clock timer=0x50 clock=0x7
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_clock timer=0x51 clock=0x8
1ms cpu0 10/10 timer_init timer=0x51 period_ns=10ms",
        );
        let entities = &harness.synth.cx.entities;
        let node = |timer| {
            let e = harness.entity(10, HandleKind::Timer, timer).unwrap();
            entities.get(e).node().map(|n| entities.node_id(n))
        };
        assert_eq!(node(0x50).as_deref(), Some("/a"));
        assert_eq!(node(0x51), None);
    }

    #[test]
    fn a_restarted_node_continues_its_predecessor_and_a_second_live_node_does_not() {
        let mut harness = Harness::new(
            "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=a
2ms cpu0 20/20 node_init node=0x1 rmw=0x1001 name=a",
        );
        assert_eq!(harness.node(10, 1).as_deref(), Some("/a"));
        assert_eq!(harness.node(20, 1).as_deref(), Some("/a#2"));
        harness.push("3ms cpu0 10/10 exit\n4ms cpu0 30/30 node_init node=0x5 rmw=0x1001 name=a");
        assert_eq!(harness.node(30, 5).as_deref(), Some("/a"));
    }

    #[test]
    fn an_endpoint_found_by_its_rmw_handle_is_later_known_by_its_rcl_handle_as_well() {
        let harness = Harness::new(
            "
1ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0 rmw=0x1010 name=/t
2ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x10 rmw=0x1010 name=/t
3ms cpu0 10/10 endpoint_found endpoint=publisher rcl=0x11 rmw=0x1010 name=/u",
        );
        let by_rcl = harness.entity(10, HandleKind::RclPublisher, 0x10);
        assert!(by_rcl.is_some());
        let other = harness.entity(10, HandleKind::RmwPublisher, 0x1010);
        assert_ne!(
            by_rcl, other,
            "the address now stands for another topic's publisher"
        );
        assert_eq!(other, harness.entity(10, HandleKind::RclPublisher, 0x11));
    }
}
