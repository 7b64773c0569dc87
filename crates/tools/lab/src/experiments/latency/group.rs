//! Nodes that run together: processes of the `transport` peers, in roles.

use crate::frame::{Context, Result};
use crate::measure::peer::{end_all, Peer};
use crate::measure::run::{carry_out, Run};
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
        let files = self.files.iter().map(|(_, file)| &**file);
        run.prepare(&mut self.peers, files)?;
        let takes = Duration::from_secs_f64(f64::from(run.count) / run.rate_hz);
        carry_out(&mut self.peers, LEAD, takes)?;
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
