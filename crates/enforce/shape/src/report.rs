//! The reports of a session: while it runs, and at its end.

use crate::flight::LateOutput;
use crate::follow::Adapted;
use crate::judge::{Judgement, Verdict};
use onbeat_reserve::Stats;
use std::collections::VecDeque;
use std::time::Duration;

/// The state of a shaping session. The session reports it about once a second.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Live {
    /// The callbacks of the plan that were not found yet. Empty once shaping has begun.
    pub missing: Vec<String>,
    /// The time since shaping began, or `None` before that.
    pub shaping: Option<Duration>,
    /// The number of the cycle that was judged last.
    pub cycle: i64,
    pub judgements: Vec<Judgement>,
    /// The number of executions since shaping began.
    pub executions: u64,
    /// The measured jitter in ns: half of the range from p0.5 to p99.5 of the latest executions'
    /// latencies.
    pub jitter_ns: u64,
    /// The jitter in ns that the same executions would have had without shaping. `None` if it
    /// cannot be derived under this plan.
    pub unshaped_jitter_ns: Option<u64>,
    pub late: u64,
    pub dropped: u64,
    /// The number of cycles without an output, of the chain that has the most of them.
    pub without: u64,
    /// The 99th percentile of the dispatcher's lateness at its wake-ups, in ns.
    pub dispatcher_p99_ns: u64,
    /// The events since the last report, one sentence each.
    pub notes: Vec<String>,
}

/// A thread that a session assigned to a server or put on the middleware's CPU.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedThread {
    pub tid: u32,
    pub pid: u32,
    /// The thread's name. The application chose it, so it is untrusted.
    pub name: String,
    /// The name of the server to which the session assigned the thread, or `middleware`.
    pub place: String,
    /// A callback that the thread runs, or the thread's task in the middleware.
    pub job: String,
}

/// The results of a plan that another plan replaced during the session.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EarlierPlan {
    /// The number of the plan within the session. The session began with plan 1.
    pub number: u64,
    /// The name of the plan's strategy, for example `fifo` or `server-per-chain`.
    pub strategy: String,
    /// The number of executions whose release was under this plan.
    pub executions: u64,
    pub late: u64,
    pub discarded: u64,
    /// The number of cycles without an output, of the chain that has the most of them.
    pub without: u64,
    /// The plan's promises and the measured values. Executions that are no longer stored do not
    /// count.
    pub verdict: Verdict,
}

impl EarlierPlan {
    /// Returns the plan's counts as a sentence for the user.
    pub fn sentence(&self) -> String {
        let broken = self
            .verdict
            .figures
            .iter()
            .filter(|f| f.kept == Some(false));
        let broken: Vec<&str> = broken.map(|f| f.name.as_str()).collect();
        let promises = match (self.executions, broken.is_empty()) {
            (0, _) => "the plan's promises cannot be judged, because nothing was measured".into(),
            (_, true) => "the plan's promises were kept".into(),
            (_, false) => format!("the plan's promises were NOT kept ({})", broken.join(", ")),
        };
        format!(
            "Plan {} ({}) had {} executions, {} late, {} discarded, {} cycles without an output; {promises}.",
            self.number, self.strategy, self.executions, self.late, self.discarded, self.without
        )
    }
}

/// The result of a shaping session, which onbeat makes when the session has ended.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// The judgements of the last million executions, in order of completion.
    pub judgements: Vec<Judgement>,
    /// The promises of the last plan and the measured values.
    pub verdict: Verdict,
    pub placed: Vec<PlacedThread>,
    /// The first hundred late outputs, each with its cause and the events of its cycle.
    pub late: Vec<LateOutput>,
    /// The counters of the dispatcher. `None` if shaping did not begin.
    pub stats: Option<Stats>,
    /// The exit status of the command. `None` if no command was started or the session ended it.
    pub command_status: Option<i32>,
    /// The results of the latest plans before the last one. The field `verdict` contains the
    /// results of the last plan.
    pub earlier: Vec<EarlierPlan>,
    /// The changes of the latency bands. `None` if the bands did not follow the load.
    pub adapted: Option<Adapted>,
    pub notes: Vec<String>,
}

impl Summary {
    /// Returns true if all plans of the session kept their promises. Earlier plans under which no
    /// execution ran do not count.
    pub fn is_kept(&self) -> bool {
        let mut before = self.earlier.iter().filter(|e| e.executions > 0);
        self.verdict.is_kept() && before.all(|e| e.verdict.is_kept())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Notes {
    new: Vec<String>,
    all: VecDeque<String>,
    forgotten: u64,
}

const MAX_NOTES: usize = 1000;

impl Notes {
    pub(crate) fn add(&mut self, note: String) {
        if self.all.len() == MAX_NOTES {
            self.all.pop_front();
            self.forgotten += 1;
        }
        self.all.push_back(note.clone());
        self.new.push(note);
    }

    pub(crate) fn add_once(&mut self, note: String) {
        if !self.all.contains(&note) {
            self.add(note);
        }
    }

    pub(crate) fn take_new(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }

    pub(crate) fn into_all(self) -> Vec<String> {
        let forgotten = (self.forgotten > 0).then(|| {
            format!(
                "{} earlier notes of this session were removed.",
                self.forgotten
            )
        });
        forgotten.into_iter().chain(self.all).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_keeps_the_latest_notes_and_counts_the_older_ones() {
        let mut notes = Notes::default();
        for n in 0..3 * MAX_NOTES {
            notes.add(format!("note {n}"));
            notes.add_once(format!("note {n}"));
            assert_eq!(notes.take_new().len(), 1, "{n}");
        }
        let all = notes.into_all();
        assert_eq!(all.len(), MAX_NOTES + 1);
        assert_eq!(
            all[0],
            format!(
                "{} earlier notes of this session were removed.",
                2 * MAX_NOTES
            )
        );
        assert_eq!(all[MAX_NOTES], format!("note {}", 3 * MAX_NOTES - 1));
    }
}
