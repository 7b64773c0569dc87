//! Saves incidents on a thread of its own, so that neither a slow disk nor a long explanation
//! delays the recorder. The rate of saves is limited.

use crate::incident::Incident;
use crate::memory;
use crate::save::{save, Known, Order, Saved};
use crate::store::Store;
use onbeat_terminal::{files, CliError};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{channel, sync_channel, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;

const HOUR_NS: f64 = 3600e9;

/// The largest number of incidents that wait to be saved. `WAITING_MAX` limits the waiting jobs of
/// all kinds together.
const SAVES_MAX: usize = 8;
const WAITING_MAX: usize = 256;

/// The largest number of saved incidents whose figures can be written again when they end.
const KNOWN_MAX: usize = 256;

enum Job {
    Save(Box<Order>),
    End(Box<Incident>),
    Text(PathBuf, String),
}

pub enum Done {
    Saved(Saved),
    /// An incident was not saved. The values are its number and the reason.
    NotSaved(u64, String),
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The limit for the number of saved incidents per hour is reached.
    Rate,
    Busy,
}

pub struct Saver {
    jobs: Option<SyncSender<Job>>,
    waiting: VecDeque<Job>,
    reports: Receiver<Option<Done>>,
    done: Vec<Done>,
    thread: Option<JoinHandle<()>>,
    rate: Rate,
    /// If true, each job is done before the monitor reads the next event.
    waits: bool,
}

/// A limit for the number of saves: a token bucket that fills up within an hour.
struct Rate {
    per_hour: f64,
    left: f64,
    at_ns: u64,
}

impl Rate {
    fn admits(&mut self, now_ns: u64) -> bool {
        let since = now_ns.saturating_sub(self.at_ns) as f64;
        self.at_ns = now_ns.max(self.at_ns);
        self.left = (self.left + since * self.per_hour / HOUR_NS).min(self.per_hour);
        let admits = self.left >= 1.0;
        if admits {
            self.left -= 1.0;
        }
        admits
    }
}

impl Saver {
    /// Starts the thread that saves incidents. Without a `store`, the thread only writes text
    /// files. If `waits` is true, a call that orders a job returns only after the job is done.
    pub fn begin(store: Option<Store>, saves_per_hour: u32, waits: bool) -> Saver {
        let (jobs, taken) = sync_channel::<Job>(1);
        let (report, reports) = channel();
        let work = move || {
            let known = BTreeMap::new();
            let mut worker = Worker { store, known };
            for job in taken {
                if report.send(worker.run(job)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("saver".into());
        let per_hour = f64::from(saves_per_hour);
        Saver {
            jobs: Some(jobs),
            waiting: VecDeque::new(),
            reports,
            done: Vec::new(),
            thread: thread.spawn(work).ok(),
            rate: Rate {
                per_hour,
                left: per_hour,
                at_ns: 0,
            },
            waits,
        }
    }

    /// Orders an incident to be saved by the saving thread. `now_ns` is the time of the latest
    /// event.
    ///
    /// # Errors
    /// Returns why the incident will not be saved.
    pub fn save(&mut self, now_ns: u64, order: Order) -> Result<(), Refusal> {
        let is_save = |job: &&Job| matches!(job, Job::Save(_));
        if self.waiting.iter().filter(is_save).count() >= SAVES_MAX {
            return Err(Refusal::Busy);
        }
        if !self.rate.admits(now_ns) {
            return Err(Refusal::Rate);
        }
        self.order(Job::Save(Box::new(order)));
        Ok(())
    }

    /// Orders the final figures of an ended incident to be written, if the incident was saved.
    pub fn ended(&mut self, incident: Incident) {
        self.order(Job::End(Box::new(incident)));
    }

    pub fn text(&mut self, path: PathBuf, text: String) {
        // Only the latest text counts.
        self.waiting.retain(|job| !matches!(job, Job::Text(..)));
        self.order(Job::Text(path, text));
    }

    fn order(&mut self, job: Job) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(job);
        }
        self.pass_on();
    }

    fn pass_on(&mut self) {
        let Some(jobs) = &self.jobs else { return };
        while let Some(job) = self.waiting.pop_front() {
            if self.waits {
                let report = jobs.send(job).ok().and_then(|()| self.reports.recv().ok());
                self.done.extend(report.flatten());
                continue;
            }
            match jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => return self.waiting.push_front(job),
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }

    pub fn done(&mut self) -> Vec<Done> {
        self.done.extend(self.reports.try_iter().flatten());
        self.pass_on();
        std::mem::take(&mut self.done)
    }

    /// Waits until the saving thread has done all jobs, and returns the results of the jobs.
    pub fn end(&mut self) -> Vec<Done> {
        if let Some(jobs) = self.jobs.take() {
            for job in self.waiting.drain(..) {
                // Fails only if the thread has ended.
                let _ = jobs.send(job);
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.done()
    }
}

struct Worker {
    store: Option<Store>,
    known: BTreeMap<u64, (OsString, Known)>,
}

fn unwritten(error: &CliError) -> String {
    match error {
        CliError::Write { path, source } => format!(
            "cannot write {}: {source}. Choose another file with --textfile",
            path.display()
        ),
        error => error.to_string(),
    }
}

impl Worker {
    fn run(&mut self, job: Job) -> Option<Done> {
        match job {
            Job::Save(order) => {
                let done = self.save(&order);
                memory::return_freed();
                done
            }
            Job::End(incident) => self.ended(&incident),
            Job::Text(path, text) => {
                let write = |out: &mut (dyn std::io::Write + Send)| out.write_all(text.as_bytes());
                let written = files::write_whole(&path, write);
                written.err().map(|e| Done::Failed(unwritten(&e)))
            }
        }
    }

    fn save(&mut self, order: &Order) -> Option<Done> {
        let number = order.incident.number;
        Some(match save(self.store.as_ref()?, order) {
            Ok((saved, known)) => {
                self.known.insert(number, (saved.name.clone(), known));
                while self.known.len() > KNOWN_MAX {
                    self.known.pop_first();
                }
                Done::Saved(saved)
            }
            Err(why) => Done::NotSaved(number, why),
        })
    }

    fn ended(&mut self, incident: &Incident) -> Option<Done> {
        let (name, known) = self.known.remove(&incident.number)?;
        let figures = known.figures(incident);
        let store = self.store.as_ref()?;
        let written = store.replace(&name, crate::store::FIGURES, &figures);
        written.err().map(|e| {
            let name = name.to_string_lossy();
            Done::Failed(format!("cannot write the figures of {name}: {e}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_saves_is_limited_and_recovers() {
        let mut rate = Rate {
            per_hour: 4.0,
            left: 4.0,
            at_ns: 0,
        };
        let minute = 60_000_000_000;
        let admitted = |rate: &mut Rate, at: u64| (0..10).filter(|_| rate.admits(at)).count();
        assert_eq!(admitted(&mut rate, 1000 * minute), 4);
        assert_eq!(admitted(&mut rate, 1014 * minute), 0);
        assert_eq!(admitted(&mut rate, 1015 * minute), 1);
        assert_eq!(admitted(&mut rate, 9000 * minute), 4);
    }
}
