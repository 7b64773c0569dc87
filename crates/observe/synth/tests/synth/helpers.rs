//! Threads that run no callback, such as those of the middleware.

use super::rclcpp::{listen, sorted, talk, LISTENER, TALKER};
use super::*;
use onbeat_document::schema::Helper;

/// The threads of the talker's process. 11 and 12 belong to the middleware, and 13 publishes later.
const THREADS: &str = "
3ms cpu0 10/11 thread comm=dds.shm.7411
3ms cpu0 10/12 fork parent_pid=10 parent_tid=10 comm=dds.shm.7412
3ms cpu0 10/13 fork parent_pid=10 parent_tid=10 comm=driver
4ms cpu1 10/12 switch_in prev_tid=0 priority=120 policy=0
4ms cpu0 10/11 switch_out next_tid=0 state=1
4ms cpu0 10/13 switch_in prev_tid=11 priority=120 policy=0
5ms cpu0 10/13 switch_out next_tid=0 state=1
";

fn receive(t: u64, ready: u64) -> String {
    let (at, end) = (t + ready, t + ready + 100);
    format!(
        "{at}us cpu0 10/11 woken ready_ns={ready}us
{at}us cpu0 10/11 switch_in prev_tid=0 priority=120 policy=0
{end}us cpu0 10/11 lock_wait lock=0x77 owner_tid=10
{end}us cpu0 10/11 switch_out next_tid=0 state=1
"
    )
}

fn helpers(text: &str) -> (Model, Vec<Helper>) {
    let model = model(&sorted(&[text.to_owned()]));
    let helpers = model.helpers.clone();
    (model, helpers)
}

fn trace(publishes: &str) -> String {
    format!(
        "{TALKER}{LISTENER}{THREADS}{}{}{}{}{publishes}",
        receive(20_000, 900),
        receive(30_000, 0),
        talk(100_000, 100, 500),
        listen(100_200, 100_110, 300)
    )
}

#[test]
fn helper_threads_are_kept_by_name_with_their_times_without_a_cpu() {
    let (_, helpers) = helpers(&trace(""));
    let names: Vec<&str> = helpers.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["dds.shm", "driver"]);
    let shm = &helpers[0];
    assert_eq!(shm.nodes, ["/talker"]);
    // Thread 12 waits for 1 ms after its creation, thread 11 as above.
    let ready = &shm.figures.ready_ns;
    assert_eq!((ready.count(), ready.max()), (3, 1_000_000));
    assert_eq!(ready.sum(), 1_900_000);
    let uses: Vec<_> = shm
        .threads
        .iter()
        .map(|t| (t.priority, &t.cpus[..]))
        .collect();
    assert_eq!(uses, [(120, &[0, 1][..])]);
}

#[test]
fn a_thread_that_publishes_is_not_a_helper() {
    let publishes = "40ms cpu0 10/13 rcl_publish publisher=0x10 message=0x7
40ms cpu0 10/13 publish rmw=0x1010 message=0x7 source_ns=-
";
    let (_, helpers) = helpers(&trace(publishes));
    let names: Vec<&str> = helpers.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["dds.shm"]);
}

#[test]
fn merging_adds_up_the_figures_of_helpers() {
    let (one, _) = helpers(&trace(""));
    let mut other = one.clone();
    other.runs[0].id = "another".into();
    let both = onbeat_document::merge::merge(vec![one.clone(), other]).expect("they can be merged");
    let (a, b) = (&one.helpers[0].figures, &both.helpers[0].figures);
    assert_eq!(b.ready_ns.count(), 2 * a.ready_ns.count());
    assert_eq!(
        (b.exec_ns, b.observed_ns),
        (2 * a.exec_ns, 2 * a.observed_ns)
    );
    assert_eq!(both.helpers[0].threads, one.helpers[0].threads);
}
