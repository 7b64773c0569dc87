//! A subscriber outside of the shaped application.

use super::app::DOMAIN;
use crate::frame::children::Guarded;
use crate::frame::files;
use crate::frame::{Context, LabError, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) struct Listener {
    child: Guarded,
    log: PathBuf,
}

impl Listener {
    pub(super) fn start(context: &Context, stage: &Path, topic: &str) -> Result<Listener> {
        let log = context.dir().join("heard.new");
        let mut command = Command::new(stage);
        command
            .args(["--name", "listener", "--in", topic, "--log"])
            .arg(&log);
        command.env("ROS_DOMAIN_ID", DOMAIN).stdin(Stdio::null());
        Ok(Listener {
            child: context.spawn(&mut command)?,
            log,
        })
    }

    pub(super) fn heard(&mut self) -> Result<Vec<(u64, u64)>> {
        self.child
            .end(libc::SIGTERM)
            .map_err(|e| LabError::program("the listener", e))?;
        let text = files::take_text(&self.log)?;
        let item = |line: &str| {
            let mut cells = line.split(',').skip(1).map(|c| c.parse().ok());
            Some((cells.next()??, cells.next()??))
        };
        Ok(text.lines().filter_map(item).collect())
    }
}
