//! What made callbacks wait: the influence of components on one another (thesis section 3.8).

use serde::{Deserialize, Serialize};

/// What kind of component made a callback wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentKind {
    /// A thread of a process.
    Thread,
    /// A thread of the kernel.
    Kernel,
    /// Nobody: the CPU was idle, and had to wake up or take the thread from another CPU.
    Idle,
    /// The host of a virtual machine.
    Host,
    /// Several that are too small to be told one by one.
    Others,
    /// A thread whose name was not recorded.
    Unnamed,
    /// The recording does not say who.
    Untold,
}

/// What made a callback wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Component {
    /// What it is.
    pub kind: ComponentKind,
    /// Full names of the nodes of its process, sorted (untrusted); none where it has none, or they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Name of its process (untrusted); empty for those with nodes, and where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// Name of the thread (untrusted).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
}

impl Component {
    /// One that has no name.
    pub fn of(kind: ComponentKind) -> Component {
        Component {
            kind,
            nodes: Vec::new(),
            process: String::new(),
            thread: String::new(),
        }
    }

    /// In words, with the process's nodes or name before the thread's.
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

/// How long one component made a callback wait, over all executions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Who.
    #[serde(flatten)]
    pub by: Component,
    /// It had the CPU within executions that were ready to run.
    pub preempted_ns: u64,
    /// How often.
    pub preempted: u64,
    /// It had the CPU right before an execution, whose thread was ready to begin it.
    pub delayed_ns: u64,
    /// How often.
    pub delayed: u64,
    /// Executions slept until it woke them up.
    pub blocked_ns: u64,
    /// How often.
    pub blocked: u64,
}

impl Cause {
    /// All its times.
    pub fn total_ns(&self) -> u64 {
        let sum = self.preempted_ns.saturating_add(self.delayed_ns);
        sum.saturating_add(self.blocked_ns)
    }
}
