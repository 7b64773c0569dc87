//! One measurement: an arm carries a number of streams, and its CPU time, memory and delays are
//! read.

use super::arms::{Arm, Programs, DEPTH};
use super::kpis::{self, Log, StreamKpis};
use super::seat::Seat;
use crate::frame::files;
use crate::frame::{Context, LabError, Result};
use crate::measure::peer::{start_all, stop_all, Peer};
use crate::measure::stats::mean;
use crate::measure::streams::{Arrivals, Kind};
use onbeat_proc::system::{self, CpuTicks};
use onbeat_time::clock;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONNECT_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(20);
const LEAD: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
pub struct Setting {
    pub scenario: &'static str,
    pub kind: Kind,
    pub arrivals: Vec<Arrivals>,
    /// The path of the files with the arrivals, without the number of the stream and `.csv`.
    pub files: PathBuf,
}

impl Setting {
    pub fn new(
        scenario: &'static str,
        kind: Kind,
        arrivals: Vec<Arrivals>,
        work: &Path,
    ) -> Result<Setting> {
        let files = work.join(format!("{}-{scenario}-{}-", kind.name, arrivals.len()));
        for (k, stream) in arrivals.iter().enumerate() {
            let path = PathBuf::from(format!("{}{k}.csv", files.display()));
            std::fs::write(&path, stream.text()).map_err(LabError::file("writing", path))?;
        }
        Ok(Setting {
            scenario,
            kind,
            arrivals,
            files,
        })
    }

    pub fn streams(&self) -> usize {
        self.arrivals.len()
    }

    pub fn length_ns(&self) -> u64 {
        let ends = self.arrivals.iter().map(Arrivals::length_ns);
        ends.max().unwrap_or(0)
    }
}

#[derive(Debug, Clone)]
pub struct Measured {
    pub cpu: f64,
    pub cpu_s: f64,
    pub processing: f64,
    pub rss_mb: f64,
    pub pss_mb: f64,
    pub streams: Vec<StreamKpis>,
    pub logs: Vec<Log>,
    pub start_ns: i64,
    pub others: f64,
    pub killed: usize,
    pub complete: bool,
}

impl Measured {
    fn mean(&self, of: impl Fn(&StreamKpis) -> f64) -> f64 {
        mean(&self.streams.iter().map(of).collect::<Vec<_>>())
    }

    pub fn delay_us(&self) -> f64 {
        self.mean(|s| s.delay_us)
    }

    pub fn jitter_ms(&self) -> f64 {
        self.mean(|s| s.jitter_ms)
    }

    pub fn cycles_ms(&self) -> f64 {
        self.mean(|s| s.cycles_ms)
    }

    pub fn loss(&self) -> f64 {
        self.mean(|s| s.loss)
    }

    pub fn misplaced(&self) -> usize {
        self.streams.iter().map(|s| s.misplaced).sum()
    }

    pub fn delays_us(&self) -> impl Iterator<Item = f64> + '_ {
        let all = self.logs.iter().flat_map(|l| &l.received);
        all.map(|r| (r.out_ns - r.sent_ns) as f64 / 1e3)
    }
}

struct Reading {
    at_ns: i64,
    used_ns: u64,
    busy_s: f64,
}

impl Reading {
    fn take(peers: &[Peer], cpu: usize) -> Result<Reading> {
        let ticks = CpuTicks::now(Some(cpu));
        let busy = (ticks.used + ticks.stolen) as f64;
        Ok(Reading {
            at_ns: clock::monotonic_ns() as i64,
            used_ns: peers.iter().map(Peer::cpu_ns).sum::<Result<u64>>()?,
            busy_s: busy / system::ticks_per_second() as f64,
        })
    }
}

struct Window {
    start_ns: i64,
    from: Reading,
    to: Reading,
    rss_kib: u64,
    pss_kib: u64,
    killed: usize,
    complete: bool,
}

