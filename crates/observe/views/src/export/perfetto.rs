//! Exports a recording as a time line for ui.perfetto.dev (JSON trace events). It shows callbacks
//! as slices of their threads, items as arrows, and the threads that ran on each CPU. The caller can
//! add tracks of its own.
//!
//! The ids of callbacks are known only at the end of a recording. So its events are read twice:
//! first for [`names`], then for the output.

use onbeat_document::schema::Run;
use onbeat_document::text::visible;
use onbeat_synth::observe::Observation;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{Event, EventKind};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The process id of the track *CPUs* in the timeline. It is above every real process id.
const CPUS: u32 = 1 << 23;

const CHAINS_PID: u32 = CPUS + 1;

/// The ids of a recording's callbacks, by the number that synthesis gives them.
#[derive(Debug, Clone)]
pub struct Names(Vec<Option<String>>);

impl Names {
    /// Creates the names from the ids of callbacks, in the order of their numbers. `None` stands
    /// for a callback that the model leaves out.
    pub fn new(ids: Vec<Option<String>>) -> Names {
        Names(ids)
    }

    pub(super) fn of(&self, callback: u32) -> Option<&str> {
        self.0.get(callback as usize)?.as_deref()
    }
}

/// Reads the events once to find the ids of callbacks, which are known only at the end.
pub fn names(run: Run, events: impl Iterator<Item = Event>) -> Names {
    let mut synth = Synth::new(SynthOptions::new(run));
    events.for_each(|e| synth.push(&e));
    synth.end_of_events();
    Names(synth.callback_ids())
}

/// A slice that the caller adds to a track of the timeline.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    /// The number of the track, as given to [`Timeline::track`].
    pub track: u32,
    /// The category by which Perfetto can filter slices.
    pub category: &'static str,
    /// The name that Perfetto shows on the slice. The name is untrusted text.
    pub name: &'a str,
    /// The start of the slice in ns (CLOCK_MONOTONIC).
    pub begin_ns: u64,
    pub ns: u64,
    /// The details that Perfetto shows for the slice, each with a name and a text. The texts are
    /// untrusted.
    pub args: &'a [(&'static str, String)],
}

/// Writes a timeline for Perfetto, in a second pass over the events.
pub struct Timeline<W: Write> {
    out: W,
    names: Names,
    synth: Synth,
    start_ns: Option<u64>,
    now_ns: u64,
    /// For each CPU: the time since which the thread runs, and the thread's id. Thread 0 means
    /// idle.
    cpus: BTreeMap<u16, (u64, u32)>,
    threads: BTreeMap<u32, String>,
    first: bool,
    slices: u64,
    tracks: u64,
}

fn text(name: &str) -> String {
    serde_json::Value::from(onbeat_document::text::shorten(&visible(name), 300)).to_string()
}

/// Returns a number for an item, which is the same at its publication and at its take. The number
/// is below 2^53, so JSON keeps it exactly.
fn item(name: u32, time_ns: u64) -> u64 {
    let mixed = (u64::from(name) << 48 ^ time_ns).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 12
}

impl<W: Write> Timeline<W> {
    /// Begins the timeline for the recording `run`.
    pub fn new(mut out: W, names: Names, run: Run) -> io::Result<Self> {
        let mut synth = Synth::new(SynthOptions::new(run));
        synth.observe();
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut timeline = Timeline {
            out,
            names,
            synth,
            start_ns: None,
            now_ns: 0,
            cpus: BTreeMap::new(),
            threads: BTreeMap::new(),
            first: true,
            slices: 0,
            tracks: 0,
        };
        timeline.write(format_args!(
            "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{CPUS},\"args\":{{\"name\":\"CPUs\"}}}}"
        ))?;
        Ok(timeline)
    }

