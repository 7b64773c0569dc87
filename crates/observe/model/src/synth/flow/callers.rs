//! Which client a request comes from. Its service sees a middleware identifier, its sender a
//! handle: the two are tied by what only that client can have sent or received.

use crate::synth::entities::Kind;
use crate::synth::Synth;
use crate::synth::NONE;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A response of a service to an identifier that no client is known for.
#[derive(Debug, Clone)]
struct Answer {
    gid: [u8; 16],
    time: u64,
    source_ns: Option<i64>,
}

/// Identifiers and their clients.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Callers {
    clients: FxHashMap<[u8; 16], u32>,
    answers: FxHashMap<(u32, i64), Vec<Answer>>,
    order: VecDeque<(u32, i64)>,
}

/// Answers kept.
const MAX_ANSWERS: usize = 4096;

/// Other clients' sendings may show up that much later than the taking: the event is written when
/// the call returns, and a sender may be preempted in it.
const SETTLE_NS: u64 = 50_000_000;

/// What is known of a request's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Known(u32),
    /// More than one client may have sent it: this one did so first.
    Ambiguous(u32),
    Unknown,
}

impl Synth {
    /// Ties an identifier to a client. `seen`: it was seen in a request or response.
    pub(in crate::synth) fn bind(&mut self, gid: [u8; 16], client: u32, seen: bool) {
        if gid != [0; 16] {
            self.callers.clients.insert(gid, client);
            let it = &mut self.world.entities[client as usize];
            (it.gid, it.gid_seen) = (gid, seen);
        }
    }

    /// The client of a service (name) that an identifier is tied to.
    fn bound(&self, gid: [u8; 16], name: u32) -> Option<u32> {
        let &client = self.callers.clients.get(&gid)?;
        let it = self.world.entities.get(client as usize)?;
        (it.kind == Kind::Client && it.gid == gid && it.name == name).then_some(client)
    }

    /// A service answers: remembered until the client that reads it shows itself.
    pub(in crate::synth) fn answered(
        &mut self,
        service: u32,
        gid: [u8; 16],
        sequence: i64,
        source_ns: Option<i64>,
        time: u64,
    ) {
        let name = self.world.entities[service as usize].name;
        if gid == [0; 16] || (self.bound(gid, name).is_some() && source_ns.is_none()) {
            return;
        }
        let key = (name, sequence);
        if self.callers.order.len() >= MAX_ANSWERS {
            if let Some(old) = self.callers.order.pop_front() {
                self.callers.answers.remove(&old);
            }
        }
        self.callers.order.push_back(key);
        self.callers.answers.entry(key).or_default().push(Answer {
            gid,
            time,
            source_ns,
        });
    }

    /// A client reads a response: whose identifier it answers must be the client's.
    pub(in crate::synth) fn answer_read(
        &mut self,
        client: u32,
        sequence: i64,
        source_ns: i64,
        time: u64,
    ) {
        let it = &self.world.entities[client as usize];
        let (name, own) = (it.name, if it.gid_seen { it.gid } else { [0; 16] });
        let Some(answers) = self.callers.answers.get(&(name, sequence)) else {
            return;
        };
        let certain = answers
            .iter()
            .find(|a| a.source_ns == Some(source_ns) && source_ns != 0);
        let gid = match certain {
            Some(answer) => Some(answer.gid),
            None if own == [0; 16] => {
                let mut free = answers.iter().filter(|a| {
                    a.time <= time && a.source_ns.is_none() && self.bound(a.gid, name).is_none()
                });
                match (free.next(), free.next()) {
                    (Some(only), None) => Some(only.gid),
                    _ => None,
                }
            }
            None => None,
        };
        if let Some(gid) = gid {
            if gid != own {
                self.bind(gid, client, true);
            }
            if let Some(answers) = self.callers.answers.get_mut(&(name, sequence)) {
                answers.retain(|a| a.gid != gid);
                if answers.is_empty() {
                    self.callers.answers.remove(&(name, sequence));
                }
            }
        }
    }

    fn find_caller(&self, service: u32, gid: [u8; 16], sequence: i64) -> Caller {
        let name = self.world.entities[service as usize].name;
        if let Some(client) = self.bound(gid, name) {
            return Caller::Known(client);
        }
        let mut first = NONE;
        let mut n = 0;
        for sent in self.flow.sent.get(&(name, sequence)).into_iter().flatten() {
            let tied = self.world.entities[sent.client as usize].gid_seen;
            if !sent.taken && (!tied || gid == [0; 16]) {
                if n == 0 {
                    first = sent.client;
                }
                n += 1;
            }
        }
        match n {
            0 => Caller::Unknown,
            1 => Caller::Known(first),
            _ => Caller::Ambiguous(first),
        }
    }

    /// Whether a service's instance can be given to a caller by now.
    pub(in crate::synth) fn caller_ready(
        &self,
        service: u32,
        gid: [u8; 16],
        sequence: i64,
        at: u64,
        now: u64,
    ) -> bool {
        let name = self.world.entities[service as usize].name;
        let clients = &self.world.endpoints(name).clients;
        match self.find_caller(service, gid, sequence) {
            Caller::Known(client) => {
                let sent = self.flow.sent.get(&(name, sequence));
                let sent = sent.is_some_and(|l| l.iter().any(|s| s.client == client && !s.taken));
                let settled = now.saturating_sub(at) >= SETTLE_NS;
                sent && (clients.len() == 1 || settled || self.bound(gid, name).is_some())
                    || !self.world.entities[client as usize].live
            }
            // What the client reads will tell.
            Caller::Ambiguous(_) => false,
            // Nobody who could still turn out to have sent it.
            Caller::Unknown => clients
                .iter()
                .all(|&c| self.world.entities[c as usize].gid_seen),
        }
    }

    /// Decides on the caller of a request.
    pub(in crate::synth) fn caller(
        &mut self,
        service: u32,
        gid: [u8; 16],
        sequence: i64,
    ) -> Option<u32> {
        let name = self.world.entities[service as usize].name;
        match self.find_caller(service, gid, sequence) {
            Caller::Known(client) => {
                self.bind(gid, client, true);
                Some(client)
            }
            Caller::Ambiguous(client) => {
                self.notes
                    .count(crate::synth::notes::Note::CallerGuess(name), 1);
                Some(client)
            }
            Caller::Unknown => {
                self.notes
                    .count(crate::synth::notes::Note::CallerUnknown(name), 1);
                None
            }
        }
    }
}
