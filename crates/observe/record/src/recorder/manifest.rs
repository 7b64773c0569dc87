//! Builds the manifest while a recording runs, and counts what the progress report shows.

use crate::names::node_name;
use onbeat_time::clock::{monotonic_ns, realtime_ns};
use onbeat_trace::manifest::{program, Machine, Manifest, ProbeInfo, ProcessInfo, ThreadInfo};
use onbeat_trace::{Event, EventKind};
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Default)]
pub struct RunManifest {
    pub content: Manifest,
    callbacks: HashMap<u32, HashSet<u64>>,
    callback_count: usize,
    unlisted: Unlisted,
    nodes: usize,
    events: u64,
    unresolved: HashMap<u32, usize>,
    unowned: HashMap<u32, usize>,
    unread_timers: HashMap<u32, usize>,
    unnamed: BTreeMap<u32, usize>,
}

/// The largest number of handles and of node names that the manifest lists for one process. Large
/// robots have a few hundred in total.
const OF_PROCESS_MAX: usize = 4096;
const LISTED_MAX: usize = 1 << 16;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Unlisted {
    processes: usize,
    threads: usize,
    nodes: usize,
    handles: usize,
    searches: usize,
}

impl Unlisted {
    fn sentences(self) -> Vec<String> {
        [
            (
                self.processes,
                "processes are missing in the manifest, which lists at most 65536 processes",
            ),
            (
                self.threads,
                "threads are missing in the manifest, which lists at most 65536 threads",
            ),
            (
                self.nodes,
                "nodes are missing in the manifest, which lists at most 4096 nodes of each process",
            ),
            (
                self.handles,
                "calls were not counted for the number of callbacks that the recorder shows. The recorder counts at most 4096 callbacks of each process",
            ),
            (
                self.searches,
                "searches for nodes in the memory of processes that ran before the recording took too long. onbeat stopped each of these searches after 2 s of CPU time or 6 s of elapsed time, so nodes and owners of endpoints may be unknown",
            ),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}."))
        .collect()
    }
}

impl RunManifest {
    pub fn new(mode: &str, buffer_bytes: u32) -> RunManifest {
        let content = Manifest {
            mode: mode.into(),
            machine: Machine {
                hostname: onbeat_proc::system::hostname(),
                boot_id: onbeat_proc::system::boot_id(),
                kernel: onbeat_proc::system::kernel_release(),
                recorder_version: env!("CARGO_PKG_VERSION").into(),
            },
            buffer_bytes: buffer_bytes.into(),
            ..Manifest::default()
        };
        let mut manifest = RunManifest {
            content,
            ..RunManifest::default()
        };
        manifest.start();
        manifest
    }

    pub fn start(&mut self) {
        self.content.span.start_monotonic_ns = monotonic_ns();
        self.content.span.start_realtime_ns = realtime_ns();
    }

