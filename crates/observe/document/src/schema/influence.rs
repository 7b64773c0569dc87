//! The influence of components on one another: which components made callbacks wait (thesis section
//! 3.8).

use serde::{Deserialize, Serialize};

/// The kind of component that made a callback wait.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentKind {
    /// The component is a thread of a user process, not of the kernel and not of the host.
    Thread,
    /// The component is a thread of the kernel, for example an interrupt thread.
    Kernel,
    /// The component is an idle CPU. The idle CPU had to wake up first, or to take the thread from
    /// another CPU.
    Idle,
    /// The component is the host of a virtual machine, which took the CPU away.
    Host,
    /// Several components whose influence is too small to list.
    Others,
    Unnamed,
    /// The component is unknown, because the recording does not show it.
    Untold,
}

/// A component that made a callback wait.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Component {
    pub kind: ComponentKind,
    /// The full names of the nodes in the component's process, sorted. They are untrusted. Empty if
    /// the process has no known nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The name of the component's process. It is untrusted. Empty if the process has nodes, or if
    /// the component has no process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// The name of the component's thread. It is untrusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
}

impl Component {
    /// Returns a component of this kind with empty names.
    pub fn of(kind: ComponentKind) -> Component {
        Component {
            kind,
            nodes: Vec::new(),
            process: String::new(),
            thread: String::new(),
        }
    }

    /// Returns the component's name for users: the nodes or the name of its process, then the name
    /// of its thread.
    pub fn title(&self) -> String {
        let owner = match self.nodes.is_empty() {
            true => self.process.clone(),
            false => self.nodes.join(" and "),
        };
        match self.kind {
            ComponentKind::Thread if owner.is_empty() || owner == self.thread => {
                self.thread.clone()
            }
            ComponentKind::Thread => format!("{owner} ({})", self.thread),
            ComponentKind::Kernel => format!("kernel ({})", self.thread),
            ComponentKind::Idle => "idle CPU".into(),
            ComponentKind::Host => "host of the virtual machine".into(),
            ComponentKind::Others => "others".into(),
            ComponentKind::Unnamed => "a thread without a name".into(),
            ComponentKind::Untold => "not told".into(),
        }
    }
}

/// The time for which one component made a callback wait, over all executions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The component that had the CPU, or that woke the callback's thread up.
    #[serde(flatten)]
    pub by: Component,
    /// The time in ns for which the component had the CPU while executions that had begun were
    /// ready to run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub preempted_ns: u64,
    /// The number of preemptions that `preempted_ns` adds up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub preempted: u64,
    /// The time in ns for which the component had the CPU while threads were ready to begin an
    /// execution.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delayed_ns: u64,
    /// The number of delays that `delayed_ns` adds up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delayed: u64,
    /// The time for which executions slept until the component woke them up, in ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blocked_ns: u64,
    /// The number of sleeps that `blocked_ns` adds up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blocked: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Cause {
    /// Returns the time of preemptions, delays and sleeps together, in ns.
    pub fn total_ns(&self) -> u64 {
        let sum = self.preempted_ns.saturating_add(self.delayed_ns);
        sum.saturating_add(self.blocked_ns)
    }
}
