//! Limits what the recorder spends on reading memory, mapping tables and files of other users'
//! processes.
//!
//! A child process reads memory and tables, with a deadline, because a user may serve what is read
//! and never answer. The time spent on all processes of one user is limited, because a user may
//! start any number of processes. Processes of root have no limit of time or number.

use onbeat_proc::reader::{Reader, Silent};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The longest time that onbeat waits for one answer of a process. Reading a process usually takes
/// some milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of silent processes of one user after which onbeat reads no other process of this
/// user. A process is silent if it did not answer in time.
const SILENT_PER_USER: usize = 3;
/// The number of silent processes after which onbeat reads only processes of root. One user may
/// have thousands of user ids in user namespaces.
const SILENT_MAX: usize = 16;
/// The limit of the CPU time that onbeat spends on reading the processes of one user. It is enough
/// for a thousand usual processes.
const CPU_PER_USER: Duration = Duration::from_secs(20);
/// The elapsed time of the recording, divided by this number, is CPU time that onbeat may spend on
/// reading the processes of one user in addition to [`CPU_PER_USER`].
const DURATION_DIVISOR: u32 = 5;
const USERS_MAX: usize = 1024;
/// The user id that stands for users beyond [`USERS_MAX`], and for processes whose user ids differ.
const OTHER_USERS: u32 = u32::MAX;

#[derive(Debug)]
pub struct Patience {
    reader: Reader,
    begin: Instant,
    users: BTreeMap<u32, User>,
}

#[derive(Debug, Default)]
struct User {
    cpu: Duration,
    silent: BTreeSet<u32>,
    skipped_as_silent: u64,
    skipped_over_time: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            reader: Reader::new(ANSWER_TIMEOUT),
            begin: Instant::now(),
            users: BTreeMap::new(),
        }
    }
}

impl Patience {
    /// Runs `work`, which reads from a process. Returns `None` if the process does not answer, or
    /// if its user has reached a limit.
    pub fn ask<T>(
        &mut self,
        pid: u32,
        work: impl FnOnce(&mut Reader) -> Result<T, Silent>,
    ) -> Option<T> {
        let user = onbeat_proc::user(pid).map_or(OTHER_USERS, |user| user.uid);
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
        let limit = CPU_PER_USER + self.begin.elapsed() / DURATION_DIVISOR;
        let key = match self.users.len() {
            0..USERS_MAX => uid,
            _ if self.users.contains_key(&uid) => uid,
            _ => OTHER_USERS,
        };
        let user = self.users.entry(key).or_default();
        let too_many = uid != 0 && (silent >= SILENT_MAX || user.silent.len() >= SILENT_PER_USER);
        // All users together have twice the time of one user.
        let is_over = uid != 0 && (user.cpu > limit || cpu > 2 * limit);
        if too_many || user.silent.contains(&pid) {
            user.skipped_as_silent += 1;
            return None;
        }
        if is_over {
            user.skipped_over_time += 1;
            return None;
        }
        let begin = cpu_time();
        let result = work(&mut self.reader);
        user.cpu += cpu_time().saturating_sub(begin);
        if result.is_err() {
            user.skipped_as_silent += 1;
            user.silent.insert(pid);
        }
        result.ok()
    }

    pub fn left_out(&self) -> Vec<String> {
        let name = |uid: &u32| match *uid {
            OTHER_USERS => "other users".to_owned(),
            uid => format!("user {uid}"),
        };
        let silent = self
            .users
            .iter()
            .filter(|(_, user)| user.skipped_as_silent > 0);
        let silent = silent.map(|(uid, user)| {
            let pids: Vec<String> = user.silent.iter().map(u32::to_string).collect();
            let who = match pids.is_empty() {
                true => "too many processes did not answer".to_owned(),
                false if pids.len() == 1 => format!("process {} did not answer", pids[0]),
                false => format!("processes {} did not answer", pids.join(", ")),
            };
            format!(
                "onbeat skipped {} reads from processes of {}, because {who}.",
                user.skipped_as_silent,
                name(uid)
            )
        });
        let over = self
            .users
            .iter()
            .filter(|(_, user)| user.skipped_over_time > 0);
        let over = over.map(|(uid, user)| {
            format!(
                "onbeat skipped {} reads from processes of {}, because earlier reads had taken {:.0} s of CPU time.",
                user.skipped_over_time,
                name(uid),
                user.cpu.as_secs_f64()
            )
        });
        silent.chain(over).collect()
    }
}

pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writes during the call, and the clock exists on every Linux.
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
    fn after_three_silent_processes_of_a_user_only_processes_of_other_users_are_read() {
        let mut patience = Patience::default();
        for pid in 1..=SILENT_PER_USER as u32 {
            assert_eq!(patience.ask_user(1000, pid, never), None);
        }
        assert_eq!(patience.ask_user(1000, 9, at_once), None);
        assert_eq!(patience.ask_user(1001, 10, at_once), Some(1));
        assert_eq!(
            patience.left_out(),
            ["onbeat skipped 4 reads from processes of user 1000, because processes 1, 2, 3 did not answer."]
        );
        // The limit also holds for ever new user ids. Processes of root are still read.
        for user in 2000..2100 {
            patience.ask_user(user, user, never);
        }
        let silent: usize = patience.users.values().map(|u| u.silent.len()).sum();
        assert_eq!(silent, SILENT_MAX);
        assert_eq!(patience.ask_user(1001, 10, at_once), None);
        assert_eq!(patience.ask_user(0, 11, at_once), Some(1));
    }

    #[test]
    fn the_processes_of_one_user_are_read_up_to_a_limit_of_cpu_time() {
        let mut patience = Patience::default();
        assert_eq!(patience.ask_user(1000, 1, at_once), Some(1));
        patience.users.entry(1000).or_default().cpu = 2 * CPU_PER_USER;
        assert_eq!(patience.ask_user(1000, 1, at_once), None);
        assert_eq!(patience.ask_user(1001, 2, at_once), Some(1));
        assert_eq!(
            patience.left_out(),
            ["onbeat skipped 1 reads from processes of user 1000, because earlier reads had taken 40 s of CPU time."]
        );
        // All users together have twice the time of one user.
        patience.users.entry(1002).or_default().cpu = CPU_PER_USER;
        assert_eq!(patience.ask_user(1001, 2, at_once), None);
    }
}
