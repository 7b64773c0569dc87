//! Finds how BPF programs can recognise the start of a chain's execution: by the handle of the
//! first callback's timer or subscription. Pure.
//!
//! An execution and the event that begins it occur on the same thread. The same handle must be
//! found several times in a row, because a wrong root would give items a wrong cycle.

use onbeat_record::Root;
use onbeat_trace::{Event, EventKind};
use std::collections::{BTreeMap, VecDeque};

const REQUIRED_REPEATS: u32 = 3;
const EVENTS_PER_THREAD: usize = 32;
const MAX_THREADS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RootChange {
    pub(crate) pid: u32,
    pub(crate) was: Option<Root>,
    pub(crate) now: Option<Root>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    Timer,
    Subscription,
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Roots {
    begins: Begins,
    /// Maps a thread's id to the latest events of the thread that can begin an execution. Each
    /// entry contains the process's id, the time, and the event (the root).
    recent: BTreeMap<u32, VecDeque<(u32, u64, Root)>>,
    seen: Option<(u32, Root, u32)>,
    root: Option<(u32, Root)>,
}

impl Roots {
    pub(crate) fn new(first: &str) -> Roots {
        let kind = first.split_once(':').map_or("", |(_, kind)| kind);
        Roots {
            begins: match kind {
                kind if kind.starts_with("timer(") => Begins::Timer,
                kind if kind.starts_with("subscription(") => Begins::Subscription,
                _ => Begins::Unknown,
            },
            recent: BTreeMap::new(),
            seen: None,
            root: None,
        }
    }

    pub(crate) fn push(&mut self, events: &[Event]) -> Option<RootChange> {
        let mut ended = None;
        for event in events {
            let root = match event.kind {
                EventKind::TimerCall { timer } => Root::Timer(timer),
                EventKind::CallbackStart { callback, .. } => Root::Callback(callback),
                EventKind::Take {
                    rmw, taken: true, ..
                } => Root::Subscription(rmw),
                EventKind::Exit => {
                    self.recent.remove(&event.tid);
                    if event.pid == event.tid {
                        ended = self.ended(event.pid).or(ended);
                    }
                    continue;
                }
                _ => continue,
            };
            self.keep(event, root);
        }
        ended
    }

    fn keep(&mut self, event: &Event, root: Root) {
        if !self.recent.contains_key(&event.tid) && self.recent.len() >= MAX_THREADS {
            let time =
                |(_, recent): (&u32, &VecDeque<(u32, u64, Root)>)| recent.back().map(|e| e.1);
            let oldest = self.recent.iter().min_by_key(|&entry| time(entry));
            let oldest = oldest.map(|(&tid, _)| tid);
            oldest.and_then(|tid| self.recent.remove(&tid));
        }
        let recent = self.recent.entry(event.tid).or_default();
        if recent.len() == EVENTS_PER_THREAD {
            recent.pop_front();
        }
        recent.push_back((event.pid, event.time_ns, root));
    }

    fn ended(&mut self, pid: u32) -> Option<RootChange> {
        self.seen = self.seen.filter(|seen| seen.0 != pid);
        let (pid, was) = self.root.take_if(|root| root.0 == pid)?;
        Some(RootChange {
            pid,
            was: Some(was),
            now: None,
        })
    }

    pub(crate) fn ran(&mut self, pid: u32, tid: u32, start_ns: u64) -> Option<RootChange> {
        let root = self.of(pid, tid, start_ns)?;
        let times = match self.seen {
            Some((was, of, times)) if (was, of) == (pid, root) => times.saturating_add(1),
            _ => 1,
        };
        self.seen = Some((pid, root, times));
        if times < REQUIRED_REPEATS || self.root == Some((pid, root)) {
            return None;
        }
        let before = self.root.replace((pid, root));
        Some(RootChange {
            pid,
            was: before.filter(|b| b.0 == pid).map(|b| b.1),
            now: Some(root),
        })
    }

    /// Returns the event that began the callback's run at `start_ns`: the start event of rclcpp, or
    /// else the latest timer call or take before the run.
    fn of(&self, pid: u32, tid: u32, start_ns: u64) -> Option<Root> {
        let until = self.recent.get(&tid)?.iter().rev();
        let mut until = until.filter(|e| e.0 == pid && e.1 <= start_ns).peekable();
        if let Some(&&(_, time_ns, root @ Root::Callback(_))) = until.peek() {
            return (time_ns == start_ns).then_some(root);
        }
        let (_, _, root) = until.next()?;
        match (root, self.begins) {
            (Root::Timer(_), Begins::Timer) | (Root::Subscription(_), Begins::Subscription) => {
                Some(*root)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Event> {
        onbeat_trace::text::parse(text).expect("events")
    }

    fn found(first: &str, text: &str, starts_ms: &[u64]) -> Vec<Option<Root>> {
        let mut roots = Roots::new(first);
        assert_eq!(roots.push(&events(text)), None);
        let ran = |at: &u64| roots.ran(1, 2, at * 1_000_000);
        starts_ms
            .iter()
            .map(ran)
            .map(|c| c.and_then(|c| c.now))
            .collect()
    }

    #[test]
    fn an_execution_root_is_found_after_three_equal_first_callbacks() {
        let timers = "
1ms cpu0 1/2 timer_call timer=0x10
2ms cpu0 1/2 take rmw=0x20 message=0x1 source_ns=5 taken=yes
3ms cpu0 1/2 timer_call timer=0x10
5ms cpu0 1/2 timer_call timer=0x10
7ms cpu0 1/2 timer_call timer=0x11
9ms cpu0 1/2 timer_call timer=0x10
11ms cpu0 1/2 timer_call timer=0x10
13ms cpu0 1/2 timer_call timer=0x10
15ms cpu0 1/2 timer_call timer=0x10
";
        let root = Some(Root::Timer(0x10));
        assert_eq!(
            found("/a:timer(1ms)", timers, &[1, 3, 5, 5]),
            [None, None, root, None]
        );
        // A different timer in between starts the count anew.
        assert_eq!(
            found("/a:timer(1ms)", timers, &[3, 5, 7, 9, 11, 13]),
            [None, None, None, None, None, root]
        );
        // A root that does not fit the callback's kind does not count, nor one of another thread.
        assert_eq!(found("/a:subscription(/t)", timers, &[1, 3, 5]), [None; 3]);
        assert_eq!(found("/a:service(/t)", timers, &[1, 3, 5]), [None; 3]);
        let mut roots = Roots::new("/a:timer(1ms)");
        roots.push(&events(timers));
        assert_eq!(roots.ran(1, 3, 1_000_000), None);
        assert_eq!(roots.of(9, 2, 1_000_000), None, "another process's");
    }

    #[test]
    fn the_callback_start_event_of_rclcpp_is_an_execution_root() {
        let text = "
1ms cpu0 1/2 take rmw=0x20 message=0x1 source_ns=5 taken=yes
2ms cpu0 1/2 callback_start callback=0x30 intra_process=no
4ms cpu0 1/2 callback_start callback=0x30 intra_process=yes
6ms cpu0 1/2 callback_start callback=0x30 intra_process=yes
";
        let root = Some(Root::Callback(0x30));
        assert_eq!(
            found("/a:subscription(/t)", text, &[2, 4, 6]),
            [None, None, root]
        );
    }

    #[test]
    fn an_execution_root_ends_with_its_process_or_a_new_timer() {
        let mut roots = Roots::new("/a:timer(1ms)");
        let mut at = 0;
        let mut run = |roots: &mut Roots, pid: u32, timer: u64| {
            (0..4).find_map(|_| {
                at += 1;
                let text = format!("{at}ms cpu0 {pid}/{pid} timer_call timer={timer:#x}\n");
                roots.push(&events(&text));
                roots.ran(pid, pid, at * 1_000_000)
            })
        };
        let change = |pid, was, now| Some(RootChange { pid, was, now });
        let root = |timer| Some(Root::Timer(timer));
        assert_eq!(run(&mut roots, 1, 0x10), change(1, None, root(0x10)));
        assert_eq!(run(&mut roots, 1, 0x11), change(1, root(0x10), root(0x11)));
        assert_eq!(run(&mut roots, 1, 0x11), None);
        let exit = events("99ms cpu0 1/1 exit\n");
        assert_eq!(roots.push(&exit), change(1, root(0x11), None));
        assert_eq!(run(&mut roots, 7, 0x11), change(7, None, root(0x11)));
    }

    #[test]
    fn the_memory_for_execution_roots_stays_bounded_while_threads_come_and_go() {
        let mut roots = Roots::new("/a:timer(1ms)");
        for tid in 0..10 * MAX_THREADS as u64 {
            for n in 0..2 * EVENTS_PER_THREAD as u64 {
                let at = tid * 100 + n;
                let text = format!("{at}ms cpu0 1/{} timer_call timer=0x10\n", tid + 2);
                roots.push(&events(&text));
            }
        }
        assert_eq!(roots.recent.len(), MAX_THREADS);
        assert!(roots.recent.values().all(|r| r.len() <= EVENTS_PER_THREAD));
    }
}