    pub fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.content.span.start_monotonic_ns)
    }

    pub fn count(&mut self, event: &Event) {
        self.events += 1;
        match &event.kind {
            EventKind::TimerCall { timer: handle }
            | EventKind::Take {
                rmw: handle,
                taken: true,
                ..
            }
            | EventKind::RequestTake {
                rmw: handle,
                taken: true,
                ..
            }
            | EventKind::ResponseTake {
                rmw: handle,
                taken: true,
                ..
            } => {
                self.callback(event.pid, *handle);
            }
            EventKind::Exit if event.pid == event.tid => {
                self.callbacks.remove(&event.pid);
            }
            EventKind::NodeInit {
                name, namespace, ..
            } => self.node(event.pid, node_name(namespace, name)),
            EventKind::NodeFound { name, .. } => self.node(event.pid, name.to_string()),
            _ => {}
        }
    }

    fn callback(&mut self, pid: u32, handle: u64) {
        let handles = self.callbacks.entry(pid).or_default();
        if handles.len() < OF_PROCESS_MAX {
            self.callback_count += usize::from(handles.insert(handle));
        } else if !handles.contains(&handle) {
            self.unlisted.handles += 1;
        }
    }

    pub fn counts(&self) -> (u64, usize, usize) {
        (self.events, self.callback_count, self.nodes)
    }

    pub fn node(&mut self, pid: u32, name: String) {
        self.nodes += 1;
        let newest_first = self.content.observed.processes.iter_mut().rev();
        let process = newest_first.into_iter().find(|p| p.pid == pid);
        match process {
            Some(process) if process.nodes.len() >= OF_PROCESS_MAX => self.unlisted.nodes += 1,
            Some(process) if !process.nodes.contains(&name) => process.nodes.push(name),
            _ => {}
        }
    }

    pub fn process(&mut self, process: ProcessInfo) {
        let name = &process.distribution;
        if !name.is_empty() && !self.content.observed.distributions.contains(name) {
            self.content.observed.distributions.push(name.clone());
            self.content.observed.distributions.sort();
        }
        match self.content.observed.processes.len() {
            0..LISTED_MAX => self.content.observed.processes.push(process),
            _ => self.unlisted.processes += 1,
        }
    }

    pub fn thread(&mut self, thread: ThreadInfo) {
        let threads = &mut self.content.observed.threads;
        let is_same = |t: &ThreadInfo| (t.pid, t.tid) == (thread.pid, thread.tid);
        match (threads.iter().position(is_same), threads.len()) {
            (Some(known), _) => threads[known] = thread,
            (None, 0..LISTED_MAX) => threads.push(thread),
            (None, _) => self.unlisted.threads += 1,
        }
    }

    pub fn unresolved(&mut self, pid: u32, count: usize) {
        if count > 0 && (self.unresolved.len() < LISTED_MAX || self.unresolved.contains_key(&pid)) {
            *self.unresolved.entry(pid).or_default() += count;
        }
    }

    pub fn not_searched(&mut self) {
        self.unlisted.searches += 1;
    }

    pub fn unowned(&mut self, pid: u32, count: usize) {
        self.unowned.insert(pid, count);
    }

    pub fn unread_timer(&mut self, pid: u32) {
        *self.unread_timers.entry(pid).or_default() += 1;
    }

    pub fn unnamed_topic(&mut self, pid: u32) {
        if self.unnamed.len() < LISTED_MAX || self.unnamed.contains_key(&pid) {
            *self.unnamed.entry(pid).or_default() += 1;
        }
    }

    pub fn lost(&mut self, kind: &str, cpu: u16, total: u64) {
        let by_cpu = self.content.lost.entry(kind.into()).or_default();
        by_cpu.insert(cpu, total);
    }

    pub fn update(&mut self, probes: Vec<ProbeInfo>, left_out: Vec<String>) {
        self.content.span.duration_ns = self.elapsed_ns();
        self.content.coverage = coverage(&probes);
        self.content.coverage.extend(left_out);
        self.content.coverage.extend(self.unlisted.sentences());
        self.content.observed.probes = probes;
        self.content.not_recovered = self.not_recovered();
    }

    fn not_recovered(&self) -> Vec<String> {
        // Tasks of onbeat-flow report their names and periods at their next call.
        let late = self.content.observed.processes.iter().filter(|p| p.late);
        late.flat_map(|process| {
            if process.distribution.is_empty() {
                return dds_not_recovered(process).into_iter().collect();
            }
            let unresolved = self.unresolved.get(&process.pid).copied();
            let unowned = self.unowned.get(&process.pid).copied();
            let mut sentences = not_recovered(process, unresolved.unwrap_or(0), unowned);
            sentences.extend(self.timers_not_recovered(process));
            sentences
        })
        .chain(self.topics_not_known())
        .collect()
    }

    fn topics_not_known(&self) -> impl Iterator<Item = String> + '_ {
        self.unnamed.iter().map(|(pid, count)| {
            let process = self.content.observed.processes.iter().rev().find(|p| p.pid == *pid);
            let command = process.map_or("", |p| &p.command);
            format!(
                "process {pid} ({}): {count} of its readers and writers are not in the model, because their topics are built into the middleware or were made before the recording.",
                program(command)
            )
        })
    }

    fn timers_not_recovered(&self, process: &ProcessInfo) -> Option<String> {
        let count = self.unread_timers.get(&process.pid)?;
        let who = format!("process {} ({})", process.pid, program(&process.command));
        Some(format!(
            "{who} ran before the recording: {count} of its timers could not be read. The periods of these timers come from their calls. It is unknown whether these timers use simulated time."
        ))
    }

    pub fn notes(&self, lost: u64) -> Vec<String> {
        let mut notes = self.content.coverage.clone();
        notes.extend(self.content.not_recovered.iter().cloned());
        if lost > 0 {
            notes.push(format!(
                "{lost} events were lost because the ring buffer was full. Record with a larger --buffer than {} MiB.",
                self.content.buffer_bytes >> 20
            ));
        }
        notes
    }
}

