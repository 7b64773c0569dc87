//! Finds the client of each request. The service sees an identifier of the middleware, the sender
//! has a handle. They are matched by requests and responses that only one client can have sent or
//! received.

use super::services::Sent;
use super::Flow;
use crate::entities::{ClientGid, Entities, EntityKind, Role};
use crate::events::Response;
use crate::ids::EntityId;
use crate::index::NameId;
use crate::marks::Marks;
use crate::notes::Note;
use crate::values::Gid;
use crate::Context;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

#[derive(Debug, Clone)]
struct Answer {
    gid: Gid,
    time: u64,
    source_ns: Option<i64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Callers {
    clients: FxHashMap<Gid, EntityId>,
    answers: FxHashMap<(NameId, i64), Vec<Answer>>,
    order: VecDeque<(NameId, i64)>,
}

const MAX_ANSWERS: usize = 4096;

/// The maximum time in ns by which the event of a request's sending may be later than the event of
/// its take. The recorder writes the first event when the sender's call returns, and the sender may
/// be preempted before this return.
const SETTLE_NS: u64 = 50_000_000;

const NO_GID: Gid = [0; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Known(EntityId),
    /// Several clients may have sent the request. The value is the client that sent first.
    Ambiguous(EntityId),
    Unknown,
}

impl Callers {
    fn bind(&mut self, entities: &mut Entities, gid: Gid, client: EntityId, seen: bool) {
        if gid == NO_GID {
            return;
        }
        self.clients.insert(gid, client);
        if let Role::Client { gid: known, .. } = &mut entities.get_mut(client).role {
            *known = Some(ClientGid { gid, seen });
        }
    }

    fn bound(&self, entities: &Entities, gid: Gid, name: Option<NameId>) -> Option<EntityId> {
        let &client = self.clients.get(&gid)?;
        let it = entities.get(client);
        let tied = it.gid().is_some_and(|known| known.gid == gid);
        (it.kind() == EntityKind::Client && tied && it.name() == name).then_some(client)
    }

    fn identify(
        &self,
        entities: &Entities,
        (name, answers): (NameId, &[Answer]),
        own: Option<Gid>,
        (source_ns, time): (i64, u64),
    ) -> Option<Gid> {
        let mut stamped = answers.iter();
        let certain = stamped.find(|a| a.source_ns == Some(source_ns) && source_ns != 0);
        if let Some(answer) = certain {
            return Some(answer.gid);
        }
        if own.is_some() {
            return None;
        }
        let mut free = answers.iter().filter(|a| {
            let unbound = || self.bound(entities, a.gid, Some(name)).is_none();
            a.time <= time && a.source_ns.is_none() && unbound()
        });
        match (free.next(), free.next()) {
            (Some(only), None) => Some(only.gid),
            _ => None,
        }
    }
}

impl Callers {
    pub(super) fn forget(&mut self, entities: &Entities) {
        self.clients.retain(|gid, client| {
            let it = entities.get(*client);
            it.gid().is_some_and(|known| known.gid == *gid)
        });
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        for (name, _) in self.answers.keys().chain(&self.order) {
            names.add(name.index());
        }
    }
}

impl Flow {
    pub(super) fn drop_old_answers(&mut self, time: u64) {
        let callers = &mut self.callers;
        while let Some(key) = callers.order.front() {
            let answers = callers.answers.get(key).into_iter().flatten();
            if answers
                .map(|a| a.time)
                .max()
                .is_some_and(|latest| latest >= time)
            {
                return;
            }
            callers.answers.remove(key);
            callers.order.pop_front();
        }
    }

    pub(crate) fn announce(&mut self, cx: &mut Context, gid: Gid, client: EntityId) {
        self.callers.bind(&mut cx.entities, gid, client, false);
    }

    pub(crate) fn answered(&mut self, cx: &Context, response: &Response, source_ns: Option<i64>) {
        let &Response {
            gid,
            sequence,
            time,
            ..
        } = response;
        let name = cx.entities.get(response.service).name();
        let bound = || self.callers.bound(&cx.entities, gid, name).is_some();
        if gid == NO_GID || (bound() && source_ns.is_none()) {
            return;
        }
        let Some(name) = name else {
            return;
        };
        let key = (name, sequence);
        let callers = &mut self.callers;
        if callers.order.len() >= MAX_ANSWERS {
            if let Some(old) = callers.order.pop_front() {
                callers.answers.remove(&old);
            }
        }
        callers.order.push_back(key);
        callers.answers.entry(key).or_default().push(Answer {
            gid,
            time,
            source_ns,
        });
    }

    /// Handles a client's read of a response. From then on, the identifier in the response is known
    /// to be the one of this client.
    pub(crate) fn answer_read(
        &mut self,
        cx: &mut Context,
        client: EntityId,
        sequence: i64,
        source_ns: i64,
        time: u64,
    ) {
        let it = cx.entities.get(client);
        let own = it.gid().filter(|g| g.seen).map(|g| g.gid);
        let Some(name) = it.name() else {
            return;
        };
        let key = (name, sequence);
        let Some(answers) = self.callers.answers.get(&key) else {
            return;
        };
        let stamps = (source_ns, time);
        let answers = (name, answers.as_slice());
        let gid = self.callers.identify(&cx.entities, answers, own, stamps);
        let Some(gid) = gid else {
            return;
        };
        if Some(gid) != own {
            self.callers.bind(&mut cx.entities, gid, client, true);
        }
        if let Some(answers) = self.callers.answers.get_mut(&key) {
            answers.retain(|a| a.gid != gid);
            if answers.is_empty() {
                self.callers.answers.remove(&key);
            }
        }
    }

