//! Work of executors that has no events of its own: waitables other than actions, for example
//! events of QoS, guard conditions or a program's own waitables. The number of such pieces of work
//! and their CPU time are counted.

use super::thread::Phase;
use super::Spans;
use crate::ids::ThreadIndex;
use crate::notes::Note;
use crate::Context;

impl Spans {
    /// Counts a piece of work without events if rclcpp's executor looks for ready entities twice in
    /// a row. The thread must have run some code between the two searches.
    pub(crate) fn unseen_work(&mut self, cx: &mut Context, ti: ThreadIndex, time: u64) {
        let thread = &mut self.threads[ti];
        let now = thread.account.at(time).exec_ns;
        thread.calls.ready = Some(now);
        if let Some(before) = thread.calls.before {
            let used = match thread.account.is_unscheduled() {
                true => 0,
                false => now.saturating_sub(before),
            };
            count_unseen(cx, used);
        }
    }

    /// Handles a trigger of a guard condition outside of callbacks.
    ///
    /// rclpy's executor triggers before and after each callback. Two triggers right after its wait,
    /// without a take, show that it ran something without events.
    pub(super) fn unseen_trigger(
        &mut self,
        cx: &mut Context,
        ti: ThreadIndex,
        time: u64,
        guard: u64,
    ) {
        let thread = &mut self.threads[ti];
        let now = thread.account.at(time).exec_ns;
        let free = thread.span().is_none() && thread.continuation().is_none();
        if !free || !thread.outer().is_empty() {
            return;
        }
        match thread.calls.woke.take() {
            Some((same, before)) if same == guard => count_unseen(cx, now.saturating_sub(before)),
            _ if matches!(thread.phase, Phase::Waiting { .. }) => {
                thread.calls.woke = Some((guard, now));
                thread.phase.leave_wait();
            }
            _ => {}
        }
    }
}

fn count_unseen(cx: &mut Context, exec_ns: u64) {
    cx.notes.count(Note::UnseenWork, 1);
    cx.notes.count(Note::UnseenTime, exec_ns);
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    #[test]
    fn rclcpp_work_without_events_is_counted() {
        let trace = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=a
2ms cpu0 10/10 executor_wait_for_work timeout_ns=-1
2ms cpu0 10/10 wait
10ms cpu0 10/10 executor_next_ready
13ms cpu0 10/10 executor_next_ready
13ms cpu0 10/10 executor_wait_for_work timeout_ns=-1
13ms cpu0 10/10 wait
20ms cpu0 10/10 executor_next_ready
20ms cpu0 10/10 executor_execute handle=0x50
21ms cpu0 10/10 executor_next_ready";
        assert_eq!(
            Harness::new(trace).notes(),
            ["UnseenTime 3000000", "UnseenWork 1"]
        );
    }

    #[test]
    fn rclpy_work_without_takes_is_counted() {
        let trace = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=a
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
2ms cpu0 10/10 wait_set_init
2ms cpu0 10/10 wait
10ms cpu0 10/10 guard_trigger guard=0x9
14ms cpu0 10/10 guard_trigger guard=0x9
15ms cpu0 10/10 wait_set_init
15ms cpu0 10/10 wait
20ms cpu0 10/10 timer_call timer=0x50
20ms cpu0 10/10 guard_trigger guard=0x9
21ms cpu0 10/10 guard_trigger guard=0x9
22ms cpu0 10/10 wait_set_init";
        assert_eq!(
            Harness::new(trace).notes(),
            [
                "Unscheduled(VertexId(1)) 1",
                "UnseenTime 4000000",
                "UnseenWork 1"
            ]
        );
    }
}
