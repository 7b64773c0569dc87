//! Runs several nodes together: each is a process of a `transport` peer with a role.

use crate::frame::{Context, Result};
use crate::measure::peer::{end_all, Peer};
use crate::measure::run::{carry_out, Run};
use crate::measure::samples::{self, Sample};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LEAD: Duration = Duration::from_millis(20);

pub struct Node {
    pub command: Command,
    pub words: Vec<String>,
    pub receives: bool,
    pub name: String,
}

impl Node {
    pub fn new(command: Command, words: &[String], receives: bool) -> Node {
        Node {
            command,
            words: words.to_vec(),
            receives,
            name: words.first().cloned().unwrap_or_default(),
        }
    }
}

pub struct Group {
    peers: Vec<Peer>,
    files: Vec<(bool, PathBuf)>,
}

impl Group {
    pub fn start(context: &Context, nodes: Vec<Node>) -> Result<Group> {
        let (mut peers, mut files) = (vec![], vec![]);
        for (i, mut node) in nodes.into_iter().enumerate() {
            node.command.args(&node.words).arg("wait=sleep");
            peers.push(Peer::start(context, &mut node.command, &node.name)?);
            files.push((
                node.receives,
                context.dir().join(format!("latency.{i}.samples")),
            ));
        }
        Ok(Group { peers, files })
    }

    pub fn run(&mut self, run: Run) -> Result<Vec<Vec<Sample>>> {
        let files = self.files.iter().map(|(_, file)| &**file);
        run.prepare(&mut self.peers, files)?;
        let takes = Duration::from_secs_f64(f64::from(run.count) / run.rate_hz);
        carry_out(&mut self.peers, LEAD, takes)?;
        let receiving = self.files.iter().filter(|(receives, _)| *receives);
        receiving.map(|(_, file)| samples::read(file)).collect()
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