/// Describes the facts that onbeat could not recover about a process that uses DDS without ROS 2
/// and ran before the recording. Returns `None` for a process without DDS.
fn dds_not_recovered(process: &ProcessInfo) -> Option<String> {
    let who = format!("process {} ({})", process.pid, program(&process.command));
    let sentence = format!(
        "{who} ran before the recording: the topics of its earlier {} readers and writers are unknown, so these readers and writers are not in the model.",
        process.rmw
    );
    (!process.rmw.is_empty()).then_some(sentence)
}

fn not_recovered(process: &ProcessInfo, unresolved: usize, unowned: Option<usize>) -> Vec<String> {
    let who = format!("process {} ({})", process.pid, program(&process.command));
    let mut sentences = Vec::new();
    match process.nodes.len() {
        0 => sentences.push(format!(
            "{who} ran before the recording: the names of its nodes are unknown."
        )),
        1 => {}
        nodes if unowned.is_some() => {
            if let Some(endpoints @ 1..) = unowned {
                sentences.push(format!(
                    "{who} ran before the recording: it has {nodes} nodes, and it is unknown which node owns each of {endpoints} endpoints."
                ));
            }
        }
        nodes => sentences.push(format!(
            "{who} ran before the recording: it has {nodes} nodes, and it is unknown which node owns each endpoint."
        )),
    }
    if unresolved > 0 {
        sentences.push(format!(
            "{who}: the names of {unresolved} endpoints in its wait sets were not found."
        ));
    }
    sentences
}