    fn write(&mut self, entry: std::fmt::Arguments) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) {
            "\n"
        } else {
            ",\n"
        };
        write!(self.out, "{comma}{entry}")
    }

    fn at(&self, time_ns: u64) -> String {
        micros(time_ns.saturating_sub(self.start_ns.unwrap_or(time_ns)))
    }

    /// Takes the next event, and writes the slices that end with it. Events must come in order of
    /// time.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        self.start_ns.get_or_insert(event.time_ns);
        self.now_ns = self.now_ns.max(event.time_ns);
        let (pid, tid) = (event.pid, event.tid);
        match &event.kind {
            EventKind::Process { command, .. } => self.write(format_args!(
                "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{{\"name\":{}}}}}",
                text(onbeat_trace::manifest::program(command))
            ))?,
            EventKind::Thread { comm, .. }
            | EventKind::Fork { comm, .. }
            | EventKind::Exec { comm } => {
                self.threads.insert(tid, comm.to_string());
                self.write(format_args!(
                    "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{}}}}}",
                    text(comm)
                ))?;
            }
            EventKind::SwitchIn { .. } => {
                self.leave_cpu(event.cpu, event.time_ns)?;
                if !self.cpus.contains_key(&event.cpu) {
                    self.write(format_args!(
                        "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{CPUS},\"tid\":{0},\"args\":{{\"name\":\"CPU {0}\"}}}}",
                        event.cpu
                    ))?;
                }
                self.cpus.insert(event.cpu, (event.time_ns, tid));
            }
            EventKind::SwitchOut { .. } => {
                self.leave_cpu(event.cpu, event.time_ns)?;
                self.cpus.insert(event.cpu, (event.time_ns, 0));
            }
            EventKind::Stolen { stolen_ns } => {
                let at = self.at(event.time_ns);
                self.write(format_args!(
                    "{{\"ph\":\"i\",\"s\":\"t\",\"name\":{},\"pid\":{CPUS},\"tid\":{},\"ts\":{at}}}",
                    text(&format!("the host had the CPU for {:.3} ms", *stolen_ns as f64 / 1e6)),
                    event.cpu
                ))?;
            }
            EventKind::Exit => {
                self.threads.remove(&tid);
            }
            EventKind::Lost { probe, count } => {
                let at = self.at(event.time_ns);
                self.write(format_args!(
                    "{{\"ph\":\"i\",\"s\":\"g\",\"name\":{},\"pid\":{CPUS},\"tid\":{},\"ts\":{at}}}",
                    text(&format!("{count} events of {probe} lost")),
                    event.cpu
                ))?;
            }
            _ => {}
        }
        self.synth.push(event);
        self.flush()
    }

    fn leave_cpu(&mut self, cpu: u16, time_ns: u64) -> io::Result<()> {
        let Some(&(since, tid)) = self.cpus.get(&cpu).filter(|c| c.1 != 0) else {
            return Ok(());
        };
        let name = match self.threads.get(&tid) {
            Some(name) => text(&format!(
                "{} {tid}",
                onbeat_document::text::shorten(name, 40)
            )),
            None => text(&format!("thread {tid}")),
        };
        let (at, long) = (self.at(since), micros(time_ns.saturating_sub(since)));
        self.write(format_args!(
            "{{\"ph\":\"X\",\"cat\":\"sched\",\"name\":{name},\"pid\":{CPUS},\"tid\":{cpu},\"ts\":{at},\"dur\":{long}}}"
        ))
    }

    fn flush(&mut self) -> io::Result<()> {
        let seen: Vec<Observation> = self.synth.drain_observations().collect();
        for seen in seen {
            match seen {
                Observation::Execution {
                    callback,
                    pid,
                    tid,
                    start_ns,
                    end_ns,
                    exec_ns,
                } => {
                    let name = text(self.names.of(callback).unwrap_or("callback"));
                    let (at, long) = (self.at(start_ns), micros(end_ns.saturating_sub(start_ns)));
                    self.slices += 1;
                    let exec = exec_ns
                        .map_or_else(String::new, |ns| format!("\"exec_us\":{}", micros(ns)));
                    self.write(format_args!(
                        "{{\"ph\":\"X\",\"cat\":\"callback\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\
                         \"ts\":{at},\"dur\":{long},\"args\":{{{exec}}}}}"
                    ))?;
                }
                Observation::Published {
                    name,
                    time_ns,
                    pid,
                    tid,
                } => {
                    self.arrow("\"s\"", name, time_ns, time_ns, pid, tid)?;
                }
                Observation::Taken {
                    name,
                    published_ns,
                    start_ns,
                    pid,
                    tid,
                } => {
                    self.arrow("\"f\",\"bp\":\"e\"", name, published_ns, start_ns, pid, tid)?;
                }
                Observation::Left { .. } => {}
            }
        }
        Ok(())
    }

    fn arrow(
        &mut self,
        end: &str,
        name: u32,
        published_ns: u64,
        time_ns: u64,
        pid: u32,
        tid: u32,
    ) -> io::Result<()> {
        let (topic, at) = (text(self.synth.name(name)), self.at(time_ns));
        let id = item(name, published_ns);
        self.write(format_args!(
            "{{\"ph\":{end},\"cat\":\"item\",\"name\":{topic},\"id\":{id},\"pid\":{pid},\"tid\":{tid},\"ts\":{at}}}"
        ))
    }

    /// Adds a track below *Chains* with this number and name.
    pub fn track(&mut self, number: u32, name: &str) -> io::Result<()> {
        if self.tracks == 0 {
            self.write(format_args!(
                "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{CHAINS_PID},\"args\":{{\"name\":\"Chains\"}}}}"
            ))?;
        }
        self.tracks += 1;
        let name = text(name);
        self.write(format_args!(
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{CHAINS_PID},\"tid\":{number},\"args\":{{\"name\":{name}}}}}"
        ))
    }

    /// Adds a slice to a track. Two slices of a track must not overlap in part: the one that begins
    /// later lies within the other one or after it.
    pub fn slice(&mut self, slice: &Slice) -> io::Result<()> {
        let (name, category, track) = (text(slice.name), slice.category, slice.track);
        let (at, long) = (self.at(slice.begin_ns), micros(slice.ns));
        let args = slice.args.iter();
        let args: Vec<String> = args
            .map(|(name, said)| format!("{}:{}", text(name), text(said)))
            .collect();
        self.write(format_args!(
            "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{name},\"pid\":{CHAINS_PID},\"tid\":{track},\
             \"ts\":{at},\"dur\":{long},\"args\":{{{}}}}}",
            args.join(",")
        ))
    }

    /// Ends the timeline and returns the number of its executions.
    pub fn finish(mut self) -> io::Result<u64> {
        self.synth.end_of_events();
        self.flush()?;
        let cpus: Vec<u16> = self.cpus.keys().copied().collect();
        for cpu in cpus {
            self.leave_cpu(cpu, self.now_ns)?;
        }
        writeln!(self.out, "\n]}}")?;
        self.out.flush()?;
        Ok(self.slices)
    }
}

fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
