//! Decides which process has a callback if several processes have nodes of the same name. The first
//! process that ran the callback has it until the process ends.

use onbeat_trace::Event;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    /// The process with id `was` ran the callback before, and has ended. The callback now belongs
    /// to the process that has just run it.
    Anew {
        was: u32,
    },
    Second {
        of: u32,
    },
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    pid: u32,
    has_ended: bool,
}

pub(crate) struct Instances {
    holders: Vec<Option<Holder>>,
    left_alone: BTreeMap<u32, u32>,
    is_running: fn(u32) -> bool,
}

impl Instances {
    /// Creates the table for `callbacks` callbacks. No callback belongs to a process yet.
    /// `is_running` returns true if a process runs; it is needed because the event of the process's
    /// end can be lost.
    pub(crate) fn new(callbacks: usize, is_running: fn(u32) -> bool) -> Instances {
        Instances {
            holders: vec![None; callbacks],
            left_alone: BTreeMap::new(),
            is_running,
        }
    }

    pub(crate) fn ran(&mut self, callback: usize, pid: u32) -> Standing {
        let Some(holder) = self.holders.get_mut(callback) else {
            return Standing::Holds;
        };
        let new = Holder {
            pid,
            has_ended: false,
        };
        match *holder {
            Some(had) if had.pid == pid => {
                *holder = Some(new);
                Standing::Holds
            }
            Some(had) if !had.has_ended && (self.is_running)(had.pid) => {
                self.left_alone.insert(pid, had.pid);
                Standing::Second { of: had.pid }
            }
            had => {
                *holder = Some(new);
                had.map_or(Standing::Holds, |had| Standing::Anew { was: had.pid })
            }
        }
    }

    pub(crate) fn is_second(&self, callback: usize, pid: u32) -> bool {
        let holder = self.holders.get(callback).copied().flatten();
        holder.is_some_and(|had| had.pid != pid && !had.has_ended && (self.is_running)(had.pid))
    }

    pub(crate) fn ended(&mut self, pid: u32) {
        let holders = self.holders.iter_mut().flatten();
        holders
            .filter(|holder| holder.pid == pid)
            .for_each(|holder| holder.has_ended = true);
        self.left_alone
            .retain(|&second, of| second != pid && *of != pid);
    }

    pub(crate) fn refresh(&mut self) {
        let ended = self.left_alone.values().copied();
        let ended: Vec<u32> = ended.filter(|&of| !(self.is_running)(of)).collect();
        ended.into_iter().for_each(|of| self.ended(of));
        let is_running = self.is_running;
        self.left_alone.retain(|&second, _| is_running(second));
    }

    pub(crate) fn without_second_instances<'e>(
        &self,
        events: Cow<'e, [Event]>,
    ) -> Cow<'e, [Event]> {
        let is_second = |pid: &u32| {
            let mut holders = self.holders.iter().flatten();
            !holders.any(|h| h.pid == *pid && !h.has_ended)
        };
        let seconds = self.left_alone.keys().copied();
        let seconds: Vec<u32> = seconds.filter(is_second).collect();
        if !events.iter().any(|e| seconds.contains(&e.pid)) {
            return events;
        }
        let kept = events.iter().filter(|e| !seconds.contains(&e.pid));
        Cow::Owned(kept.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instances() -> Instances {
        Instances::new(2, |pid| pid != 9)
    }

    #[test]
    fn a_callback_belongs_to_its_first_process_until_that_ends() {
        let mut instances = instances();
        assert_eq!(instances.ran(0, 1), Standing::Holds);
        assert_eq!(instances.ran(0, 2), Standing::Second { of: 1 });
        assert_eq!(instances.ran(1, 2), Standing::Holds);
        assert_eq!(instances.ran(0, 1), Standing::Holds);
        instances.ended(1);
        assert_eq!(instances.ran(0, 2), Standing::Anew { was: 1 });
        assert_eq!(instances.ran(0, 3), Standing::Second { of: 2 });
        // The event of the end of process 9 was lost.
        assert_eq!(instances.ran(1, 9), Standing::Second { of: 2 });
        instances.ended(2);
        assert_eq!(instances.ran(1, 9), Standing::Anew { was: 2 });
        assert_eq!(instances.ran(1, 4), Standing::Anew { was: 9 });
        assert_eq!(
            instances.ran(7, 4),
            Standing::Holds,
            "no callback of the plan"
        );
    }

    #[test]
    fn events_of_a_process_are_dropped_while_it_is_a_second_instance() {
        let text = "1ms cpu0 1/1 switch_in\n2ms cpu0 2/2 switch_in\n3ms cpu0 3/3 switch_in\n";
        let events = onbeat_trace::text::parse(text).expect("events");
        let pids = |instances: &Instances| -> Vec<u32> {
            let kept = instances.without_second_instances(Cow::Borrowed(&events));
            kept.iter().map(|e| e.pid).collect()
        };
        let mut instances = instances();
        instances.ran(0, 1);
        assert_eq!(pids(&instances), [1, 2, 3]);
        instances.ran(0, 2);
        assert_eq!(pids(&instances), [1, 3]);
        // Process 2 has another callback of the plan.
        instances.ran(1, 2);
        assert_eq!(pids(&instances), [1, 2, 3]);
        let mut lost = Instances::new(1, |pid| pid != 1);
        lost.holders[0] = Some(Holder {
            pid: 1,
            has_ended: false,
        });
        lost.left_alone.insert(2, 1);
        assert_eq!(pids(&lost), [1, 3]);
        lost.refresh();
        assert_eq!(pids(&lost), [1, 2, 3]);
    }
}
