//! Limits the files and probes that one user may cost the recorder, and notes what was left out.
//!
//! Any user can make files that look like libraries of ROS 2, and start programs that map them.
//! Each probe takes a descriptor of the recorder, so one user must not use up those of all others.

use crate::descriptors;
use std::collections::{BTreeSet, HashMap};

/// The largest number of probes in the files of one user, enough for ten installations of ROS 2.
/// Root's files have no limit.
const PROBES_PER_USER: usize = 512;
/// The number of probed files above which onbeat probes no more files of ordinary users. For root's
/// files, the limit is twice as high.
const FILES_MAX: usize = 1 << 16;
const FILES_PER_USER: usize = FILES_MAX / 8;
const SENTENCES_MAX: usize = 50;

/// A counter of the probes and the probed files of each Linux user. Both numbers have limits. The
/// counter also collects a sentence about each probe or file that was skipped because of a limit.
#[derive(Debug, Default)]
pub struct Budget {
    visited_pid: Option<u32>,
    user: Option<u32>,
    probes: HashMap<u32, usize>,
    files: HashMap<u32, usize>,
    all_probes: usize,
    sentences: BTreeSet<String>,
    further_sentences: usize,
}

impl Budget {
    /// Sets the process whose files are probed next: the probes and files count for the user of
    /// this process. `None` stands for an installation of ROS 2, whose probes and files count for
    /// no user.
    pub fn visit(&mut self, pid: Option<u32>) {
        self.visited_pid = pid;
        self.user = pid.map(|pid| onbeat_proc::user(pid).map_or(u32::MAX, |user| user.uid));
    }

    pub fn visited(&self) -> Option<u32> {
        self.visited_pid
    }

    pub fn has_room(&mut self, files: usize) -> bool {
        let is_roots = matches!(self.user, None | Some(0));
        let most = if is_roots { 2 * FILES_MAX } else { FILES_MAX };
        if files >= most {
            self.leave_out(format!(
                "further files, because onbeat probes at most {most} files"
            ));
            return false;
        }
        let of_user = self.user.filter(|_| !is_roots);
        if let Some(user) = of_user.filter(|user| self.files.get(user) >= Some(&FILES_PER_USER)) {
            self.leave_out(format!(
                "further files of user {user}, because onbeat probes at most {FILES_PER_USER} files of a user"
            ));
            return false;
        }
        match self.user {
            None | Some(0) => true,
            // Root's processes may use the descriptors that are left.
            Some(_) if self.all_probes >= descriptors::room_for_probes() => {
                self.leave_out(
                    "too many files are open. Raise the limit (ulimit -Hn) of the recorder".into(),
                );
                false
            }
            Some(user) if self.probes.get(&user).is_none_or(|&n| n < PROBES_PER_USER) => true,
            Some(user) => {
                self.leave_out(format!(
                    "further files of user {user}, because onbeat attaches at most {PROBES_PER_USER} probes for a user"
                ));
                false
            }
        }
    }

    pub fn user(&self) -> Option<u32> {
        self.user
    }

    pub fn give_back(&mut self, user: Option<u32>, probes: usize) {
        self.all_probes = self.all_probes.saturating_sub(probes);
        if let Some(count) = user.and_then(|user| self.probes.get_mut(&user)) {
            *count = count.saturating_sub(probes);
        }
    }

    pub fn count_file(&mut self) {
        if let Some(user) = self.user {
            *self.files.entry(user).or_default() += 1;
        }
    }

    pub fn count_probe(&mut self) {
        self.all_probes += 1;
        if let Some(user) = self.user {
            *self.probes.entry(user).or_default() += 1;
        }
    }

    pub fn leave_out(&mut self, sentence: String) {
        if self.sentences.len() < SENTENCES_MAX || self.sentences.contains(&sentence) {
            self.sentences.insert(sentence);
        } else {
            self.further_sentences += 1;
        }
    }

    pub fn leave_out_of(&mut self, pid: u32, reasons: Vec<String>) {
        for reason in reasons {
            self.leave_out(format!("process {pid}: {reason}"));
        }
    }

    pub fn left_out(&self) -> Vec<String> {
        let sentences = self.sentences.iter().map(|s| format!("not probed: {s}."));
        let more = (self.further_sentences > 0).then(|| {
            format!(
                "{} more warnings about files and functions that are not probed were left out.",
                self.further_sentences
            )
        });
        sentences.chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_cannot_use_up_the_probes_of_other_users() {
        let mut budget = Budget {
            user: Some(1000),
            ..Budget::default()
        };
        for _ in 0..PROBES_PER_USER {
            assert!(budget.has_room(1));
            budget.count_probe();
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
    fn a_user_cannot_use_up_the_files_of_other_users() {
        let mut budget = Budget {
            user: Some(1000),
            ..Budget::default()
        };
        for _ in 0..FILES_PER_USER {
            assert!(budget.has_room(1));
            budget.count_file();
        }
        assert!(!budget.has_room(1));
        budget.user = Some(1001);
        assert!(budget.has_room(FILES_PER_USER) && !budget.has_room(FILES_MAX));
        budget.user = Some(0);
        assert!(budget.has_room(FILES_MAX));
    }

    #[test]
    fn the_probed_files_of_all_users_leave_file_descriptors_for_root() {
        let mut budget = Budget {
            all_probes: descriptors::room_for_probes(),
            ..Budget::default()
        };
        budget.user = Some(1);
        assert!(!budget.has_room(1));
        assert!(budget.left_out()[0].contains("ulimit"));
        budget.user = Some(0);
        assert!(budget.has_room(1));
    }

    #[test]
    fn sentences_about_skipped_probes_are_limited_in_number() {
        let mut budget = Budget::default();
        for pid in 0..1000 {
            budget.leave_out_of(
                pid,
                vec!["/tmp/librcl.so: the file is not a regular file: Fifo".into()],
            );
        }
        let said = budget.left_out();
        assert_eq!(said.len(), SENTENCES_MAX + 1);
        assert_eq!(
            said.last().map(String::as_str),
            Some("950 more warnings about files and functions that are not probed were left out.")
        );
    }
}
