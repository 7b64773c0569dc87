//! Executions and their stretches, with names.

use crate::cut::{By, Meanwhile, Piece};
use crate::kind::{call_text, Kind, Reason};
use onbeat_document::schema::{Component, ComponentKind};
use onbeat_trace::CallKind;
use serde::{Serialize, Serializer};

/// The culprit of a stretch: the callback or component that caused it. Names come from the recorded
/// system: escape them before showing.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// A callback that ran during the stretch, by its id.
    Callback(String),
    /// The component that had the CPU.
    Thread(Component),
    MutexOf(Component),
    WokenBy(Component),
    /// The kind of call in which the thread slept, if no thread of its process woke it up.
    #[serde(serialize_with = "word")]
    Call(CallKind),
    /// The port of a UDP socket of the receiver, which dropped datagrams because it was full.
    Socket(u16),
}

fn word<S: Serializer>(call: &CallKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(call.word())
}

impl Culprit {
    /// Returns the culprit in words, such as `mutex held by /map (map)`.
    pub fn text(&self) -> String {
        match self {
            Culprit::Callback(id) => id.clone(),
            Culprit::Thread(component) => title(component),
            Culprit::MutexOf(component) => format!("mutex held by {}", title(component)),
            Culprit::WokenBy(component) => format!("woken by {}", title(component)),
            Culprit::Call(call) => call_text(*call).into(),
            Culprit::Socket(port) => format!("datagrams dropped at a full socket (port {port})"),
        }
    }
}

/// Returns a component in words, such as `/map (map)`.
pub fn title(component: &Component) -> String {
    match component.kind {
        ComponentKind::Untold => "an unknown thread".into(),
        _ => component.title(),
    }
}

/// The state of a culprit during a stretch, and what caused this state.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct During {
    pub kind: Kind,
    /// The callback or component that caused the state of the culprit's thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Culprit>,
}

impl During {
    /// Returns the state as the rest of a sentence about the culprit, such as `was preempted by
    /// /camera (camera)`.
    pub fn text(&self) -> String {
        let by = self.by.as_ref().map(Culprit::text);
        let with = |word: &str| {
            by.as_ref()
                .map_or(String::new(), |by| format!(" {word} {by}"))
        };
        match self.kind {
            Kind::Runs => match by {
                Some(by) => format!("ran {by}"),
                None => "ran".into(),
            },
            Kind::Library => "ran the client library".into(),
            Kind::Preempted => format!("was preempted{}", with("by")),
            Kind::Queued => format!("waited for a CPU{}", with("behind")),
            Kind::Throttled => "was throttled".into(),
            Kind::Sleeps => match &self.by {
                Some(Culprit::Call(call)) => format!("slept in {}", call_text(*call)),
                Some(Culprit::Callback(id)) => format!("waited for the response of {id}"),
                Some(Culprit::MutexOf(owner)) => {
                    format!("slept, waiting for a mutex held by {}", title(owner))
                }
                Some(culprit) => format!("slept, {}", culprit.text()),
                None => "slept".into(),
            },
            Kind::Executor => format!("waited for its executor{}", with("behind")),
            Kind::Transport => "waited for an item that was still in transport".into(),
            Kind::Inputs => format!("waited{}", with("for")),
            Kind::Timer => "waited for a timer".into(),
            Kind::Held => "waited for an item that a shaper held back".into(),
            Kind::Stolen => "lost its CPU to the host".into(),
            Kind::Unknown => "did something that the recording does not show".into(),
        }
    }

    /// Reports whether a text should mention the culprit's state. Returns false if the culprit only
    /// ran its own code or the client library.
    pub(crate) fn is_telling(&self) -> bool {
        self.by.is_some() || !matches!(self.kind, Kind::Runs | Kind::Library)
    }
}

/// A part of an execution's latency with one cause.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// The start of the stretch, in ns from the start of the execution.
    pub begin_ns: u64,
    pub ns: u64,
    /// The id of the callback or synchroniser to whose part of the latency the stretch belongs. The
    /// time before a callback's start belongs to the callback.
    pub place: String,
    pub kind: Kind,
    /// The callback, thread or mutex owner that caused the stretch. `None` if stretches of this
    /// kind have no culprit, or if the culprit is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Culprit>,
    /// The state that the culprit was in during the stretch. `None` if the culprit ran on a CPU
    /// without interruption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub during: Option<During>,
    /// The reason why the kind is unknown. `None` for all other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The number of the CPU on which the thread ran, or for which it waited. `None` if it did
    /// neither, or if the recording does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u16>,
}

