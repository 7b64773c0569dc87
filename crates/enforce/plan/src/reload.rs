//! Decides whether one plan can replace another while it runs. Only the slots may differ, and
//! values that follow from them.

use crate::schema::{Ms, Output, Plan, Server};
use onbeat_document::text::{shorten, visible};
use std::fmt;

/// A difference that prevents a new plan from replacing the running one. The difference concerns
/// values that onbeat fixes when it assigns threads and remaps topics.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    Cycle {
        running: Ms,
        new: Ms,
    },
    /// The callback whose release begins a cycle differs. The field has the id of the callback in
    /// the new plan.
    Origin(String),
    /// The plans have different chains, or their chains have different callbacks or outputs.
    Chains,
    /// Only one of the two plans has this server, or the server has another index in the list of
    /// servers.
    Server(String),
    /// The CPU, priority or callbacks of a server differ, or only one of the plans gives the server
    /// slots.
    OfServer {
        name: String,
        /// The end of a sentence that begins with the server: it says what differs.
        what: &'static str,
    },
    /// The plans hold back different outputs, or differ in an output's topic, publisher or server.
    Outputs,
    Inputs,
    /// The plans require different callbacks to have run before shaping begins.
    Callbacks,
    /// The plans give the middleware's threads different CPUs or priorities.
    Middleware,
    Overshoot,
}

fn name(name: &str) -> String {
    shorten(&visible(name), 80)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Cycle { running, new } => {
                write!(f, "the new plan's cycle is {new}, not {running} as in the running plan")
            }
            Difference::Origin(new) => write!(
                f,
                "the cycles of the new plan begin with another callback than those of the running plan: {}",
                name(new)
            ),
            Difference::Chains => write!(f, "the new plan has other chains than the running plan"),
            Difference::Server(server) => {
                write!(
                    f,
                    "server {} is missing in one of the two plans, or is at another position in the plan's list of servers",
                    name(server)
                )
            }
            Difference::OfServer { name: server, what } => {
                write!(f, "server {} {what}", name(server))
            }
            Difference::Outputs => write!(
                f,
                "the new plan holds back other outputs than the running plan, or holds them back in another way"
            ),
            Difference::Inputs => write!(
                f,
                "the new plan throttles other inputs than the running plan, or throttles them in another way"
            ),
            Difference::Callbacks => write!(
                f,
                "the new plan and the running plan wait for different callbacks before shaping begins"
            ),
            Difference::Middleware => write!(
                f,
                "the new plan gives the middleware's threads another CPU or priority than the running plan"
            ),
            Difference::Overshoot => write!(f, "the new plan has another policy for late outputs than the running plan"),
        }
    }
}

/// Returns the differences that prevent `new` from replacing `running`, the most general one first.
/// If the list is empty, the plans differ at most in slots, best cases, promises and texts.
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

/// Reports whether two outputs are the same. Ignores the chain's best case, which changes with each
/// measurement.
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
        differ(
            running.cpu != new.cpu,
            "has another CPU in the new plan than in the running plan",
        );
        differ(
            running.priority != new.priority,
            "has another priority in the new plan than in the running plan",
        );
        differ(
            running.callbacks != new.callbacks,
            "has other callbacks in the new plan than in the running plan",
        );
        let (had, has) = (!running.slots_ms.is_empty(), !new.slots_ms.is_empty());
        differ(
            !had && has,
            "has slots in the new plan, but none in the running plan",
        );
        differ(
            had && !has,
            "has no slots in the new plan, but some in the running plan",
        );
    }
    found
}
