//! Nodes that run together: processes of the `transport` peers, in roles.

use crate::frame::{Context, Result};
use crate::measure::peer::{end_all, start_all, stop_all, Peer};
use crate::measure::samples::{self, Sample};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// From the start command to the first message of the warm-up.
const LEAD: Duration = Duration::from_millis(20);

/// A node of a group: its process, and what it does.
pub struct Node {
    /// Without its role.
    pub command: Command,
    /// Its role and its topics, as words of the command line.
    pub words: Vec<String>,
    /// Its samples count.
    pub takes: bool,
    /// For messages.
    pub name: String,
}

impl Node {
    /// A node that takes, or does not.
    pub fn new(command: Command, words: &[String], takes: bool) -> Node {
        Node {
            command,
            words: words.to_vec(),
            takes,
            name: words.first().cloned().unwrap_or_default(),
        }
    }
}

/// What a run of a group is to do.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Size of a message.
    pub bytes: usize,
    /// Size of a message that a relay sends, or that comes back.
    pub other_bytes: usize,
    /// Messages a second.
    pub rate_hz: f64,
    /// Messages that count.
    pub count: u32,
}

/// Running nodes.
pub struct Group {
    peers: Vec<Peer>,
    files: Vec<(bool, PathBuf)>,
}

impl Group {
    /// Starts them.
    pub fn start(context: &Context, nodes: Vec<Node>) -> Result<Group> {
        let (mut peers, mut files) = (vec![], vec![]);
        for (i, mut node) in nodes.into_iter().enumerate() {
            node.command.args(&node.words).arg("wait=sleep");
            peers.push(Peer::start(context, &mut node.command, &node.name)?);
            files.push((
                node.takes,
                context.dir().join(format!("latency.{i}.samples")),
            ));
        }
        Ok(Group { peers, files })
    }

    /// Has them run; what each node took that takes, in their order.
    pub fn run(&mut self, run: Run) -> Result<Vec<Vec<Sample>>> {
        let Run {
            bytes,
            other_bytes,
            rate_hz,
            count,
        } = run;
        // Each waits for those that it sends to: all prepare at once.
        for (peer, (_, file)) in self.peers.iter_mut().zip(&self.files) {
            let file = file.display();
            peer.say(&format!(
                "run bytes={bytes} other_bytes={other_bytes} rate_hz={rate_hz} count={count} file={file}"
            ))?;
        }
        for peer in &mut self.peers {
            peer.expect("ready")?;
        }
        start_all(&mut self.peers, LEAD)?;
        let takes = Duration::from_secs_f64(f64::from(count) / rate_hz);
        for peer in self.peers.iter_mut().rev() {
            peer.done_after(takes)?;
        }
        stop_all(&mut self.peers)?;
        let taking = self.files.iter().filter(|(takes, _)| *takes);
        taking.map(|(_, file)| samples::read(file)).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        end_all(&mut self.peers);
        for (_, file) in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

/// From when sending began to readable, us.
pub fn transport_us(samples: &[Sample]) -> Vec<f64> {
    let us = |s: &Sample| (s.received_ns - s.sent_ns) as f64 / 1000.0;
    samples.iter().map(us).collect()
}

/// From when the first node of a chain was due to send, us.
pub fn since_due_us(samples: &[Sample]) -> Vec<f64> {
    let us = |s: &Sample| (s.received_ns - s.intended_ns) as f64 / 1000.0;
    samples.iter().map(us).collect()
}
