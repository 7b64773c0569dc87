//! What reading of other users' processes may cost the recorder: their memory, their tables of mappings,
//! their files.
//!
//! Memory and tables are read through another process, with a deadline, because a user may serve what is
//! read and never answer. The time that all reads of one user's processes take is limited, because a
//! user may start any number of them. Root's are trusted to be no more than they need.

use onbeat_proc::reader::{Reader, Silent};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long an answer is waited for. Reading a process takes some milliseconds.
const ANSWER: Duration = Duration::from_secs(3);
/// Processes of one user that did not answer, after which none of that user's is asked.
const SILENT_OF_USER: usize = 3;
/// The same of all users: a user of namespaces may have thousands of user ids.
const SILENT_MAX: usize = 16;
/// CPU time for one user's processes: that of a thousand usual ones.
const CPU_OF_USER: Duration = Duration::from_secs(20);
/// The share of the recording's time that comes on top, as a divisor.
const CPU_SHARE: u32 = 5;
/// Users that are told apart; further ones count as one.
const USERS_MAX: usize = 1024;
/// Stands for users that are not told apart, and for processes between two users.
const NOBODYS: u32 = u32::MAX;

/// What was read of the processes of users, and what was left out.
#[derive(Debug)]
pub struct Patience {
    reader: Reader,
    begin: Instant,
    users: BTreeMap<u32, User>,
}

#[derive(Debug, Default)]
struct User {
    cpu: Duration,
    /// Processes that did not answer.
    silent: BTreeSet<u32>,
    /// Reads that were left out since.
    left_out: u64,
    /// Of these, because of the time.
    out_of_time: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            reader: Reader::new(ANSWER),
            begin: Instant::now(),
            users: BTreeMap::new(),
        }
    }
}

impl Patience {
    /// Reads something of a process. `None` if it does not answer, or too much was read of that
    /// user's processes.
    pub fn ask<T>(
        &mut self,
        pid: u32,
        work: impl FnOnce(&mut Reader) -> Result<T, Silent>,
    ) -> Option<T> {
        let user = onbeat_proc::user(pid).map_or(NOBODYS, |user| user.uid);
        self.ask_user(user, pid, work)
    }

    fn ask_user<T>(
        &mut self,
        uid: u32,
        pid: u32,
        work: impl FnOnce(&mut Reader) -> Result<T, Silent>,
    ) -> Option<T> {
        let silent: usize = self.users.values().map(|user| user.silent.len()).sum();
        let others = self.users.iter().filter(|(uid, _)| **uid != 0);
        let cpu: Duration = others.map(|(_, user)| user.cpu).sum();
        let limit = CPU_OF_USER + self.begin.elapsed() / CPU_SHARE;
        let key = match self.users.len() {
            0..USERS_MAX => uid,
            _ if self.users.contains_key(&uid) => uid,
            _ => NOBODYS,
        };
        let user = self.users.entry(key).or_default();
        let too_many = uid != 0 && (silent >= SILENT_MAX || user.silent.len() >= SILENT_OF_USER);
        // All users together: twice what one has.
        let is_over = uid != 0 && (user.cpu > limit || cpu > 2 * limit);
        if too_many || user.silent.contains(&pid) {
            user.left_out += 1;
            return None;
        }
        if is_over {
            user.out_of_time += 1;
            return None;
        }
        let begin = cpu_time();
        let result = work(&mut self.reader);
        user.cpu += cpu_time().saturating_sub(begin);
        if result.is_err() {
            user.left_out += 1;
            user.silent.insert(pid);
        }
        result.ok()
    }

    /// What was left out, a sentence for each reason and user.
    pub fn left_out(&self) -> Vec<String> {
        let name = |uid: &u32| match *uid {
            NOBODYS => "other users".to_owned(),
            uid => format!("user {uid}"),
        };
        let silent = self.users.iter().filter(|(_, user)| user.left_out > 0);
        let silent = silent.map(|(uid, user)| {
            let pids: Vec<String> = user.silent.iter().map(u32::to_string).collect();
            let who = match pids.is_empty() {
                true => "too many processes do not answer".to_owned(),
                false => format!("process {} does not answer", pids.join(", ")),
            };
            format!(
                "{who}: {} reads of processes of {} were left out.",
                user.left_out,
                name(uid)
            )
        });
        let over = self.users.iter().filter(|(_, user)| user.out_of_time > 0);
        let over = over.map(|(uid, user)| {
            format!(
                "{} reads of processes of {} were left out: they had taken {:.0} s of CPU time.",
                user.out_of_time,
                name(uid),
                user.cpu.as_secs_f64()
            )
        });
        silent.chain(over).collect()
    }
}

/// CPU time of the calling thread.
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(_: &mut Reader) -> Result<u32, Silent> {
        Err(Silent)
    }
    fn at_once(_: &mut Reader) -> Result<u32, Silent> {
        Ok(1)
    }

    #[test]
    fn who_does_not_answer_is_asked_three_times_and_harms_nobody_else() {
        let mut patience = Patience::default();
        for pid in 1..=SILENT_OF_USER as u32 {
            assert_eq!(patience.ask_user(1000, pid, never), None);
        }
        assert_eq!(patience.ask_user(1000, 9, at_once), None);
        assert_eq!(patience.ask_user(1001, 10, at_once), Some(1));
        assert_eq!(
            patience.left_out(),
            ["process 1, 2, 3 does not answer: 4 reads of processes of user 1000 were left out."]
        );
        // With ever new user ids there is an end too; root's processes are still read.
        for user in 2000..2100 {
            patience.ask_user(user, user, never);
        }
        let silent: usize = patience.users.values().map(|u| u.silent.len()).sum();
        assert_eq!(silent, SILENT_MAX);
        assert_eq!(patience.ask_user(1001, 10, at_once), None);
        assert_eq!(patience.ask_user(0, 11, at_once), Some(1));
    }

    #[test]
    fn one_users_processes_take_so_much_time_and_no_more() {
        let mut patience = Patience::default();
        assert_eq!(patience.ask_user(1000, 1, at_once), Some(1));
        patience.users.entry(1000).or_default().cpu = 2 * CPU_OF_USER;
        assert_eq!(patience.ask_user(1000, 1, at_once), None);
        assert_eq!(patience.ask_user(1001, 2, at_once), Some(1));
        assert_eq!(
            patience.left_out(),
            ["1 reads of processes of user 1000 were left out: they had taken 40 s of CPU time."]
        );
        // All users together have twice as much as one.
        patience.users.entry(1002).or_default().cpu = CPU_OF_USER;
        assert_eq!(patience.ask_user(1001, 2, at_once), None);
    }
}
