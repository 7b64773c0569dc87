//! Derives from the events of a run what each thread did at each moment, for which lock it slept,
//! who held that lock, and which thread had the benchmark's core.

use onbeat_trace::{Event, EventKind};
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Runs,
    Ready,
    Lock(u32),
    Sleeps,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    pub span: Range<u64>,
    pub state: State,
}

#[derive(Debug, Clone, Default)]
pub struct Thread {
    pub name: String,
    pub stretches: Vec<Stretch>,
    now: Option<(u64, State)>,
    lock: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub struct Course {
    pub threads: BTreeMap<(u32, u32), Thread>,
    /// The times (CLOCK_MONOTONIC, in ns) at which another thread got the benchmark's core, each
    /// with the id of this thread.
    on_core: Vec<(u64, u32)>,
}

pub fn overlap_ns(a: &Range<u64>, b: &Range<u64>) -> u64 {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

impl Thread {
    fn enter(&mut self, at: u64, state: State) {
        if let Some((since, before)) = self.now.replace((at, state)) {
            if at > since {
                self.stretches.push(Stretch {
                    span: since..at,
                    state: before,
                });
            }
        }
    }

    fn event(&mut self, at: u64, kind: &EventKind) {
        match kind {
            EventKind::LockWait { owner_tid, .. } => self.lock = Some(*owner_tid),
            EventKind::SwitchOut { state: 0, .. } => self.enter(at, State::Ready),
            EventKind::SwitchOut { .. } => {
                let state = self.lock.take().map_or(State::Sleeps, State::Lock);
                self.enter(at, state);
            }
            EventKind::Woken { ready_ns } => {
                let since = self.now.map_or(at, |(since, _)| since);
                self.enter(at.saturating_sub(*ready_ns).max(since), State::Ready);
            }
            EventKind::SwitchIn { .. } => self.enter(at, State::Runs),
            EventKind::Exit => {
                self.enter(at, State::Sleeps);
                self.now = None;
            }
            _ => {}
        }
    }

    pub fn time_in(&self, within: &Range<u64>, is: impl Fn(State) -> bool) -> u64 {
        let in_state = self.stretches.iter().filter(|s| is(s.state));
        in_state.map(|s| overlap_ns(&s.span, within)).sum()
    }
}

impl Course {
    pub fn of<'e>(
        events: impl Iterator<Item = &'e Event>,
        processes: &[u32],
        core: u32,
        end_ns: u64,
    ) -> Course {
        let mut course = Course::default();
        for event in events {
            course.occupancy(event, core);
            if !processes.contains(&event.pid) {
                continue;
            }
            let thread = course.threads.entry((event.pid, event.tid)).or_default();
            match &event.kind {
                EventKind::Thread { comm, .. } => thread.name = comm.to_string(),
                EventKind::Fork { comm, .. } if thread.name.is_empty() => {
                    thread.name = comm.to_string();
                }
                kind => thread.event(event.time_ns, kind),
            }
        }
        for thread in course.threads.values_mut() {
            thread.enter(end_ns, State::Sleeps);
        }
        course
    }

    fn occupancy(&mut self, event: &Event, core: u32) {
        if u32::from(event.cpu) != core {
            return;
        }
        let who = match event.kind {
            EventKind::SwitchIn { .. } => event.tid,
            EventKind::SwitchOut { next_tid, .. } => next_tid,
            EventKind::Occupied { prev_tid, .. } if prev_tid != onbeat_trace::UNTOLD => event.tid,
            _ => return,
        };
        self.on_core.push((event.time_ns, who));
    }

    pub fn spans_on_core(
        &self,
        tid: u32,
        within: &Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        let within = within.clone();
        let next = self.on_core.iter().skip(1).map(|(at, _)| *at);
        let spans = self.on_core.iter().zip(next.chain([within.end]));
        let its = spans.filter(move |((_, who), _)| *who == tid);
        its.filter_map(move |((from, _), to)| {
            let part = (*from).max(within.start)..to.min(within.end);
            (part.start < part.end).then_some(part)
        })
    }

    pub fn on_core(&self, tid: u32, within: &Range<u64>) -> u64 {
        self.spans_on_core(tid, within)
            .map(|s| s.end - s.start)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, (pid, tid): (u32, u32), kind: EventKind) -> Event {
        Event {
            time_ns,
            cpu: 1,
            pid,
            tid,
            kind,
        }
    }

    fn gets(prev_tid: u32) -> EventKind {
        EventKind::SwitchIn {
            prev_tid,
            priority: 120,
            policy: 0,
        }
    }

    fn leaves(next_tid: u32, state: u16) -> EventKind {
        EventKind::SwitchOut { next_tid, state }
    }

    /// Makes the course of a run in which main thread 10 sleeps for a lock that thread 11 holds.
    /// Meanwhile thread 9 of another process has the core.
    fn inversion() -> Course {
        let (main, child) = ((10, 10), (10, 11));
        let wait = EventKind::LockWait {
            lock: 7,
            owner_tid: 11,
        };
        let events = [
            event(0, child, gets(0)),
            event(100, child, leaves(9, 0)),
            event(150, main, gets(9)),
            event(160, main, wait),
            event(160, main, leaves(9, 1)),
            event(500, child, gets(9)),
            event(520, child, leaves(10, 0)),
            event(520, main, EventKind::Woken { ready_ns: 10 }),
            event(520, main, gets(11)),
        ];
        Course::of(events.iter(), &[10], 1, 600)
    }

    #[test]
    fn a_wait_for_a_lock_shows_how_long_its_holder_was_ready_and_running() {
        let course = inversion();
        let main = &course.threads[&(10, 10)];
        let states: Vec<_> = main.stretches.iter().map(|s| s.state).collect();
        assert_eq!(
            states,
            [State::Runs, State::Lock(11), State::Ready, State::Runs]
        );
        let waits = &main.stretches[1].span;
        assert_eq!(*waits, 160..510);
        let holder = &course.threads[&(10, 11)];
        assert_eq!(holder.time_in(waits, |s| s == State::Ready), 340);
        assert_eq!(holder.time_in(waits, |s| s == State::Runs), 10);
        assert_eq!(course.on_core(9, waits), 340);
        assert_eq!(course.on_core(9, &(0..600)), 50 + 340);
    }

    #[test]
    fn a_sleep_without_a_lock_is_not_a_wait_for_a_lock() {
        let events = [
            event(0, (10, 10), gets(0)),
            event(5, (10, 10), leaves(0, 1)),
            event(90, (10, 10), EventKind::Woken { ready_ns: 30 }),
            event(90, (10, 10), gets(0)),
        ];
        let course = Course::of(events.iter(), &[10], 1, 100);
        let thread = &course.threads[&(10, 10)];
        assert_eq!(thread.time_in(&(0..100), |s| s == State::Sleeps), 55);
        assert_eq!(thread.time_in(&(0..100), |s| s == State::Ready), 30);
        assert!(Course::of(events.iter(), &[11], 1, 100).threads.is_empty());
    }
}
