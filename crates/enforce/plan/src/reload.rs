//! Whether one plan can take another's place while it runs: only slots, and what follows from them,
//! may differ.

use crate::schema::{Ms, Output, Plan, Server};
use onbeat_document::text::{shorten, visible};
use std::fmt;

/// What a running plan cannot take over from another: it was fixed when threads were assigned and
/// topics remapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Length of the cycle.
    Cycle {
        /// The running plan's.
        running: Ms,
        /// The other's.
        new: Ms,
    },
    /// The callback whose release begins a cycle.
    Origin(String),
    /// Chains, or their callbacks or outputs.
    Chains,
    /// A server that only one of them has, or that stands elsewhere in the list.
    Server(String),
    /// CPU, priority or callbacks of a server, or whether it has slots at all.
    OfServer {
        /// The server.
        name: String,
        /// What differs.
        what: &'static str,
    },
    /// Topics that are held back, by whom, or in which server's slots they leave.
    Outputs,
    /// Topics that are throttled.
    Inputs,
    /// Which callbacks are waited for.
    Callbacks,
    /// CPU or priority of the middleware's threads.
    Middleware,
    /// What happens to late outputs.
    Overshoot,
}

/// A name of a plan in a sentence.
fn name(name: &str) -> String {
    shorten(&visible(name), 80)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Cycle { running, new } => write!(f, "its cycle is {new}, not {running}"),
            Difference::Origin(new) => write!(f, "its cycles begin with {}", name(new)),
            Difference::Chains => write!(f, "its chains are others"),
            Difference::Server(server) => {
                write!(f, "only one of them has server {} there", name(server))
            }
            Difference::OfServer { name: server, what } => {
                write!(f, "server {} has {what}", name(server))
            }
            Difference::Outputs => write!(f, "it holds other outputs back, or otherwise"),
            Difference::Inputs => write!(f, "it throttles other inputs, or otherwise"),
            Difference::Callbacks => write!(f, "it waits for other callbacks"),
            Difference::Middleware => write!(f, "the middleware's CPU or priority is another"),
            Difference::Overshoot => write!(f, "the policy for late outputs is another"),
        }
    }
}

/// What keeps `new` from taking the place of `running`, the most general first. Empty: slots, best
/// cases, promises and words differ at most.
pub fn differences(running: &Plan, new: &Plan) -> Vec<Difference> {
    let mut found = Vec::new();
    if running.cycle_ms != new.cycle_ms {
        found.push(Difference::Cycle {
            running: running.cycle_ms,
            new: new.cycle_ms,
        });
    }
    if running.origin != new.origin {
        found.push(Difference::Origin(new.origin.clone()));
    }
    let same = running.chains.len() == new.chains.len()
        && running
            .chains
            .iter()
            .zip(&new.chains)
            .all(|(a, b)| a.is_same(b));
    found.extend((!same).then_some(Difference::Chains));
    found.extend(of_servers(&running.servers, &new.servers));
    let same = |a: &[Output], b: &[Output]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_output(a, b))
    };
    found.extend((!same(&running.outputs, &new.outputs)).then_some(Difference::Outputs));
    found.extend((running.inputs != new.inputs).then_some(Difference::Inputs));
    found.extend((running.callbacks != new.callbacks).then_some(Difference::Callbacks));
    found.extend((running.middleware != new.middleware).then_some(Difference::Middleware));
    found.extend((running.overshoot != new.overshoot).then_some(Difference::Overshoot));
    found
}

/// The same but for the chain's best case, which moves with each measurement.
fn is_same_output(running: &Output, new: &Output) -> bool {
    let with = |output: &Output| Output {
        earliest_ms: Ms(0),
        ..output.clone()
    };
    with(running) == with(new)
}

fn of_servers(running: &[Server], new: &[Server]) -> Vec<Difference> {
    let names = |servers: &[Server]| servers.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    let (ours, theirs) = (names(running), names(new));
    if ours != theirs {
        let other = theirs.iter().enumerate();
        let other = other.map(|(i, n)| (ours.get(i), n));
        let first = other.filter(|(ours, n)| *ours != Some(n)).map(|(_, n)| n);
        let first = first.chain(ours.iter().skip(theirs.len())).next();
        return first
            .map(|n| Difference::Server(n.clone()))
            .into_iter()
            .collect();
    }
    let mut found = Vec::new();
    for (running, new) in running.iter().zip(new) {
        let mut differ = |is: bool, what| {
            let name = new.name.clone();
            found.extend(is.then_some(Difference::OfServer { name, what }));
        };
        differ(running.cpu != new.cpu, "another CPU");
        differ(running.priority != new.priority, "another priority");
        differ(running.callbacks != new.callbacks, "other callbacks");
        let (had, has) = (!running.slots_ms.is_empty(), !new.slots_ms.is_empty());
        differ(!had && has, "slots, and had none");
        differ(had && !has, "no slots any more");
    }
    found
}