fn coverage(probes: &[ProbeInfo]) -> Vec<String> {
    let mut by_library: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for probe in probes.iter().filter(|p| !p.attached) {
        let consequence = probe.consequence.as_deref();
        let key = (
            &*probe.library,
            consequence.unwrap_or("unknown consequences"),
        );
        by_library.entry(key).or_default().push(&probe.name);
    }
    by_library
        .into_iter()
        .map(|((library, consequence), mut names)| {
            names.dedup();
            let names = names.join(", ");
            format!("{library}: no probe on {names}: {consequence}.")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_probes_are_reported_with_their_consequence() {
        let probe = |name: &str, attached| ProbeInfo {
            name: name.into(),
            library: "/l/librcl.so".into(),
            attached,
            consequence: (!attached).then(|| "brackets are coarse".into()),
            ..ProbeInfo::default()
        };
        let sentences = coverage(&[
            probe("rcl_wait", false),
            probe("rcl_timer_call", true),
            probe("rcl_x", false),
        ]);
        assert_eq!(
            sentences,
            ["/l/librcl.so: no probe on rcl_wait, rcl_x: brackets are coarse."]
        );
    }

    fn process(pid: u32, late: bool, distribution: &str) -> ProcessInfo {
        ProcessInfo {
            pid,
            command: "talker".into(),
            distribution: distribution.into(),
            rmw: String::new(),
            late,
            nodes: Vec::new(),
        }
    }

    #[test]
    fn nodes_belong_to_the_latest_process_with_their_id() {
        let mut manifest = RunManifest::new("", 4096);
        manifest.process(process(7, false, "kilted"));
        manifest.node(7, "/old".into());
        manifest.process(process(7, false, "jazzy"));
        manifest.node(7, "/new".into());
        manifest.node(7, "/new".into());
        let nodes: Vec<_> = manifest
            .content
            .observed
            .processes
            .iter()
            .map(|p| &p.nodes[..])
            .collect();
        assert_eq!(nodes, [["/old"], ["/new"]]);
        assert_eq!(manifest.content.observed.distributions, ["jazzy", "kilted"]);
        assert_eq!(manifest.counts(), (0, 0, 3));
    }

    #[test]
    fn unknown_facts_about_late_processes_are_reported() {
        let mut manifest = RunManifest::new("", 4096);
        manifest.process(process(1, false, "kilted"));
        manifest.process(process(2, true, ""));
        assert!(manifest.not_recovered().is_empty());
        let mut plain = process(4, true, "");
        plain.rmw = "fastdds".into();
        manifest.process(plain);
        assert!(manifest.not_recovered()[0].contains("earlier fastdds readers"));
        manifest.content.observed.processes.pop();
        manifest.process(process(3, true, "kilted"));
        manifest.unresolved(3, 2);
        for _ in 0..5 {
            manifest.unread_timer(3);
        }
        let sentences = manifest.not_recovered();
        assert_eq!(sentences.len(), 3, "{sentences:?}");
        assert!(sentences[0].contains("names of its nodes are unknown"));
        assert!(sentences[1].contains("2 endpoints"));
        assert!(sentences[2].contains("5 of its timers"));
        let mut of_dds = RunManifest::new("", 4096);
        (0..3).for_each(|_| of_dds.unnamed_topic(4));
        let sentences = of_dds.not_recovered();
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        assert!(sentences[0].contains("process 4") && sentences[0].contains("3 of its readers"));
        manifest.node(3, "/a".into());
        assert_eq!(manifest.not_recovered().len(), 2);
        manifest.node(3, "/b".into());
        assert!(manifest.not_recovered()[0].contains("it has 2 nodes"));
    }

    #[test]
    fn manifest_entries_beyond_the_limits_are_counted_and_reported() {
        let mut manifest = RunManifest::new("", 4096);
        manifest.process(process(7, false, "kilted"));
        for handle in 0..5000 {
            manifest.callback(7, handle);
            manifest.callback(7, handle);
            manifest.node(7, format!("/n{handle}"));
        }
        manifest.callback(8, 1);
        assert_eq!(manifest.counts(), (0, OF_PROCESS_MAX + 1, 5000));
        assert_eq!(
            manifest.content.observed.processes[0].nodes.len(),
            OF_PROCESS_MAX
        );
        for pid in 0..LISTED_MAX as u32 {
            manifest.process(process(pid, false, ""));
        }
        assert_eq!(manifest.content.observed.processes.len(), LISTED_MAX);
        manifest.update(Vec::new(), vec!["left out.".into()]);
        let said = &manifest.content.coverage;
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[1].starts_with("1 processes"), "{said:?}");
        assert!(said[2].starts_with("904 nodes"), "{said:?}");
        assert!(said[3].starts_with("1808 calls"), "{said:?}");
    }

    #[test]
    fn each_handle_counts_as_one_callback() {
        let mut manifest = RunManifest::new("", 4096);
        let take = |rmw, taken| Event {
            time_ns: 0,
            cpu: 0,
            pid: 7,
            tid: 7,
            kind: EventKind::Take {
                rmw,
                message: 0,
                source_ns: 0,
                taken,
            },
        };
        for event in [take(1, true), take(1, true), take(2, true), take(3, false)] {
            manifest.count(&event);
        }
        assert_eq!(manifest.counts(), (4, 2, 0));
    }
}
