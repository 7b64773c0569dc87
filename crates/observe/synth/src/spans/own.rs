//! The application's own threads, which run no callbacks but publish: drivers, workers that get
//! work from callbacks, and threads that are created for one piece of work.
//!
//! The work of such a thread for one publication is an execution of the publisher's thread vertex.
//! The execution begins when the thread wakes up from the longest sleep since the previous
//! publication, in which it waited for work. It ends when the thread goes to the longest sleep
//! before the next publication. A sleep for a mutex is part of an execution, however long it is. A
//! thread that does not sleep goes from publication to publication.
//!
//! All of the thread's time is therefore in its executions. The end of an execution is known once
//! the next one begins.

use super::account::Mark;
use super::{CloseReason, Spans};
use crate::entities::Entities;
use crate::events::{Begin, Ending, Input, Owner, SpanEvent};
use crate::ids::{EntityId, HandedId, InstanceId, ThreadIndex};
use crate::index::NameId;
use crate::values::{Cpus, Idle, Release};

#[derive(Debug, Clone, Default)]
pub(super) struct OwnThread {
    first_run: FirstRun,
    last_cpu: u16,
    is_executor: bool,
    /// The thread creates nodes or endpoints, so it is not a worker of rclpy's pool. The thread
    /// triggers the guard conditions of executors to announce the new nodes and endpoints.
    makes_endpoints: bool,
    /// The thread has published while no callback was known to run on it. After a late attach, the
    /// first such publication may come from a callback that began before the recording.
    is_doubtful: bool,
    handed: Handed,
    work: Option<Box<Work>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Handed {
    made: Option<HandedId>,
    /// The wake-up that ended the longest of the thread's sleeps since its last publication.
    longest: Option<HandedId>,
    /// The latest wake-up of the thread. `None` again once the thread has got a CPU.
    last: Option<HandedId>,
}

#[derive(Debug, Clone, Copy, Default)]
enum FirstRun {
    /// The thread first ran before the recording, or the recording does not show when it first ran.
    #[default]
    Unknown,
    NotYet,
    At(Mark),
}

#[derive(Debug, Clone)]
struct Work {
    execution: Option<Execution>,
    last: Mark,
    message: Option<u64>,
}

#[derive(Debug, Clone)]
struct Execution {
    instance: InstanceId,
    from: Mark,
    /// The length of the thread's sleep before the execution, in ns. The value is `u64::MAX` for an
    /// execution that began when the thread first ran.
    slept: u64,
    topics: Vec<Option<NameId>>,
    cpus: Cpus,
}

impl OwnThread {
    pub(super) fn topics(&self) -> impl Iterator<Item = NameId> + '_ {
        let execution = self.work.as_ref().and_then(|work| work.execution.as_ref());
        execution
            .into_iter()
            .flat_map(|it| &it.topics)
            .filter_map(|topic| *topic)
    }

    pub(super) fn created(&mut self) {
        self.first_run = FirstRun::NotYet;
    }

    /// Records that the thread gets a CPU. `longest` is set if the sleep that has ended was the
    /// thread's longest since its last trigger or publication. Returns a wake-up that certainly
    /// began no execution.
    pub(super) fn switch_in(&mut self, at: Mark, cpu: u16, longest: bool) -> Option<HandedId> {
        self.last_cpu = cpu;
        let handed = &mut self.handed;
        let dropped = if matches!(self.first_run, FirstRun::NotYet) {
            self.first_run = FirstRun::At(at);
            std::mem::replace(&mut handed.made, handed.last.take())
        } else if longest {
            std::mem::replace(&mut handed.longest, handed.last.take())
        } else {
            handed.last.take()
        };
        if let Some(execution) = self.work.as_mut().and_then(|w| w.execution.as_mut()) {
            execution.cpus.add(cpu);
        }
        dropped
    }

    pub(super) fn is_known(&self) -> bool {
        self.work.is_some()
    }
}

impl Work {
    /// Reports whether a publication belongs to the same execution as the previous publication.
    /// There are two such cases:
    /// - The publication is another copy of the same message.
    /// - Its topic is new in this execution, and the thread slept at most half as long as before
    ///   the execution.
    fn goes_on(&self, topic: Option<NameId>, message: Option<u64>, slept: u64) -> bool {
        let copy = message.is_some() && message == self.message;
        let more = |e: &Execution| slept <= e.slept / 2 && !e.topics.contains(&topic);
        copy || self.execution.as_ref().is_some_and(more)
    }
}

