//! The causes of waits: which thread had the CPU while a callback waited, and which one woke it up.

use super::rclcpp::TALKER;
use super::*;

/// Returns the causes of the talker's timer. Each has the component, the preempted time in us, the
/// number of preemptions, the delay in us, and the blocked time in us.
fn causes(model: &Model) -> Vec<(String, u64, u64, u64, u64)> {
    let causes = &callback(model, "/talker:timer(100ms)").figures.causes;
    let row = |c: &Cause| {
        let us = |ns: u64| ns / 1000;
        (
            c.by.title(),
            us(c.preempted_ns),
            c.preempted,
            us(c.delayed_ns),
            us(c.blocked_ns),
        )
    };
    causes.iter().map(row).collect()
}

/// The names of threads. 11 of process 10 belongs to the middleware, 30 to another program and 40
/// to the kernel.
const NAMES: &str = "
3ms cpu0 10/11 bystander comm=dds.recv process=talker kernel=no
3ms cpu0 30/31 bystander comm=worker process=neighbour kernel=no
3ms cpu0 40/40 bystander comm=kworker/0:1-events process=kworker/0:1-events kernel=yes
";

const SLEEPS: &str = "
9ms cpu0 10/10 executor_wait_for_work timeout_ns=0
9ms cpu0 10/10 wait
9ms cpu0 10/10 switch_out next_tid=0 state=1
";

#[test]
fn each_component_is_the_cause_of_delays_and_preemption_while_it_had_the_cpu() {
    let trace = format!(
        "{TALKER}{NAMES}{SLEEPS}
10ms cpu0 10/10 woken ready_ns=300us
10ms cpu0 10/10 switch_in prev_tid=31
10010us cpu0 10/10 executor_next_ready
10010us cpu0 10/10 timer_call timer=0x50
10020us cpu0 10/10 callback_start callback=0x60
11000us cpu0 10/10 switch_out next_tid=40 state=0
11100us cpu0 30/31 occupied prev_tid=40 last=no
11600us cpu0 10/11 occupied prev_tid=31 last=no
11700us cpu0 10/10 switch_in prev_tid=11
12000us cpu0 10/10 switch_out next_tid=0 state=1
12500us cpu0 10/10 wake waker_tid=11
12500us cpu0 10/10 switch_in prev_tid=0
13000us cpu0 10/10 switch_out next_tid=50 state=0
13200us cpu0 10/10 switch_in prev_tid=60
13500us cpu0 10/10 stolen stolen_ns=50us
14000us cpu0 10/10 callback_end callback=0x60
"
    );
    let model = model(&trace);
    assert_eq!(
        causes(&model),
        [
            // Thread 31 delayed the callback right before it began. The switch from 50 to 60 is
            // missing.
            ("neighbour (worker)".into(), 500, 1, 300, 0),
            ("/talker (dds.recv)".into(), 100, 1, 0, 500),
            ("kernel (kworker)".into(), 100, 1, 0, 0),
            ("host of the virtual machine".into(), 50, 1, 0, 0),
            ("not told".into(), 200, 1, 0, 0),
        ]
    );
    let figures = &callback(&model, "/talker:timer(100ms)").figures;
    let told: u64 = figures.causes.iter().map(|c| c.preempted_ns).sum();
    assert_eq!(figures.preempted_ns.sum(), u128::from(told));
}

#[test]
fn a_waiting_thread_that_moves_to_another_cpu_waits_for_the_threads_of_both() {
    let trace = format!(
        "{TALKER}{NAMES}{SLEEPS}
9100us cpu0 30/31 occupied prev_tid=0 last=no
9600us cpu1 40/40 occupied prev_tid=0 last=no
9700us cpu0 10/10 moved
9800us cpu0 30/30 occupied prev_tid=31 last=no
10ms cpu1 10/10 woken ready_ns=500us
10ms cpu1 10/10 switch_in prev_tid=40
10010us cpu1 10/10 executor_next_ready
10010us cpu1 10/10 timer_call timer=0x50
10020us cpu1 10/10 callback_start callback=0x60
11000us cpu1 10/10 callback_end callback=0x60
"
    );
    assert_eq!(
        causes(&model(&trace)),
        [
            ("neighbour (worker)".into(), 0, 0, 200, 0),
            ("kernel (kworker)".into(), 0, 0, 300, 0),
        ]
    );
}

#[test]
fn waits_before_the_executor_slept_delay_no_callback() {
    let trace = format!(
        "{TALKER}{NAMES}
8ms cpu0 10/10 switch_out next_tid=31 state=0
8500us cpu0 10/10 switch_in prev_tid=31
{SLEEPS}
10ms cpu0 10/10 wake waker_tid=0
10ms cpu0 10/10 switch_in prev_tid=0
10010us cpu0 10/10 executor_next_ready
10010us cpu0 10/10 timer_call timer=0x50
10020us cpu0 10/10 callback_start callback=0x60
11000us cpu0 10/10 callback_end callback=0x60
"
    );
    assert_eq!(causes(&model(&trace)), []);
}

#[test]
fn recordings_without_the_thread_that_took_the_cpu_give_no_causes() {
    let trace = format!(
        "{TALKER}{SLEEPS}
10ms cpu0 10/10 wake waker_tid=0
10ms cpu0 10/10 switch_in prev_tid=0
10010us cpu0 10/10 executor_next_ready
10010us cpu0 10/10 timer_call timer=0x50
10020us cpu0 10/10 callback_start callback=0x60
10100us cpu0 10/10 switch_out next_tid=31 state=0
10200us cpu0 10/10 switch_in prev_tid=31
11000us cpu0 10/10 callback_end callback=0x60
"
    );
    let model = model(&trace);
    assert_eq!(causes(&model), []);
    let preempted = &callback(&model, "/talker:timer(100ms)")
        .figures
        .preempted_ns;
    assert_eq!(preempted.sum(), 100_000);
}