impl Stretch {
    /// Returns the cause in words, such as `preempted by /camera (camera)`, without the state of
    /// the culprit.
    pub fn text(&self) -> String {
        let by = self.by.as_ref().map(Culprit::text);
        let with = |word: &str| {
            by.as_ref()
                .map_or(String::new(), |by| format!(" {word} {by}"))
        };
        match self.kind {
            Kind::Runs => match &by {
                Some(inner) => format!("runs {inner} within"),
                None => "runs".into(),
            },
            Kind::Library => "client library runs".into(),
            Kind::Preempted => format!("preempted{}", with("by")),
            Kind::Queued => format!("queued for a CPU{}", with("behind")),
            Kind::Throttled => "throttled: its CPU time is used up".into(),
            Kind::Sleeps => match &self.by {
                Some(Culprit::Call(call)) => format!("sleeps in {}", call_text(*call)),
                Some(Culprit::Callback(id)) => format!("sleeps, waiting for the response of {id}"),
                Some(Culprit::MutexOf(owner)) => {
                    format!("sleeps, waiting for a mutex held by {}", title(owner))
                }
                Some(culprit) => format!("sleeps, {}", culprit.text()),
                None => "sleeps".into(),
            },
            Kind::Executor => match &by {
                Some(by) => format!("waits for its executor behind {by}"),
                None => "executor sleeps although the callback is due".into(),
            },
            Kind::Transport => match &self.by {
                Some(Culprit::Callback(outer)) => {
                    format!("waits for {outer}, which runs this callback within its own execution")
                }
                Some(culprit) => format!("transport, {}", culprit.text()),
                None => "transport".into(),
            },
            Kind::Inputs => format!("waits{}", with("for")),
            Kind::Timer => "stored data wait for the timer".into(),
            Kind::Held => "held by a shaper until its slot".into(),
            Kind::Stolen => "CPU stolen by the host".into(),
            Kind::Unknown => match self.reason {
                Some(reason) => format!("unknown: {}", reason.text()),
                None => "unknown".into(),
            },
        }
    }
}

/// An execution of a chain, from its start to its output, or of a callback together with the wait
/// before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Execution {
    /// The start of the execution, CLOCK_MONOTONIC in ns.
    pub start_ns: u64,
    /// The latency in ns, which is the sum of all stretches.
    pub latency_ns: u64,
    /// The latency is above the limit of the question.
    pub late: bool,
    /// The stretches in order of time, without gaps.
    pub stretches: Vec<Stretch>,
}

pub(crate) struct Names {
    pub(crate) ids: Vec<Option<String>>,
    pub(crate) components: Vec<Component>,
}

impl Names {
    pub(crate) fn id(&self, callback: u32) -> String {
        let id = self.ids.get(callback as usize).cloned().flatten();
        id.unwrap_or_else(|| "a callback without a name".into())
    }

    /// Replaces the number of a culprit by its name. A thread in `by` must be given by the number
    /// of its component.
    pub(crate) fn culprit(&self, by: By) -> Option<Culprit> {
        let component = |n: u32| self.components.get(n as usize).cloned();
        match by {
            By::Nobody | By::Reason(_) => None,
            By::Callback(callback) => Some(Culprit::Callback(self.id(callback))),
            By::Thread(n) => component(n).map(Culprit::Thread),
            By::Owner(n) => component(n).map(Culprit::MutexOf),
            By::Waker(n) => component(n).map(Culprit::WokenBy),
            By::Call(call) => Some(Culprit::Call(call)),
            By::Socket(port) => Some(Culprit::Socket(port)),
        }
    }

    pub(crate) fn during(&self, meanwhile: Meanwhile) -> During {
        During {
            kind: meanwhile.kind,
            by: self.culprit(meanwhile.by),
        }
    }

    pub(crate) fn stretch(&self, piece: &Piece, start: u64) -> Stretch {
        Stretch {
            begin_ns: piece.begin - start,
            ns: piece.end - piece.begin,
            place: self.id(piece.place),
            kind: piece.kind,
            by: self.culprit(piece.by),
            during: piece.meanwhile.map(|m| self.during(m)),
            reason: match piece.by {
                By::Reason(reason) => Some(reason),
                _ => None,
            },
            cpu: piece.cpu,
        }
    }
}
