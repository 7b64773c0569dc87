//! The processes of one arm: started once, told what to do in each round, ended in good order.

use super::peers::{Arm, Peers};
use crate::frame::children::{self, Guarded};
use crate::frame::report::Report;
use crate::frame::{Context, LabError};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Messages that a peer sends before those that count.
pub const WARM_UP: u32 = 20;

/// How long a peer may be silent: a slow start, a run, and its own limits.
const PATIENCE: Duration = Duration::from_secs(40);

/// One message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Its number.
    pub sequence: i64,
    /// When it was due to be sent.
    pub intended_ns: i64,
    /// When sending began.
    pub sent_ns: i64,
    /// When it could be read.
    pub received_ns: i64,
}

/// What a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// CPU time, ns.
    pub cpu_ns: f64,
    /// Context switches, of both kinds.
    pub switches: f64,
    /// Messages behind it.
    pub messages: f64,
}

impl Usage {
    /// The same for one message.
    pub fn each(&self) -> (f64, f64) {
        let n = self.messages.max(1.0);
        (self.cpu_ns / n, self.switches / n)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.cpu_ns += other.cpu_ns;
        self.switches += other.switches;
        self.messages += other.messages;
    }
}

/// Which processes an arm has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// A publisher, and so many subscribers.
    Processes(usize),
    /// Two threads of one process.
    Pair,
    /// One thread.
    Thread,
}

/// A process of a peer.
pub struct Peer {
    child: Guarded,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

impl Peer {
    /// Starts one.
    pub fn start(context: &Context, command: &mut Command, name: &str) -> Result<Peer, LabError> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = context.spawn(command)?;
        let (said, lines) = mpsc::channel();
        if let Some(out) = child.child().stdout.take() {
            // Ends with the pipe.
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if said.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let stdin = child.child().stdin.take();
        Ok(Peer {
            child,
            stdin,
            lines,
            name: name.to_string(),
        })
    }

    fn failed(&mut self, why: &str) -> LabError {
        let _ = self.child.end(libc::SIGKILL);
        let said = self.child.said();
        LabError::program(&self.name, format!("{why}{said}"))
    }

    /// Says a line to it.
    pub fn tell(&mut self, line: &str) -> Result<(), LabError> {
        let told = self
            .stdin
            .as_mut()
            .is_some_and(|stdin| writeln!(stdin, "{line}").is_ok());
        if told {
            Ok(())
        } else {
            Err(self.failed("it has ended"))
        }
    }

    /// Its next line, which begins with a word; the rest of it.
    pub fn hear(&mut self, word: &str) -> Result<String, LabError> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => match line.strip_prefix(word) {
                Some(rest) => Ok(rest.trim().to_string()),
                None => Err(self.failed(&format!("it said '{line}' for '{word}'"))),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => {
                Err(self.failed(&format!("no '{word}' within {} s", PATIENCE.as_secs())))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(self.failed("it has ended")),
        }
    }

    /// What its run used.
    pub fn done(&mut self) -> Result<Usage, LabError> {
        let line = self.hear("done")?;
        let numbers: Vec<f64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
        match numbers.as_slice() {
            [messages, cpu_ns, voluntary, involuntary] => Ok(Usage {
                cpu_ns: *cpu_ns,
                switches: voluntary + involuntary,
                messages: *messages,
            }),
            _ => Err(self.failed(&format!("it said 'done {line}'"))),
        }
    }
}

/// Closes the standard inputs of processes, which ends them, and waits for them.
fn end(peers: &mut [Peer]) {
    peers.iter_mut().for_each(|p| p.stdin = None);
    let until = Instant::now() + Duration::from_secs(10);
    for peer in peers {
        let left = until.saturating_duration_since(Instant::now());
        let _ = peer.child.wait(left);
    }
}

/// The processes of an arm.
pub struct Session {
    /// The receiving ones first, the sending one last.
    peers: Vec<Peer>,
    place: Place,
    /// Of each receiving process.
    subscriptions: usize,
    files: Vec<PathBuf>,
    roudi: Option<u32>,
}

/// What a run brought.
pub struct Outcome {
    /// Every message of every subscription.
    pub samples: Vec<Sample>,
    /// By all processes together; messages are counted once, however many receive them.
    pub usage: Usage,
    /// Messages that did not arrive.
    pub lost: u64,
}

/// What a run is to do.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Size of a message.
    pub bytes: usize,
    /// Messages a second.
    pub rate_hz: f64,
    /// Messages that count.
    pub count: u32,
}

impl Run {
    pub(super) fn line(&self, file: &Path) -> String {
        let Run {
            bytes,
            rate_hz,
            count,
        } = self;
        format!("run {bytes} {rate_hz} {count} {}", file.display())
    }
}

impl Session {
    /// Starts an arm's processes. A publisher runs on the first CPU, subscribers from the second on.
    pub fn start(
        context: &Context,
        peers: &Peers,
        arm: &Arm,
        place: Place,
    ) -> Result<Session, LabError> {
        let roles = match place {
            Place::Processes(_) => ("sub", "pub"),
            Place::Pair => ("", "pair"),
            Place::Thread => ("", "thread"),
        };
        Session::with_roles(context, peers, arm, place, roles)
    }