impl Spans {
    pub(crate) fn makes_endpoint(&mut self, ti: ThreadIndex) {
        self.threads[ti].running.own.makes_endpoints = true;
    }

    fn is_own(&self, ti: ThreadIndex) -> bool {
        let thread = &self.threads[ti];
        let own = &thread.running.own;
        let maker = own.makes_endpoints || thread.id.tid == thread.id.pid;
        let free = !own.is_executor && (maker || thread.rounds.last_trigger.is_none());
        free && thread.account.is_scheduled()
    }

    pub(super) fn note_executor(&mut self, ti: ThreadIndex, time: u64) {
        let own = &mut self.threads[ti].running.own;
        if !std::mem::replace(&mut own.is_executor, true) {
            self.close_own(ti, time, CloseReason::ExecutorWentOn);
        }
    }

    pub(super) fn own_publication(
        &mut self,
        entities: &Entities,
        ti: ThreadIndex,
        time: u64,
        (publisher, message): (EntityId, Option<u64>),
    ) -> Owner {
        if self.ignores_own_threads || !self.is_own(ti) {
            return Owner::Outside;
        }
        let topic = entities.get(publisher).name();
        let thread = &mut self.threads[ti];
        let now = thread.account.mark(time);
        let gap = thread.sleeps.take_longest();
        let slept = gap.map_or(0, |gap| gap.length);
        // A callback that already ran when the recording began is seen only when it ends.
        let late = entities.process(thread.process).late;
        let own = &mut thread.running.own;
        let (made, woken) = (own.handed.made.take(), own.handed.longest.take());
        let was_doubtful = std::mem::replace(&mut own.is_doubtful, true);
        let is_old = late && matches!(own.first_run, FirstRun::Unknown);
        if is_old && own.work.is_none() && !(was_doubtful && gap.is_some()) {
            self.report_not_handed(made);
            self.report_not_handed(woken);
            return Owner::Outside;
        }
        let before = own.work.take();
        if let Some(mut work) = before.clone().filter(|w| w.goes_on(topic, message, slept)) {
            (work.last, work.message) = (now, message);
            let instance = work.execution.as_mut().map(|e| {
                e.topics.push(topic);
                e.instance
            });
            own.work = Some(work);
            self.report_not_handed(made);
            self.report_not_handed(woken);
            return instance.map_or(Owner::Outside, Owner::Instance);
        }
        let (from, slept, work) = match (own.first_run, &before, gap) {
            (FirstRun::At(first), None, gap) if made.is_some() || gap.is_none() => {
                (Some(first), u64::MAX, made)
            }
            (_, _, Some(gap)) => (Some(gap.to), gap.length, woken),
            (_, before, None) => (before.as_ref().map(|w| w.last), 0, None),
        };
        let mut cpus = Cpus::default();
        cpus.add(own.last_cpu);
        let ended = before.and_then(|w| Some((w.execution?, w.last)));
        if let Some((execution, last)) = ended {
            let to = gap.map_or(last, |gap| gap.from);
            self.end_own(ti, execution, to, Ending::Inferred);
        }
        for unused in [made, woken] {
            self.report_not_handed(unused.filter(|_| unused != work));
        }
        let input = work.map_or(Input::Unknown, |work| Input::Handed { work });
        // No callback handed over work, so the thread became ready when its own sleep was over.
        let idle = gap
            .filter(|gap| input == Input::Unknown && from.is_some_and(|f| f.time == gap.to.time));
        let idle = idle.map(|gap| Idle {
            from: gap.from.time,
            woken: gap.woken,
        });
        let execution = from.map(|from| Execution {
            instance: self.begin_own(ti, publisher, from, input, idle),
            from,
            slept,
            topics: vec![topic],
            cpus,
        });
        let owner = execution.as_ref().map(|e| Owner::Instance(e.instance));
        self.threads[ti].running.own.work = Some(Box::new(Work {
            execution,
            last: now,
            message,
        }));
        owner.unwrap_or(Owner::Outside)
    }

