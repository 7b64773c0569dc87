//! A run of processes that send and receive messages, from its settings to its end.

use super::peer::{start_all, stop_all, Peer, Usage};
use crate::frame::Result;
use std::path::Path;
use std::time::Duration;

/// What a run is to do.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Size of a message.
    pub bytes: usize,
    /// Size of a message that a relay sends, or that comes back.
    pub other_bytes: Option<usize>,
    /// Messages a second.
    pub rate_hz: f64,
    /// Messages that count.
    pub count: u32,
}

impl Run {
    /// What a process is told that writes its samples to `file`.
    pub fn line(&self, file: &Path) -> String {
        let (bytes, rate_hz, count) = (self.bytes, self.rate_hz, self.count);
        let other = self.other_bytes.map(|b| format!("other_bytes={b} "));
        let (other, file) = (other.unwrap_or_default(), file.display());
        format!("run bytes={bytes} {other}rate_hz={rate_hz} count={count} file={file}")
    }

    /// Tells all processes what to do, each with a file for its samples, and waits until they are
    /// ready. Each may wait for those that it sends to: all prepare at once.
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

/// Has processes that are ready begin `lead` from now and end, which takes so long; what each used.
pub fn carry_out(peers: &mut [Peer], lead: Duration, takes: Duration) -> Result<Vec<Usage>> {
    start_all(peers, lead)?;
    // Those that send stand last and end first.
    let used = peers.iter_mut().rev().map(|p| p.done_after(takes));
    let mut used = used.collect::<Result<Vec<_>>>()?;
    used.reverse();
    stop_all(peers)?;
    Ok(used)
}
