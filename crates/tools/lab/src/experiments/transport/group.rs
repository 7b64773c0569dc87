//! Several processes that together form one program.

use crate::frame::children;
use crate::frame::machine;
use crate::frame::{Context, Result};
use crate::measure::peer::{end_all, Peer, Usage};
use crate::measure::run::{carry_out, Run};
use crate::measure::samples::{self, Sample};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LEAD: Duration = Duration::from_millis(50);

pub struct Group {
    peers: Vec<Peer>,
    file: PathBuf,
}

impl Group {
    pub fn start(
        context: &Context,
        count: usize,
        name: &str,
        mut command: impl FnMut(usize) -> Result<Command>,
    ) -> Result<Group> {
        let cpus = machine::cpus();
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

    pub fn run(&mut self, run: Run) -> Result<(Vec<Sample>, Usage)> {
        let _ = fs::remove_file(&self.file);
        run.prepare(&mut self.peers, std::iter::repeat(&*self.file))?;
        let mut usage = Usage::default();
        for used in carry_out(&mut self.peers, LEAD, Duration::ZERO)? {
            usage += used;
        }
        usage.messages = f64::from(run.count);
        Ok((samples::read(&self.file)?, usage))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        end_all(&mut self.peers);
        let _ = fs::remove_file(&self.file);
    }
}
