//! A run of processes that exchange messages, from its settings to its end.

use super::peer::{start_all, stop_all, Peer, Usage};
use crate::frame::Result;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub bytes: usize,
    pub other_bytes: Option<usize>,
    pub rate_hz: f64,
    pub count: u32,
}

impl Run {
    pub fn line(&self, file: &Path) -> String {
        let (bytes, rate_hz, count) = (self.bytes, self.rate_hz, self.count);
        let other = self.other_bytes.map(|b| format!("other_bytes={b} "));
        let (other, file) = (other.unwrap_or_default(), file.display());
        format!("run bytes={bytes} {other}rate_hz={rate_hz} count={count} file={file}")
    }

    /// Sends the settings of a run to all processes, each with a file for its samples, and then
    /// waits until all are ready. Sends all settings before it waits, because a process can wait
    /// for the processes to which it sends before it is ready.
    pub fn prepare<'f>(
        &self,
        peers: &mut [Peer],
        files: impl IntoIterator<Item = &'f Path>,
    ) -> Result<()> {
        for (peer, file) in peers.iter_mut().zip(files) {
            peer.say(&self.line(file))?;
        }
        peers
            .iter_mut()
            .try_for_each(|peer| peer.expect("ready").map(drop))
    }
}

/// Makes prepared processes begin their run at the time `lead` from now, waits for the end of the
/// run, and returns the resources that each process used. `takes` is the expected length of the
/// run.
pub fn carry_out(peers: &mut [Peer], lead: Duration, takes: Duration) -> Result<Vec<Usage>> {
    start_all(peers, lead)?;
    // Senders stand last in the list and end first.
    let used = peers.iter_mut().rev().map(|p| p.done_after(takes));
    let mut used = used.collect::<Result<Vec<_>>>()?;
    used.reverse();
    stop_all(peers)?;
    Ok(used)
}
