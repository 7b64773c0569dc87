//! What one user's files may cost the recorder, and what was left out for it.
//!
//! Everybody can make files that look like libraries of ROS 2, and start programs that map them. Each
//! probe takes a descriptor of the recorder: one user must not use up those of all others.

use crate::descriptors;
use std::collections::{BTreeSet, HashMap};

/// Probes in the files of one user: those of ten installations of ROS 2. Root's files have no limit.
const PROBES_OF_USER: usize = 512;
/// Files of users that are told apart; root's may be twice as many.
const FILES_MAX: usize = 1 << 16;
/// Files of one user.
const FILES_OF_USER: usize = FILES_MAX / 8;
/// Sentences about what was left out; more are counted.
const SENTENCES_MAX: usize = 50;

/// Probes by the user whose process brought them, and what was left out.
#[derive(Debug, Default)]
pub struct Budget {
    /// The process that is visited.
    pid: Option<u32>,
    /// Whose it is.
    user: Option<u32>,
    probes: HashMap<u32, usize>,
    files: HashMap<u32, usize>,
    /// Probes of all users.
    all: usize,
    sentences: BTreeSet<String>,
    /// Sentences beyond the limit.
    more: usize,
}

impl Budget {
    /// From now on the files of this process are visited; `None`: those of an installation.
    pub fn visit(&mut self, pid: Option<u32>) {
        self.pid = pid;
        self.user = pid.map(|pid| onbeat_proc::user(pid).map_or(u32::MAX, |user| user.uid));
    }

    /// The process whose files are visited.
    pub fn visited(&self) -> Option<u32> {
        self.pid
    }

    /// Whether one more file may be probed, beside so many others.
    pub fn has_room(&mut self, files: usize) -> bool {
        let is_roots = matches!(self.user, None | Some(0));
        let most = if is_roots { 2 * FILES_MAX } else { FILES_MAX };
        if files >= most {
            self.leave_out(format!(
                "more than {most} files were seen: later ones are not probed"
            ));
            return false;
        }
        let of_user = self.user.filter(|_| !is_roots);
        if let Some(user) = of_user.filter(|user| self.files.get(user) >= Some(&FILES_OF_USER)) {
            self.leave_out(format!(
                "user {user} has {FILES_OF_USER} files: more files of that user are not probed"
            ));
            return false;
        }
        match self.user {
            None | Some(0) => true,
            // Root's have what is left.
            Some(_) if self.all >= descriptors::room_for_probes() => {
                self.leave_out(
                    "too many files are open: raise the limit (ulimit -Hn) of the recorder".into(),
                );
                false
            }
            Some(user) if self.probes.get(&user).is_none_or(|&n| n < PROBES_OF_USER) => true,
            Some(user) => {
                self.leave_out(format!(
                    "user {user} has {PROBES_OF_USER} probes: more files of that user are not probed"
                ));
                false
            }
        }
    }

    /// The user whose process is visited.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// So many probes of a user are detached.
    pub fn give_back(&mut self, user: Option<u32>, probes: usize) {
        self.all = self.all.saturating_sub(probes);
        if let Some(count) = user.and_then(|user| self.probes.get_mut(&user)) {
            *count = count.saturating_sub(probes);
        }
    }

    /// Counts a file of the user whose process is visited.
    pub fn count_file(&mut self) {
        if let Some(user) = self.user {
            *self.files.entry(user).or_default() += 1;
        }
    }

    /// Counts a probe of the user whose process is visited.
    pub fn count(&mut self) {
        self.all += 1;
        if let Some(user) = self.user {
            *self.probes.entry(user).or_default() += 1;
        }
    }

    /// Notes what was left out. Text in it is untrusted.
    pub fn leave_out(&mut self, sentence: String) {
        if self.sentences.len() < SENTENCES_MAX || self.sentences.contains(&sentence) {
            self.sentences.insert(sentence);
        } else {
            self.more += 1;
        }
    }

    /// Notes what was left out of a process.
    pub fn leave_out_of(&mut self, pid: u32, reasons: Vec<String>) {
        for reason in reasons {
            self.leave_out(format!("process {pid}: {reason}"));
        }
    }

    /// What was left out, a sentence each.
    pub fn left_out(&self) -> Vec<String> {
        let sentences = self.sentences.iter().map(|s| format!("not probed: {s}."));
        let more = (self.more > 0).then(|| format!("not probed: {} more of this kind.", self.more));
        sentences.chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_cannot_use_up_the_probes_of_others() {
        let mut budget = Budget {
            user: Some(1000),
            ..Budget::default()
        };
        for _ in 0..PROBES_OF_USER {
            assert!(budget.has_room(1));
            budget.count();
        }
        assert!(!budget.has_room(1) && !budget.has_room(1));
        budget.user = Some(1001);
        assert!(budget.has_room(1));
        budget.visit(None);
        assert!(budget.has_room(FILES_MAX) && !budget.has_room(2 * FILES_MAX));
        let said = budget.left_out();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said.iter().any(|s| s.contains("user 1000")), "{said:?}");
    }

    #[test]
    fn a_user_cannot_use_up_the_files_of_others() {
        let mut budget = Budget {
            user: Some(1000),
            ..Budget::default()
        };
        for _ in 0..FILES_OF_USER {
            assert!(budget.has_room(1));
            budget.count_file();
        }
        assert!(!budget.has_room(1));
        budget.user = Some(1001);
        assert!(budget.has_room(FILES_OF_USER) && !budget.has_room(FILES_MAX));
        budget.user = Some(0);
        assert!(budget.has_room(FILES_MAX));
    }

    #[test]
    fn users_together_leave_descriptors_for_root() {
        let mut budget = Budget {
            all: descriptors::room_for_probes(),
            ..Budget::default()
        };
        budget.user = Some(1);
        assert!(!budget.has_room(1));
        assert!(budget.left_out()[0].contains("ulimit"));
        budget.user = Some(0);
        assert!(budget.has_room(1));
    }

    #[test]
    fn what_was_left_out_is_said_up_to_a_limit_then_counted() {
        let mut budget = Budget::default();
        for pid in 0..1000 {
            budget.leave_out_of(
                pid,
                vec!["/tmp/librcl.so: it is not a regular file: Fifo".into()],
            );
        }
        let said = budget.left_out();
        assert_eq!(said.len(), SENTENCES_MAX + 1);
        assert_eq!(
            said.last().map(String::as_str),
            Some("not probed: 950 more of this kind.")
        );
    }
}
