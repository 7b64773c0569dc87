//! Records threads that run no callback, such as the middleware's, for `--all-threads`.
//!
//! Their names and scheduler events are recorded from the first hit of their process on.

use super::log::Log;
use super::RecordError;
use crate::kernel::Kernel;
use libbpf_rs::Link;
use onbeat_time::clock::monotonic_ns;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The interval at which threads' names are read. A thread gets its name only after its start.
const LOOK: Duration = Duration::from_secs(1);
const NAMED_MAX: usize = 1024;

pub struct AllThreads {
    link: Link,
    names: BTreeMap<u32, BTreeMap<u32, String>>,
    last_look: Instant,
    refused: Option<String>,
}

impl AllThreads {
    pub fn begin(kernel: &Kernel) -> Result<AllThreads, RecordError> {
        let refused = |reason| RecordError::Tracepoint {
            name: "list of threads (--all-threads)",
            reason,
        };
        Ok(AllThreads {
            link: kernel.attach_threads().map_err(refused)?,
            names: BTreeMap::new(),
            last_look: Instant::now(),
            refused: None,
        })
    }

    pub fn add_process(&mut self, kernel: &Kernel, pid: u32, log: &mut Log) {
        self.names.insert(pid, BTreeMap::new());
        if let Err(e) = kernel.observe_threads(&self.link) {
            self.refused = Some(e.to_string());
        }
        self.record_new_names(pid, log);
    }

    pub fn forget(&mut self, pid: u32) {
        self.names.remove(&pid);
    }

    /// Records new names of threads. Reads the names at most once a second, or immediately if
    /// `is_last` is true.
    pub fn record_names(&mut self, log: &mut Log, is_last: bool) {
        if !is_last && self.last_look.elapsed() < LOOK {
            return;
        }
        self.last_look = Instant::now();
        let pids: Vec<u32> = self.names.keys().copied().collect();
        pids.into_iter()
            .for_each(|pid| self.record_new_names(pid, log));
    }

    fn record_new_names(&mut self, pid: u32, log: &mut Log) {
        let Some(names) = self.names.get_mut(&pid) else {
            return;
        };
        let tids = onbeat_proc::threads(pid);
        names.retain(|tid, _| tids.contains(tid));
        for tid in tids.into_iter().take(NAMED_MAX) {
            let Some(stat) = onbeat_proc::Stat::of_thread(pid, tid) else {
                continue;
            };
            if names.get(&tid) != Some(&stat.name) {
                log.thread(pid, tid, monotonic_ns());
                names.insert(tid, stat.name);
            }
        }
    }

    pub fn sentence(&self) -> Option<String> {
        let why = self.refused.as_ref()?;
        Some(format!(
            "threads that ran before their process was seen have no scheduler events: {why}."
        ))
    }
}
