//! The names of threads over time.

use crate::index::NameId;
use onbeat_document::schema::ComponentKind;
use onbeat_trace::UNTOLD;
use rustc_hash::FxHashMap;

/// The number of thread names above which names of bystanders are dropped. The recorder reports
/// them again when needed.
const NAMES_MAX: usize = 1 << 16;

/// The maximum number of different causes in one run. Further causes count as *others*.
pub(crate) const CAUSES_MAX: usize = 4096;

/// The number that stands for a thread id in waits during which the hypervisor had the CPU.
pub(crate) const HOST: u32 = UNTOLD - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CauseThread {
    pub(crate) kind: ComponentKind,
    pub(crate) pid: u32,
    pub(crate) process: Option<NameId>,
    pub(crate) thread: Option<NameId>,
}

impl CauseThread {
    pub(crate) fn nobody(kind: ComponentKind) -> CauseThread {
        CauseThread {
            kind,
            pid: 0,
            process: None,
            thread: None,
        }
    }
}

/// A report that the thread `tid` has a new name, valid from the time of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    pub(crate) tid: u32,
    pub(crate) who: CauseThread,
    pub(crate) bystander: bool,
}

const KINDS: [ComponentKind; 2] = [ComponentKind::Thread, ComponentKind::Kernel];

impl Named {
    /// Returns the report as numbers. [`Named::from_words`] converts them back. Some of the numbers
    /// are indices into the names of this synthesis, so only this synthesis or a copy of it can use
    /// them.
    pub fn to_words(&self) -> [u32; 5] {
        let name = |name: Option<NameId>| name.map_or(0, |n| n.index() as u32 + 1);
        let kernel = u32::from(self.who.kind == ComponentKind::Kernel);
        let flags = kernel | u32::from(self.bystander) << 1;
        let (process, thread) = (name(self.who.process), name(self.who.thread));
        [self.tid, flags, self.who.pid, process, thread]
    }

    /// Returns the report that [`Named::to_words`] turned into numbers.
    pub fn from_words([tid, flags, pid, process, thread]: [u32; 5]) -> Named {
        let name = |n: u32| n.checked_sub(1).map(|n| NameId::new(n as usize));
        Named {
            tid,
            who: CauseThread {
                kind: KINDS[flags as usize & 1],
                pid,
                process: name(process),
                thread: name(thread),
            },
            bystander: flags & 2 != 0,
        }
    }
}

/// The components of threads, numbered in the order of their first use, for callers that keep the
/// names of threads themselves.
#[derive(Debug, Clone, Default)]
pub struct Components {
    names: ThreadNames,
    pub(crate) list: Vec<CauseThread>,
    numbers: FxHashMap<CauseThread, u32>,
}

impl Components {
    /// Sets the names of one thread.
    pub fn named(&mut self, named: &Named) {
        self.names.set(named);
    }

    /// Returns the number of the component that a thread belongs to. The argument is as for
    /// [`Synth::component_of`](super::Synth::component_of).
    pub fn number(&mut self, tid: u32) -> u32 {
        let who = self.names.who(tid);
        self.number_of(who)
    }

    /// Returns the number of the component to which the thread `tid` belongs according to `names`.
    pub fn number_in(&mut self, names: &ThreadNames, tid: u32) -> u32 {
        self.number_of(names.who(tid))
    }

    fn number_of(&mut self, who: CauseThread) -> u32 {
        if let Some(number) = self.numbers.get(&who) {
            return *number;
        }
        let who = match self.list.len() < CAUSES_MAX {
            true => who,
            false => CauseThread::nobody(ComponentKind::Others),
        };
        let list = &mut self.list;
        *self.numbers.entry(who).or_insert_with(|| {
            list.push(who);
            list.len() as u32 - 1
        })
    }
}

/// The latest names of threads by their ids.
#[derive(Debug, Clone, Default)]
pub struct ThreadNames(FxHashMap<u32, CauseThread>);

impl ThreadNames {
    /// Sets the names of one thread.
    pub fn set(&mut self, named: &Named) {
        if named.bystander && self.0.len() >= NAMES_MAX {
            // Bystanders have no process id here.
            self.0.retain(|_, who| who.pid != 0);
        }
        self.0.insert(named.tid, named.who);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(u32, &CauseThread) -> bool) {
        self.0.retain(|tid, who| stays(*tid, who));
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &CauseThread> {
        self.0.values()
    }

    /// Returns the names of the thread with the id `by`. `by` may also be 0 for an idle CPU,
    /// [`UNTOLD`] or [`HOST`].
    pub(crate) fn who(&self, by: u32) -> CauseThread {
        match by {
            0 => CauseThread::nobody(ComponentKind::Idle),
            UNTOLD => CauseThread::nobody(ComponentKind::Untold),
            HOST => CauseThread::nobody(ComponentKind::Host),
            tid => match self.0.get(&tid) {
                Some(who) => *who,
                None => CauseThread::nobody(ComponentKind::Unnamed),
            },
        }
    }
}
