//! Reports of a session: while it runs, and at its end.

use crate::flight::LateOutput;
use crate::follow::Adapted;
use crate::judge::{Judgement, Verdict};
use onbeat_reserve::Stats;
use std::collections::VecDeque;
use std::time::Duration;

/// State of a session, about once a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Live {
    /// Callbacks of the plan that are not found yet. Empty once shaping began.
    pub missing: Vec<String>,
    /// Time since shaping began. `None`: it has not.
    pub shaping: Option<Duration>,
    /// Number of the last judged cycle.
    pub cycle: i64,
    /// Judgements since the last report.
    pub judgements: Vec<Judgement>,
    /// Number of executions so far.
    pub executions: u64,
    /// Half of the range from p0.5 to p99.5 of the latencies of the last executions.
    pub jitter_ns: u64,
    /// The same of the same executions as if nothing had held their outputs back. `None` if the
    /// plan does not let it be known.
    pub unshaped_jitter_ns: Option<u64>,
    /// Number of outputs that missed the last slot of their cycle.
    pub late: u64,
    /// Number of discarded outputs.
    pub dropped: u64,
    /// Number of cycles without an output, of the chain with most of them.
    pub without: u64,
    /// Lateness of the dispatcher, p99.
    pub dispatcher_p99_ns: u64,
    /// Events since the last report, a sentence each.
    pub notes: Vec<String>,
}

/// A thread that was assigned to a server or placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedThread {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// Name of the thread; untrusted.
    pub name: String,
    /// Name of its server, or `middleware`.
    pub place: String,
    /// A callback that it runs, or its task in the middleware.
    pub job: String,
}

/// A plan that was in force before the last one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EarlierPlan {
    /// The session began with 1.
    pub number: u64,
    /// Its strategy.
    pub strategy: String,
    /// Executions that were released under it.
    pub executions: u64,
    /// Outputs of theirs that missed the last slot of their cycle.
    pub late: u64,
    /// Outputs that were discarded.
    pub discarded: u64,
    /// Cycles without an output, of the chain with most of them.
    pub without: u64,
    /// Its promises, and what was measured of them: of the executions that are kept.
    pub verdict: Verdict,
}

impl EarlierPlan {
    /// What was counted, in a sentence.
    pub fn sentence(&self) -> String {
        let broken = self
            .verdict
            .figures
            .iter()
            .filter(|f| f.kept == Some(false));
        let broken: Vec<&str> = broken.map(|f| f.name.as_str()).collect();
        let promises = match (self.executions, broken.is_empty()) {
            (0, _) => "there is nothing to compare its promises with".into(),
            (_, true) => "its promises were kept".into(),
            (_, false) => format!("its promises were NOT kept ({})", broken.join(", ")),
        };
        format!(
            "Plan {} ({}) had {} executions, {} late, {} discarded, {} cycles without an output; {promises}.",
            self.number, self.strategy, self.executions, self.late, self.discarded, self.without
        )
    }
}

/// Result of a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// The last million executions, in order of completion.
    pub judgements: Vec<Judgement>,
    /// The plan's promises and what was measured.
    pub verdict: Verdict,
    /// The threads.
    pub placed: Vec<PlacedThread>,
    /// Late outputs, each with its cause and what happened meanwhile: the first hundred.
    pub late: Vec<LateOutput>,
    /// Counters of the dispatcher. `None` if shaping did not begin.
    pub stats: Option<Stats>,
    /// Exit status of the command. `None` if none was started or the session ended it.
    pub command_status: Option<i32>,
    /// What was counted under the plans before the one in force at the end: the last ones. `verdict` is
    /// that one's.
    pub earlier: Vec<EarlierPlan>,
    /// The bands, if they followed the load.
    pub adapted: Option<Adapted>,
    /// What the user should know, a sentence each.
    pub notes: Vec<String>,
}

impl Summary {
    /// Whether the promises of all plans were kept: of the last one, and of those before it that had
    /// executions.
    pub fn is_kept(&self) -> bool {
        let mut before = self.earlier.iter().filter(|e| e.executions > 0);
        self.verdict.is_kept() && before.all(|e| e.verdict.is_kept())
    }
}

/// Sentences for the user.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Since the last report.
    new: Vec<String>,
    /// The last ones.
    all: VecDeque<String>,
    /// Those before them.
    forgotten: u64,
}

/// Most notes that are kept for the summary.
const MOST: usize = 1000;

impl Notes {
    pub(crate) fn add(&mut self, note: String) {
        if self.all.len() == MOST {
            self.all.pop_front();
            self.forgotten += 1;
        }
        self.all.push_back(note.clone());
        self.new.push(note);
    }

    /// Adds a note that was not given yet, as far as notes are kept.
    pub(crate) fn add_once(&mut self, note: String) {
        if !self.all.contains(&note) {
            self.add(note);
        }
    }

    /// The notes since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }

    pub(crate) fn into_all(self) -> Vec<String> {
        let forgotten = (self.forgotten > 0)
            .then(|| format!("{} notes before these are not kept.", self.forgotten));
        forgotten.into_iter().chain(self.all).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_days_keeps_its_last_notes_and_says_how_many_there_were() {
        let mut notes = Notes::default();
        for n in 0..3 * MOST {
            notes.add(format!("note {n}"));
            notes.add_once(format!("note {n}"));
            assert_eq!(notes.take_new().len(), 1, "{n}");
        }
        let all = notes.into_all();
        assert_eq!(all.len(), MOST + 1);
        assert_eq!(
            all[0],
            format!("{} notes before these are not kept.", 2 * MOST)
        );
        assert_eq!(all[MOST], format!("note {}", 3 * MOST - 1));
    }
}