    pub(super) fn hand_over(&mut self, ti: ThreadIndex, time: u64, by: u32) {
        if by == 0 || self.threads[ti].running.own.is_executor {
            return;
        }
        let Some(by) = self.threads.of_tid(by).map(|by| &self.threads[by]) else {
            return;
        };
        // After the last trigger of a round, rclpy's executor runs and no callback does.
        let span = by.span().filter(|span| span.triggered().is_none());
        let instance = span.and_then(|span| span.instance);
        let instance = instance.filter(|_| by.process == self.threads[ti].process);
        let work = instance.map(|instance| {
            self.handed += 1;
            let work = HandedId(self.handed);
            self.new_events.push(SpanEvent::HandOver {
                work,
                instance,
                time,
            });
            work
        });
        let own = &mut self.threads[ti].running.own;
        let before = std::mem::replace(&mut own.handed.last, work);
        self.report_not_handed(before);
    }

    /// Returns the CPU time of an ending thread that was created within the recording, but neither
    /// ran callbacks nor published. The thread has then worked for other threads. Returns `None` if
    /// the time is unknown or was already returned.
    pub(super) fn helper_ns(&mut self, ti: ThreadIndex, time: u64) -> Option<u64> {
        let thread = &mut self.threads[ti];
        let own = &mut thread.running.own;
        let FirstRun::At(first) = own.first_run else {
            return None;
        };
        if own.is_executor || own.is_known() || thread.rounds.last_trigger.is_some() {
            return None;
        }
        own.first_run = FirstRun::Unknown;
        Some(thread.account.at(time).since(&first.totals).exec_ns)
    }

    pub(super) fn report_not_handed(&mut self, work: Option<HandedId>) {
        self.new_events
            .extend(work.map(|work| SpanEvent::NotHanded { work }));
    }

    fn begin_own(
        &mut self,
        ti: ThreadIndex,
        publisher: EntityId,
        from: Mark,
        input: Input,
        idle: Option<Idle>,
    ) -> InstanceId {
        let instance = self.instances.next();
        self.new_events.push(SpanEvent::Begin(Begin {
            instance,
            entity: publisher,
            start: from.time,
            thread: self.threads[ti].id,
            input,
            idle,
            release: Release::Unknown,
        }));
        instance
    }

    fn end_own(&mut self, ti: ThreadIndex, execution: Execution, to: Mark, how: Ending) {
        let spent = to.totals.since(&execution.from.totals);
        let end = (to.time, spent);
        self.end(ti, execution.instance, end, how, execution.cpus);
    }