    /// The same with roles of other names for the receiving and the sending process.
    pub fn with_roles(
        context: &Context,
        peers: &Peers,
        arm: &Arm,
        place: Place,
        (receiving, sending): (&str, &str),
    ) -> Result<Session, LabError> {
        let name = peers.name();
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        let readers = match place {
            Place::Processes(n) => n,
            _ => 1,
        };
        // One process that is busy with all subscriptions: more would only wait for a CPU.
        let receivers = match place {
            Place::Processes(_) if arm.spins => 1,
            Place::Processes(n) => n,
            _ => 0,
        };
        let process = |role: &str, cpu: Option<usize>| {
            let mut command = peers.command(arm.program, arm.shares_memory)?;
            command
                .args([role, &name, &readers.to_string()])
                .arg(if arm.spins { "spin" } else { "sleep" })
                .args(arm.extra);
            if let Some(cpu) = cpu {
                children::pin(&mut command, cpu % cpus);
            }
            Peer::start(context, &mut command, arm.name)
        };
        let mut started = vec![];
        for i in 0..receivers {
            started.push(process(receiving, Some(1 + i))?);
        }
        // Two threads find their CPUs themselves.
        let cpu = if place == Place::Pair { None } else { Some(0) };
        started.push(process(sending, cpu)?);
        let files = (0..started.len())
            .map(|i| context.dir().join(format!("transport.{i}.samples")))
            .collect();
        Ok(Session {
            peers: started,
            place,
            subscriptions: readers / receivers.max(1),
            files,
            roudi: peers.roudi().filter(|_| arm.shares_memory),
        })
    }

    /// Has the processes send and receive.
    pub fn run(&mut self, run: Run) -> Result<Outcome, LabError> {
        let before = self.roudi.and_then(process_usage);
        let last = self.peers.len() - 1;
        for (peer, file) in self.peers[..last].iter_mut().zip(&self.files) {
            peer.tell(&run.line(file))?;
            peer.hear("open")?;
        }
        self.peers[last].tell(&run.line(&self.files[last]))?;
        let mut usage = Usage::default();
        // The publisher ends first.
        for (i, peer) in self.peers.iter_mut().enumerate().rev() {
            let used = peer.done()?;
            // Each process counts from its own first message, and a message for each subscription.
            let subscriptions = if i < last { self.subscriptions } else { 1 };
            let (cpu_ns, switches) = used.each();
            let times = f64::from(run.count) * subscriptions as f64;
            usage.cpu_ns += cpu_ns * times;
            usage.switches += switches * times;
        }
        usage.messages = f64::from(run.count);
        // Of the daemon what it used while the warm-up ran counts too.
        if let (Some(before), Some(after)) = (before, self.roudi.and_then(process_usage)) {
            let share = f64::from(run.count) / f64::from(run.count + WARM_UP);
            usage.cpu_ns += (after.cpu_ns - before.cpu_ns) * share;
            usage.switches += (after.switches - before.switches) * share;
        }
        let mut samples = vec![];
        for (peer, file) in self.peers.iter_mut().zip(&self.files) {
            let sends_only = matches!(self.place, Place::Processes(_)) && file == &self.files[last];
            if !sends_only {
                peer.hear("written")?;
                samples.extend(read(file)?);
            }
        }
        let subscriptions = match self.place {
            Place::Processes(n) => n as u64,
            _ => 1,
        };
        let expected = u64::from(run.count) * subscriptions;
        Ok(Outcome {
            lost: expected.saturating_sub(samples.len() as u64),
            samples,
            usage,
        })
    }

