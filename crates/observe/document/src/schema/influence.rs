//! The influence of components on one another: which components made callbacks wait (thesis section
//! 3.8).

use serde::{Deserialize, Serialize};

/// The kind of component that made a callback wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentKind {
    /// A thread of a process.
    Thread,
    /// A thread of the kernel.
    Kernel,
    /// An idle CPU, which had to wake up or take the thread from another CPU.
    Idle,
    /// The host of a virtual machine.
    Host,
    /// Several components whose shares are too small to list.
    Others,
    /// A thread whose name was not recorded.
    Unnamed,
    /// A component that the recording does not show.
    Untold,
}

/// A component that made a callback wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Component {
    /// The kind of the component.
    pub kind: ComponentKind,
    /// The full names of the nodes of its process, sorted, untrusted. The list is empty without
    /// nodes or if they are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The name of its process, untrusted. It is empty for processes with nodes and for components
    /// without a process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// The name of the thread, untrusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
}

impl Component {
    /// Returns a component without a name.
    pub fn of(kind: ComponentKind) -> Component {
        Component {
            kind,
            nodes: Vec::new(),
            process: String::new(),
            thread: String::new(),
        }
    }

    /// Returns the component in words: the process's nodes or name, then the thread's name.
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
    /// The component that caused the wait.
    #[serde(flatten)]
    pub by: Component,
    /// The time for which the component had the CPU within executions that were ready to run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub preempted_ns: u64,
    /// The number of preemptions by the component that `preempted_ns` sums up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub preempted: u64,
    /// The time for which the component had the CPU right before an execution whose thread was
    /// ready to begin.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delayed_ns: u64,
    /// The number of delays by the component that `delayed_ns` sums up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delayed: u64,
    /// The time for which executions slept until the component woke them up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blocked_ns: u64,
    /// The number of sleeps that the component ended and that `blocked_ns` sums up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blocked: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Cause {
    /// Returns the sum of all three times.
    pub fn total_ns(&self) -> u64 {
        let sum = self.preempted_ns.saturating_add(self.delayed_ns);
        sum.saturating_add(self.blocked_ns)
    }
}
