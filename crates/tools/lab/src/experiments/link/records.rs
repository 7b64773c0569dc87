//! Collects the stalls that links record while programs run. A link keeps only its latest stalls.

use crate::frame::{LabError, Result};
use crate::measure::peer::Peer;
use onbeat_link::status::{survey, Stall};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(100);

/// The stalls (steps that took longer than usual) that were read from one end of a link, and the
/// number of stalls that this end counted.
#[derive(Default)]
struct End {
    count: u64,
    stalls: Vec<Stall>,
    is_complete: bool,
}

type Ends = BTreeMap<(u32, String), End>;

pub struct Records {
    stop: Sender<()>,
    thread: JoinHandle<Ends>,
}

impl Records {
    pub fn of(peers: &[Peer]) -> Records {
        let pids: Vec<u32> = peers.iter().map(Peer::pid).collect();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            run_above_loads();
            let mut ends = Ends::new();
            loop {
                let goes_on = stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout);
                read(&pids, &mut ends);
                if !goes_on {
                    return ends;
                }
            }
        });
        Records { stop, thread }
    }

    /// Returns all stalls of all links until now. Returns `None` if a link had more stalls between
    /// two readings than it can record.
    pub fn finish(self) -> Result<Option<Vec<Stall>>> {
        drop(self.stop);
        let failed = |why: &str| LabError::unexpected("the links' records", why.to_string());
        let ends = self.thread.join();
        let ends = ends.map_err(|_| failed("the thread panicked"))?;
        if ends.is_empty() {
            return Err(failed(
                "the measured programs opened no link whose records the lab can read",
            ));
        }
        let is_complete = ends.values().all(|end| end.is_complete);
        let stalls = ends.into_values().flat_map(|end| end.stalls);
        Ok(is_complete.then(|| stalls.collect()))
    }
}

/// Gives this thread a priority above programs that only load the CPUs, and below the measured
/// programs. Without the right to do so, the records of stalls may be incomplete.
fn run_above_loads() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: changes the scheduling of this thread only.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
}

fn read(pids: &[u32], ends: &mut Ends) {
    for link in survey().links {
        if !pids.contains(&link.pid) {
            continue;
        }
        let steps = link.status.steps;
        let key = (
            link.pid,
            format!("{} {}", link.status.name, link.status.listens),
        );
        let end = ends.entry(key).or_insert(End {
            is_complete: true,
            ..End::default()
        });
        end.is_complete &= steps.stalls.saturating_sub(end.count) <= steps.recent.len() as u64;
        end.count = steps.stalls;
        let known = end.stalls.len().saturating_sub(2 * steps.recent.len());
        let news = steps.recent.into_iter();
        let news: Vec<Stall> = news.filter(|s| !end.stalls[known..].contains(s)).collect();
        end.stalls.extend(news);
    }
}
