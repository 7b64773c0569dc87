//! Decides whose processes can be the application. Any user can give a node any name. Without this
//! check, a process with a name from the plan would get the plan's real-time priorities, whoever
//! runs it.

use crate::report::Notes;
use onbeat_record::Limits;
use onbeat_trace::{Event, EventKind};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeSet;

const KNOWN_MAX: usize = 1 << 16;
const NAMED_MAX: usize = 8;

pub(crate) struct Trust {
    /// The users whose processes can be the application. `None` trusts every user, because the
    /// caller of onbeat has named the processes or the command.
    users: Option<BTreeSet<u32>>,
    user_of: fn(u32) -> Option<u32>,
    known: FxHashMap<u32, bool>,
    left_alone: BTreeSet<u32>,
    reported_outside: u64,
}

impl Trust {
    /// Creates a check that trusts the processes of `users`, of root and of the calling user. If
    /// `users` is `None`, it trusts every user. `user_of` returns the user of a process.
    pub(crate) fn new(users: Option<&[u32]>, user_of: fn(u32) -> Option<u32>) -> Trust {
        // SAFETY: geteuid has no arguments and cannot fail.
        let own = unsafe { libc::geteuid() };
        Trust {
            users: users.map(|users| users.iter().copied().chain([0, own]).collect()),
            user_of,
            known: FxHashMap::default(),
            left_alone: BTreeSet::new(),
            reported_outside: 0,
        }
    }

    pub(crate) fn of_application<'e>(
        &mut self,
        events: &'e [Event],
        notes: &mut Notes,
    ) -> Cow<'e, [Event]> {
        if self.users.is_none() {
            return Cow::Borrowed(events);
        }
        let trusted: Vec<bool> = events.iter().map(|e| self.trusts(e, notes)).collect();
        if trusted.iter().all(|&t| t) {
            return Cow::Borrowed(events);
        }
        let kept = events.iter().zip(trusted).filter(|(_, trusted)| *trusted);
        Cow::Owned(kept.map(|(event, _)| event.clone()).collect())
    }

    /// Returns true if the process still belongs to a user whose processes can be the application.
    /// Must be called before onbeat changes the process.
    pub(crate) fn still_holds(&self, pid: u32) -> bool {
        let holds = |users: &BTreeSet<u32>| (self.user_of)(pid).is_some_and(|u| users.contains(&u));
        self.users.as_ref().is_none_or(holds)
    }

    /// Writes a note with `outside`, the number of processes outside of the recording's limits.
    /// Does so at the first such process, and each time the number has doubled.
    pub(crate) fn report_outside(&mut self, outside: u64, limits: &Limits, notes: &mut Notes) {
        if outside > 0 && outside >= 2 * self.reported_outside {
            self.reported_outside = outside;
            limits
                .sentence(outside)
                .into_iter()
                .for_each(|s| notes.add(s));
        }
    }

    fn trusts(&mut self, event: &Event, notes: &mut Notes) -> bool {
        if event.pid == 0 {
            return true;
        }
        let trusted = match self.known.get(&event.pid) {
            Some(&known) => known,
            None => {
                let trusted = self.still_holds(event.pid);
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                self.known.insert(event.pid, trusted);
                if !trusted {
                    self.leave_alone(event.pid, notes);
                }
                trusted
            }
        };
        // The id can be used again, and a process can become another user's by starting a program.
        let ends = event.kind == EventKind::Exit && event.pid == event.tid;
        if ends || matches!(event.kind, EventKind::Exec { .. }) {
            self.known.remove(&event.pid);
        }
        trusted
    }

    fn leave_alone(&mut self, pid: u32, notes: &mut Notes) {
        let Some(user) = (self.user_of)(pid) else {
            return;
        };
        if self.left_alone.len() < NAMED_MAX && self.left_alone.insert(user) {
            // With `risk: ` before it, and the longest id, the sentence fits a line of 100 columns.
            notes.add(format!(
                "Processes of user {user} are ignored. If some of them belong to the application, add --user {user}."
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::text;

    fn user_of(pid: u32) -> Option<u32> {
        (pid < 1000).then_some(pid / 100)
    }

    fn kept(trust: &mut Trust, notes: &mut Notes, text: &str) -> Vec<u32> {
        let events = text::parse(text).expect("events");
        let kept = trust.of_application(&events, notes);
        kept.iter().map(|e| e.pid).collect()
    }

    #[test]
    fn processes_outside_of_the_recording_are_reported_each_time_their_number_doubles() {
        let mut trust = Trust::new(None, user_of);
        let limits = Limits {
            domain: Some(3),
            ..Limits::default()
        };
        let mut notes = Notes::default();
        for outside in [0, 0, 1, 1, 2, 3, 4, 900, 1000] {
            trust.report_outside(outside, &limits, &mut notes);
        }
        let reported = notes.take_new();
        let numbers: Vec<_> = reported
            .iter()
            .filter_map(|n| n.split(' ').next())
            .collect();
        assert_eq!(numbers, ["1", "2", "4", "900"]);
        assert_eq!(
            reported[1],
            "2 processes outside of --domain 3 were not recorded."
        );
    }

    const ALL: &str = "
1ms cpu0 50/50 timer_call timer=0x1
1ms cpu0 150/150 timer_call timer=0x1
1ms cpu0 250/250 timer_call timer=0x1
1ms cpu0 1001/1001 timer_call timer=0x1
1ms cpu0 0/0 clock_offset realtime_minus_monotonic_ns=5ms
";

    #[test]
    fn only_processes_of_given_users_and_root_are_trusted() {
        let (mut trust, mut notes) = (Trust::new(Some(&[1]), user_of), Notes::default());
        for _ in 0..2 {
            assert_eq!(kept(&mut trust, &mut notes, ALL), [50, 150, 0]);
        }
        let said = notes.take_new();
        assert!(said.len() == 1 && said[0].contains("--user 2"), "{said:?}");
        assert!(trust.still_holds(150) && !trust.still_holds(250) && !trust.still_holds(1001));
        let mut anyone = Trust::new(None, user_of);
        assert_eq!(kept(&mut anyone, &mut notes, ALL).len(), 5);
        assert!(anyone.still_holds(1001) && notes.take_new().is_empty());
    }

    #[test]
    fn the_user_of_a_reused_process_id_is_checked_again() {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static USER: AtomicU32 = AtomicU32::new(1);
        let mut trust = Trust::new(Some(&[1]), |_| Some(USER.load(Relaxed)));
        let mut notes = Notes::default();
        let mut count = |text: &str| kept(&mut trust, &mut notes, text).len();
        for end in ["exit", "exec comm=x"] {
            USER.store(1, Relaxed);
            assert_eq!(count("1ms cpu0 7/7 timer_call timer=0x1\n"), 1);
            USER.store(2, Relaxed);
            // The end of one thread is not the end of its process.
            assert_eq!(
                count("2ms cpu0 7/8 exit\n2ms cpu0 7/7 timer_call timer=0x1\n"),
                2
            );
            assert_eq!(count(&format!("3ms cpu0 7/7 {end}\n")), 1);
            assert_eq!(
                count("4ms cpu0 7/7 timer_call timer=0x1\n4ms cpu0 7/7 exit\n"),
                0
            );
        }
    }
}