/// Measures an arm once with the streams of `setting`. `serial` is a number that no other
/// measurement has, and becomes part of file names.
pub fn measure(
    context: &Context,
    programs: &Programs,
    arm: &Arm,
    setting: &Setting,
    serial: usize,
    seat: &Seat,
    work: &Path,
) -> Result<Measured> {
    let name = format!("queues_{}_{serial}", std::process::id());
    let log = work.join(format!("{serial}-{}-", arm.name));
    let words = [
        format!("bytes={}", setting.kind.bytes),
        format!("depth={DEPTH}"),
        format!("name={name}"),
        format!("arrivals={}", setting.files.display()),
        format!("log={}", log.display()),
    ];
    let mut peers = programs.start(context, arm, setting.streams(), &words, seat, &log)?;
    let until = Instant::now() + CONNECT_LIMIT;
    for peer in &mut peers {
        if peer.hear("ready", until)?.is_none() {
            let why = format!(
                "the program did not connect within {} s",
                CONNECT_LIMIT.as_secs()
            );
            return Err(LabError::program(arm.name, why + &peer.last_error()));
        }
    }
    let window = carry(peers, Duration::from_nanos(setting.length_ns()), seat.cpu)?;
    let mut logs = vec![];
    for (k, arrivals) in setting.arrivals.iter().enumerate() {
        let path = PathBuf::from(format!("{}{k}.received.csv", log.display()));
        let text = files::text(&path)?;
        let read = kpis::parse(&text, arrivals.due_ns.len());
        logs.push(read.map_err(|why| LabError::in_file(&path, why))?);
    }
    Ok(window.measured(setting, logs))
}

fn carry(mut peers: Vec<Peer>, length: Duration, cpu: usize) -> Result<Window> {
    let start_ns = start_all(&mut peers, LEAD)?;
    sleep_until(start_ns - 1_000_000);
    let from = Reading::take(&peers, cpu)?;
    // A bottleneck may delay the streams. Messages that take twice as long count as lost.
    let until = Instant::now() + 2 * length + Duration::from_secs(2);
    let mut complete = true;
    for peer in &mut peers {
        complete &= peer.hear("done", until)?.is_some();
    }
    sleep_until(start_ns + length.as_nanos() as i64);
    let to = Reading::take(&peers, cpu)?;
    let (mut rss_kib, mut pss_kib) = (0, 0);
    for peer in &peers {
        let (rss, pss) = peer.memory_kib()?;
        rss_kib += rss;
        pss_kib += pss;
    }
    stop_all(&mut peers)?;
    let mut killed = 0;
    for peer in peers {
        killed += usize::from(!peer.succeed(END_LIMIT)?);
    }
    Ok(Window {
        start_ns,
        from,
        to,
        rss_kib,
        pss_kib,
        killed,
        complete,
    })
}

impl Window {
    fn measured(self, setting: &Setting, logs: Vec<Log>) -> Measured {
        let streams = setting.arrivals.iter().zip(&logs);
        let streams = streams.map(|(a, log)| kpis::of_stream(&a.due_ns, self.start_ns, log));
        let length_ns = (self.to.at_ns - self.from.at_ns) as f64;
        let burned: u64 = logs.iter().map(|l| l.burned_ns).sum();
        let cpu_s = self.to.used_ns.saturating_sub(self.from.used_ns) as f64 / 1e9;
        let cpu = cpu_s * 1e11 / length_ns;
        let busy = (self.to.busy_s - self.from.busy_s) * 1e11 / length_ns;
        Measured {
            cpu,
            cpu_s,
            processing: burned as f64 / length_ns * 100.0,
            rss_mb: self.rss_kib as f64 / 1024.0,
            pss_mb: self.pss_kib as f64 / 1024.0,
            streams: streams.collect(),
            logs,
            start_ns: self.start_ns,
            others: (busy - cpu).max(0.0),
            killed: self.killed,
            complete: self.complete,
        }
    }
}

fn sleep_until(ns: i64) {
    let left = ns - clock::monotonic_ns() as i64;
    if left > 0 {
        std::thread::sleep(Duration::from_nanos(left as u64));
    }
}