    /// Has one process send without pause and the other consume slowly; what each wrote, first the
    /// consumer, and what each used.
    pub fn stall(&mut self, run: Run) -> Result<[(Vec<Sample>, Usage); 2], LabError> {
        let (mut slow, mut flood) = ((vec![], Usage::default()), (vec![], Usage::default()));
        self.peers[0].tell(&run.line(&self.files[0]))?;
        self.peers[0].hear("open")?;
        self.peers[1].tell(&run.line(&self.files[1]))?;
        for (i, into) in [(1, &mut flood), (0, &mut slow)] {
            into.1 = self.peers[i].done()?;
            self.peers[i].hear("written")?;
            into.0 = read(&self.files[i])?;
        }
        Ok([slow, flood])
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        end(&mut self.peers);
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

/// An arm whose processes are started anew where they fail, so that one that hangs now and then is
/// measured all the same, and said to.
pub struct Runner<'p> {
    peers: &'p Peers,
    arm: Arm,
    place: Place,
    title: String,
    session: Option<Session>,
    failures: u32,
}

/// How often an arm may fail.
const CHANCES: u32 = 3;

impl<'p> Runner<'p> {
    /// For an arm at a place, which has a title for messages.
    pub fn new(peers: &'p Peers, arm: Arm, place: Place, title: &str) -> Runner<'p> {
        Runner {
            peers,
            arm,
            place,
            title: title.to_string(),
            session: None,
            failures: 0,
        }
    }

    /// Starts the processes if need be, and has them run; `None` once they have failed too often.
    pub fn run(&mut self, context: &Context, report: &mut Report, run: Run) -> Option<Outcome> {
        while self.failures < CHANCES {
            let session = match self.session.take() {
                Some(session) => Ok(session),
                None => Session::start(context, self.peers, &self.arm, self.place),
            };
            let outcome = session.and_then(|mut session| {
                let outcome = session.run(run)?;
                self.session = Some(session);
                Ok(outcome)
            });
            let e = match outcome {
                Ok(outcome) => return Some(outcome),
                Err(e) => e,
            };
            self.failures += 1;
            let what = format!("{} {}", self.arm.name, self.title);
            if self.failures < CHANCES {
                eprintln!("   {what} failed, once more: {e}");
                report.note(format!("{what} failed and was started anew: {e}"));
            } else {
                eprintln!("   skipped: {what}: {e}");
                report.skip(what, e);
            }
        }
        None
    }

    /// Ends the processes; the next run starts new ones.
    pub fn end(&mut self) {
        self.session = None;
    }
}

/// Several processes that are one program, as those of a pipeline.
pub struct Group {
    peers: Vec<Peer>,
    file: PathBuf,
}

impl Group {
    /// Starts them with `command(i)`, all on one CPU.
    pub fn start(
        context: &Context,
        count: usize,
        name: &str,
        mut command: impl FnMut(usize) -> Result<Command, LabError>,
    ) -> Result<Group, LabError> {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut peers = vec![];
        for i in 0..count {
            let mut command = command(i)?;
            children::pin(&mut command, 1 % cpus);
            peers.push(Peer::start(context, &mut command, name)?);
        }
        Ok(Group {
            peers,
            file: context.dir().join("transport.group.samples"),
        })
    }

    /// Waits until all have found each other.
    pub fn await_open(&mut self) -> Result<(), LabError> {
        self.peers
            .iter_mut()
            .try_for_each(|p| p.hear("open").map(drop))
    }

    /// Has them run; where several take part, the first one starts when all are there.
    pub fn run(&mut self, run: Run) -> Result<(Vec<Sample>, Usage), LabError> {
        let _ = fs::remove_file(&self.file);
        for peer in &mut self.peers {
            peer.tell(&run.line(&self.file))?;
        }
        if self.peers.len() > 1 {
            self.await_open()?;
            self.peers[0].tell("go")?;
        }
        let mut usage = Usage::default();
        for peer in &mut self.peers {
            usage += peer.done()?;
        }
        for peer in &mut self.peers {
            peer.hear("written")?;
        }
        usage.messages = f64::from(run.count);
        Ok((read(&self.file)?, usage))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        end(&mut self.peers);
        let _ = fs::remove_file(&self.file);
    }
}

/// Four 64-bit numbers a message, as `peer.h` says.
fn read(file: &Path) -> Result<Vec<Sample>, LabError> {
    let bytes = fs::read(file).map_err(LabError::file("reading", file))?;
    parse(&bytes).ok_or_else(|| {
        LabError::unexpected(
            file.display().to_string(),
            format!("{} bytes are no whole number of samples", bytes.len()),
        )
    })
}

fn parse(bytes: &[u8]) -> Option<Vec<Sample>> {
    if bytes.len() % 32 != 0 {
        return None;
    }
    let word = |chunk: &[u8], i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&chunk[i * 8..][..8]);
        i64::from_le_bytes(word)
    };
    let sample = |c: &[u8]| Sample {
        sequence: word(c, 0),
        intended_ns: word(c, 1),
        sent_ns: word(c, 2),
        received_ns: word(c, 3),
    };
    Some(bytes.chunks_exact(32).map(sample).collect())
}

/// What a process has used so far, all its threads together.
fn process_usage(pid: u32) -> Option<Usage> {
    let mut usage = Usage::default();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let cpu = fs::read_to_string(task.path().join("schedstat")).ok()?;
        usage.cpu_ns += cpu.split(' ').next()?.parse::<f64>().ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        usage.switches += status
            .lines()
            .filter(|l| l.contains("ctxt_switches"))
            .filter_map(|l| l.split_whitespace().last()?.parse::<f64>().ok())
            .sum::<f64>();
    }
    Some(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_as_peers_write_them() {
        let bytes: Vec<u8> = [3i64, -1, 7, 9, 4, 5, 6, 7]
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let samples = parse(&bytes).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[0].sequence, samples[0].intended_ns), (3, -1));
        assert_eq!((samples[1].sent_ns, samples[1].received_ns), (6, 7));
        assert_eq!(parse(&bytes[..40]), None, "half a sample");
        assert_eq!(parse(&[]), Some(vec![]));
    }

    #[test]
    fn what_a_process_uses_is_found_in_proc() {
        let usage = process_usage(std::process::id()).unwrap();
        assert!(usage.cpu_ns > 0.0);
        assert_eq!(process_usage(u32::MAX), None);
    }
}