    fn find_caller(&self, cx: &Context, service: EntityId, gid: Gid, sequence: i64) -> Caller {
        let name = cx.entities.get(service).name();
        if let Some(client) = self.callers.bound(&cx.entities, gid, name) {
            return Caller::Known(client);
        }
        let Some(name) = name else {
            return Caller::Unknown;
        };
        let may_be = |sent: &&Sent| {
            let tied = cx.entities.get(sent.client).gid_seen();
            !sent.taken && (!tied || gid == NO_GID)
        };
        let mut sent = self
            .ways
            .services
            .sent(name, sequence)
            .iter()
            .filter(may_be);
        match (sent.next(), sent.next()) {
            (None, _) => Caller::Unknown,
            (Some(only), None) => Caller::Known(only.client),
            (Some(first), Some(_)) => Caller::Ambiguous(first.client),
        }
    }

    /// Reports whether it is decided which client sent the request with number `sequence` to a
    /// service. `at` is the time at which the service's instance took the request.
    pub(super) fn caller_ready(
        &self,
        cx: &Context,
        service: EntityId,
        gid: Gid,
        sequence: i64,
        at: u64,
    ) -> bool {
        let name = cx.entities.get(service).name();
        let clients = &cx.entities.endpoints(name).clients;
        match self.find_caller(cx, service, gid, sequence) {
            Caller::Known(client) => {
                let sent = name.map_or(&[][..], |name| self.ways.services.sent(name, sequence));
                let sent = sent.iter().any(|s| s.client == client && !s.taken);
                let settled = self.now.saturating_sub(at) >= SETTLE_NS;
                let bound = || self.callers.bound(&cx.entities, gid, name).is_some();
                sent && (clients.len() == 1 || settled || bound()) || !cx.entities.get(client).live
            }
            // The client that reads the response will show which one sent the request.
            Caller::Ambiguous(_) => false,
            // The caller stays unknown once the identifiers of all clients are known.
            Caller::Unknown => clients.iter().all(|&c| cx.entities.get(c).gid_seen()),
        }
    }

    pub(super) fn caller(
        &mut self,
        cx: &mut Context,
        service: EntityId,
        gid: Gid,
        sequence: i64,
    ) -> Option<EntityId> {
        let caller = self.find_caller(cx, service, gid, sequence);
        let name = cx.entities.get(service).name()?;
        match caller {
            Caller::Known(client) => {
                self.callers.bind(&mut cx.entities, gid, client, true);
                Some(client)
            }
            Caller::Ambiguous(client) => {
                cx.notes.count(Note::CallerGuess(name), 1);
                Some(client)
            }
            Caller::Unknown => {
                cx.notes.count(Note::CallerUnknown(name), 1);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    const SERVICE: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=server
1ms cpu0 10/10 service_init service=0x30 node=0x1 rmw=0x1030 name=/s
1ms cpu0 10/10 service_callback service=0x30 callback=0x60
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=one
1ms cpu1 20/20 client_init client=0x40 node=0x1 rmw=0x1040 name=/s
1ms cpu1 30/30 node_init node=0x1 rmw=0x1001 name=two
1ms cpu1 30/30 client_init client=0x40 node=0x1 rmw=0x1040 name=/s
";

    const GID: &str = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

    fn serve(t: u64) -> String {
        format!(
            "{t}us cpu0 10/10 request_take rmw=0x1030 gid={GID} sequence=1
{t}us cpu0 10/10 callback_start callback=0x60
{}us cpu0 10/10 response_send rmw=0x1030 gid={GID} sequence=1 source_ns=7us
{}us cpu0 10/10 callback_end callback=0x60
",
            t + 50,
            t + 100
        )
    }

    fn ids(harness: &Harness) -> Vec<String> {
        harness.synth.callback_ids().into_iter().flatten().collect()
    }

    #[test]
    fn the_client_that_reads_the_response_sent_the_request() {
        let trace = format!(
            "{SERVICE}
5000us cpu1 20/20 request_send rmw=0x1040 sequence=1
5001us cpu1 30/30 request_send rmw=0x1040 sequence=1
{}",
            serve(5_100)
        );
        let mut harness = Harness::new(&trace);
        assert!(
            ids(&harness).is_empty(),
            "two clients may have sent the request"
        );
        harness.push("5300us cpu1 30/30 response_take rmw=0x1040 sequence=1 source_ns=7us");
        harness.push("9000us cpu1 30/30 wait_set_init");
        assert!(ids(&harness).contains(&"/server:service(/s)@/two".to_string()));
        assert!(harness.notes().is_empty() || !harness.notes()[0].contains("CallerGuess"));
    }

    #[test]
    fn the_caller_of_a_service_that_reads_no_response_is_guessed() {
        let trace = format!(
            "{SERVICE}
5000us cpu1 20/20 request_send rmw=0x1040 sequence=1
5001us cpu1 30/30 request_send rmw=0x1040 sequence=1
{}
2000ms cpu0 10/10 executor_next_ready",
            serve(5_100)
        );
        let harness = Harness::new(&trace);
        assert_eq!(ids(&harness), ["/server:service(/s)@/one"]);
        assert!(harness.notes().iter().any(|n| n.starts_with("CallerGuess")));
    }
}