    pub(super) fn close_own(&mut self, ti: ThreadIndex, time: u64, why: CloseReason) {
        let handed = std::mem::take(&mut self.threads[ti].running.own.handed);
        for unused in [handed.made, handed.longest, handed.last] {
            self.report_not_handed(unused);
        }
        let thread = &mut self.threads[ti];
        let Some(work) = thread.running.own.work.take() else {
            return;
        };
        let Some(execution) = work.execution else {
            return;
        };
        let now = thread.account.mark(time);
        let (to, how) = match (thread.sleeps.longest_until(time), why) {
            (Some(slept), _) => (slept, Ending::Inferred),
            (None, CloseReason::RecordingEnded) => (now, Ending::Unfinished),
            (None, _) => (now, Ending::Inferred),
        };
        self.end_own(ti, execution, to, how);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    /// The events that create process 10 with publishers of `/a` (rmw 0x1010) and `/b` (rmw
    /// 0x1011). Thread 11 is created at 2 ms.
    const NODE: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=n
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/a
1ms cpu0 10/10 publisher_init publisher=0x11 node=0x1 rmw=0x1011 topic=/b
2ms cpu0 10/11 fork parent_pid=10 parent_tid=10 comm=worker
3ms cpu1 10/11 switch_in
";

    #[test]
    fn an_execution_of_a_publishing_thread_lasts_from_one_sleep_to_the_next() {
        let trace = [
            NODE,
            "4ms cpu1 10/11 publish rmw=0x1010 source_ns=1us
5ms cpu1 10/11 switch_out state=1
8ms cpu1 10/11 switch_in
9ms cpu1 10/11 switch_out state=0
10ms cpu1 10/11 switch_in
11ms cpu1 10/11 publish rmw=0x1010 source_ns=2us
12ms cpu1 10/11 publish rmw=0x1011 source_ns=3us
13ms cpu1 10/11 publish rmw=0x1010 source_ns=4us
14ms cpu1 10/11 exit
",
        ];
        assert_eq!(
            Harness::new(&trace.concat()).span_events(),
            [
                "3000 begin #0 /a",
                "4000 publish /a by #0",
                "5000 end #0 Inferred exec 2000",
                "8000 begin #1 /a",
                "11000 publish /a by #1",
                // Another topic, in the same execution.
                "12000 publish /b by #1",
                // The same topic again, in the next execution.
                "12000 end #1 Inferred exec 3000",
                "12000 begin #0 /a",
                "13000 publish /a by #0",
                "14000 end #0 Inferred exec 2000",
            ]
        );
    }

    #[test]
    fn the_first_execution_of_a_worker_begins_when_it_wakes_up() {
        let trace = [
            NODE,
            "4ms cpu1 10/11 switch_out state=1
8ms cpu1 10/11 switch_in
9ms cpu1 10/11 publish rmw=0x1010 source_ns=1us
",
        ];
        assert_eq!(
            Harness::new(&trace.concat()).span_events(),
            ["8000 begin #0 /a", "9000 publish /a by #0"]
        );
    }

    #[test]
    fn a_long_wait_for_a_mutex_does_not_end_an_execution() {
        // The second execution sleeps 6 ms for a mutex, longer than the 4 ms until its period begins.
        let trace = [
            NODE,
            "4ms cpu1 10/11 switch_out state=1
10ms cpu1 10/11 switch_in
12ms cpu1 10/11 publish rmw=0x1010 source_ns=1us
13ms cpu1 10/11 switch_out state=1
17ms cpu1 10/11 switch_in
18ms cpu1 10/11 lock_wait lock=0x77 owner_tid=12
18ms cpu1 10/11 switch_out state=1
24ms cpu1 10/11 switch_in
25ms cpu1 10/11 publish rmw=0x1010 source_ns=2us
26ms cpu1 10/11 switch_out state=1
30ms cpu1 10/11 switch_in
31ms cpu1 10/11 publish rmw=0x1010 source_ns=3us
32ms cpu1 10/11 exit
",
        ];
        assert_eq!(
            Harness::new(&trace.concat()).span_events(),
            [
                "10000 begin #0 /a",
                "12000 publish /a by #0",
                "13000 end #0 Inferred exec 3000",
                "17000 begin #1 /a",
                "25000 publish /a by #1",
                "26000 end #1 Inferred exec 3000",
                "30000 begin #0 /a",
                "31000 publish /a by #0",
                "32000 end #0 Inferred exec 2000",
            ]
        );
    }

    #[test]
    fn a_sleep_ends_with_the_threads_next_call_if_the_switch_to_the_cpu_is_missing() {
        let trace = [
            NODE,
            "4ms cpu1 10/11 switch_out state=1
104ms cpu1 10/11 switch_in
105ms cpu1 10/11 publish rmw=0x1010 source_ns=1us
106ms cpu1 10/11 switch_out state=1
206ms cpu1 10/11 publish rmw=0x1010 source_ns=2us
207ms cpu1 10/11 exit
",
        ];
        assert_eq!(
            Harness::new(&trace.concat()).span_events(),
            [
                "104000 begin #0 /a",
                "105000 publish /a by #0",
                "106000 end #0 Inferred exec 2000",
                "206000 begin #1 /a",
                "206000 publish /a by #1",
                "207000 end #1 Inferred exec 1000",
            ]
        );
    }

    #[test]
    fn publications_by_executors_and_by_threads_without_scheduler_events_have_no_owner() {
        // Without scheduler events, the beginning of the thread's run is unknown. A thread of an
        // executor is not one of the application's own threads.
        let trace = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=n
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/a
2ms cpu0 10/10 publish rmw=0x1010 source_ns=1us
2ms cpu0 10/10 thread comm=main
3ms cpu0 10/10 wait
4ms cpu0 10/10 switch_out state=1
5ms cpu0 10/10 switch_in
6ms cpu0 10/10 wait_set_init
7ms cpu0 10/10 publish rmw=0x1010 source_ns=2us
";
        assert_eq!(
            Harness::new(trace).span_events(),
            ["2000 publish /a by nobody", "7000 publish /a by nobody"]
        );
    }
}
