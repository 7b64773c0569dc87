//! Planted causes: hand-written traces whose late executions have a known cause of a known length.
//!
//! The node `/talker` (process 10) publishes `/chatter` every 100 ms. The node `/fusion` (process
//! 20) takes it on thread 20 and publishes `/out` at the end of its callback. Times are in us.

use onbeat_document::schema::Run;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{text, Event};
use onbeat_why::{compare, Choice, Culprit, Execution, Explanation, Kind, Reason, Target, Why};

const T: &str = "/talker:timer(100ms)";
const S: &str = "/fusion:subscription(/chatter)";
const SLOW: &str = "/fusion:timer(100ms)";

const SYSTEM: &str = "
1ms cpu0 10/10 process command=/opt/talker distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 thread comm=talker
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/chatter
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
2ms cpu1 20/20 process command=/opt/fusion distribution=kilted rmw=rmw_fastrtps_cpp
2ms cpu1 20/20 thread comm=fusion
2ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=fusion
2ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/chatter
2ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
2ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
2ms cpu1 20/20 publisher_init publisher=0x11 node=0x1 rmw=0x1030 topic=/out
2ms cpu1 20/20 timer_init timer=0x51 period_ns=100ms
2ms cpu1 20/20 timer_callback timer=0x51 callback=0x61
2ms cpu1 20/20 timer_node timer=0x51 node=0x1
3ms cpu1 30/31 bystander comm=worker process=neighbour kernel=no
3ms cpu1 20/20 executor_wait_for_work timeout_ns=0
3ms cpu1 20/20 wait
3ms cpu1 20/20 switch_out state=1
";

const ROUNDS: u64 = 40;

const PLANTED_US: u64 = 15_000;

fn is_planted(round: u64) -> bool {
    round % 20 == 7
}

fn talk(t: u64) -> String {
    let (begin, publish, end) = (t + 10, t + 510, t + 1_010);
    format!(
        "{t}us cpu0 10/10 wake waker_tid=0
{t}us cpu0 10/10 switch_in
{begin}us cpu0 10/10 executor_next_ready
{begin}us cpu0 10/10 timer_call timer=0x50
{begin}us cpu0 10/10 callback_start callback=0x60
{publish}us cpu0 10/10 publish rmw=0x1010 source_ns={publish}us
{end}us cpu0 10/10 callback_end callback=0x60
{end}us cpu0 10/10 executor_wait_for_work timeout_ns=0
{end}us cpu0 10/10 wait
{end}us cpu0 10/10 switch_out state=1
"
    )
}

/// Returns the events of the listener's execution: it takes the item published at `source`, begins
/// at `begin` and runs for `run`. All times are in us.
fn takes(begin: u64, source: u64, run: u64) -> String {
    let end = begin + run;
    format!(
        "{begin}us cpu1 20/20 executor_next_ready
{begin}us cpu1 20/20 executor_execute handle=0x20
{begin}us cpu1 20/20 take rmw=0x1020 source_ns={source}us
{begin}us cpu1 20/20 callback_start callback=0x60
{end}us cpu1 20/20 publish rmw=0x1030 source_ns={end}us
{end}us cpu1 20/20 callback_end callback=0x60
{end}us cpu1 20/20 executor_wait_for_work timeout_ns=0
{end}us cpu1 20/20 wait
{end}us cpu1 20/20 switch_out state=1
"
    )
}

fn wakes(at: u64, on: u64, prev: u32) -> String {
    format!("{at}us cpu1 20/20 wake waker_tid=0\n{on}us cpu1 20/20 switch_in prev_tid={prev}\n")
}

/// Returns a round without a planted cause. The listener is woken up 40 us after the publication,
/// begins 30 us later, and runs for 2 ms.
fn punctual(t: u64) -> String {
    talk(t) + &wakes(t + 550, t + 560, 0) + &takes(t + 580, t + 510, 2_000)
}

fn trace(system: &str, round: impl Fn(u64, bool) -> String) -> Vec<Event> {
    let mut lines = system.to_string();
    for i in 1..=ROUNDS {
        lines += &round(100_000 * i, is_planted(i));
    }
    lines += "20s cpu0 10/10 executor_next_ready\n";
    let mut events = text::parse(&lines).unwrap_or_else(|e| panic!("{e}"));
    events.sort_by_key(|e| e.time_ns);
    events
}

fn planted(round: impl Fn(u64) -> String) -> Vec<Event> {
    trace(SYSTEM, |t, is_planted| match is_planted {
        true => round(t),
        false => punctual(t),
    })
}

fn explain(events: &[Event], options: SynthOptions, first: &str, through: &str) -> Explanation {
    let mut options = options;
    let pass = |options: &SynthOptions| {
        let mut synth = Synth::new(options.clone());
        events.iter().for_each(|e| synth.push(e));
        synth
    };
    options.ids = pass(&options).into_ids();
    let model = pass(&options).finish();
    let wanted = |c: &&onbeat_document::schema::Chain| {
        c.callbacks[0] == first && c.callbacks.iter().any(|c| c == through)
    };
    let chains: Vec<_> = model.chains.iter().map(|c| &c.callbacks).collect();
    let chain = model.chains.iter().find(wanted);
    let chain = chain.unwrap_or_else(|| panic!("{chains:?}"));
    let latency = &chain.figures.latency_ns;
    let of = (compare::late_limit(latency), latency.max());
    let mut why = Why::new(options, Target::chain(chain, &[]), Choice::All, of);
    events.iter().for_each(|e| why.push(e));
    let explanation = why.finish();
    assert_eq!(explanation.count, latency.count());
    let sums = explanation.executions.iter().map(|e| {
        let sum: u64 = e.stretches.iter().map(|s| s.ns).sum();
        assert_eq!(sum, e.latency_ns);
        u128::from(sum)
    });
    assert_eq!(sums.sum::<u128>(), latency.sum());
    explanation
}

fn run() -> Run {
    Run {
        host: String::new(),
        boot: String::new(),
        id: "r".into(),
        mode: "x".into(),
        distribution: Vec::new(),
        start: 1,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn explained(events: &[Event]) -> Explanation {
    explain(events, SynthOptions::new(run()), T, S)
}

/// Returns the time in us that an execution spends on this kind of stretch with this culprit.
fn us(execution: &Execution, kind: Kind, by: Option<&str>) -> u64 {
    let is_it = |s: &&onbeat_why::Stretch| {
        s.kind == kind && by.is_none_or(|by| s.by.as_ref().is_some_and(|b| b.text() == by))
    };
    let ns: u64 = execution.stretches.iter().filter(is_it).map(|s| s.ns).sum();
    ns / 1000
}

/// Checks that an explanation contains the planted cause: with its whole length in late executions,
/// in no other execution, and as the first finding.
fn check(explanation: &Explanation, kind: Kind, place: &str, by: Option<&str>) {
    let late: Vec<_> = explanation.executions.iter().filter(|e| e.late).collect();
    assert_eq!(late.len(), 2, "{explanation:#?}");
    for execution in &explanation.executions {
        let expected = if execution.late { PLANTED_US } else { 0 };
        assert_eq!(us(execution, kind, by), expected, "{execution:#?}");
    }
    let comparison = explanation.comparison.as_ref().unwrap();
    let first = &comparison.findings[0];
    let found = (first.kind, first.place.as_str());
    assert_eq!(found, (kind, place), "{comparison:#?}");
    assert_eq!(first.by.as_ref().map(Culprit::text).as_deref(), by);
    assert!((first.explained_ns - 15e6).abs() < 1.0, "{first:#?}");
    assert_eq!((first.late_with, first.others_with), (2, 0));
    assert!(first.chance < 0.01, "{first:#?}");
}

fn sentence(explanation: &Explanation) -> String {
    explanation.comparison.as_ref().unwrap().sentence()
}

#[test]
fn a_process_that_preempts_at_a_higher_priority_is_named_as_cause() {
    let events = planted(|t| {
        talk(t)
            + &wakes(t + 550, t + 560, 0)
            + &takes(t + 580, t + 510, 17_000)
            + &format!(
                "{}us cpu1 20/20 switch_out next_tid=31 state=0\n{}us cpu1 20/20 switch_in prev_tid=31\n",
                t + 1_000,
                t + 16_000
            )
    });
    let explanation = explained(&events);
    let by = Some("neighbour (worker)");
    check(&explanation, Kind::Preempted, S, by);
    assert_eq!(
        sentence(&explanation),
        "The mean latency of the 2 late executions is 15 ms longer than that of the other 38. Of this \
         difference, 15 ms are preemptions of /fusion:subscription(/chatter) by neighbour (worker) (longer than usual in 2 \
         of 2 late executions and in 0 of 38 others)."
    );
}

#[test]
fn a_process_of_equal_priority_is_named_as_cause_before_and_within_the_callback() {
    let events = planted(|t| {
        let mut text = talk(t)
            + &format!("{}us cpu1 30/31 occupied prev_tid=0 last=no\n", t + 100)
            + &wakes(t + 550, t + 3_560, 31)
            + &takes(t + 3_580, t + 510, 14_000);
        // Four slices of 3 ms.
        for slice in 0..4 {
            let out = t + 4_000 + 3_300 * slice;
            text += &format!(
                "{out}us cpu1 20/20 switch_out next_tid=31 state=0\n{}us cpu1 20/20 switch_in prev_tid=31\n",
                out + 3_000
            );
        }
        text
    });
    let explanation = explained(&events);
    let by = Some("neighbour (worker)");
    for execution in &explanation.executions {
        let times = (
            us(execution, Kind::Queued, by),
            us(execution, Kind::Preempted, by),
        );
        let expected = if execution.late {
            (3_010, 12_000)
        } else {
            (0, 0)
        };
        assert_eq!(times, expected, "{execution:#?}");
    }
    let findings = &explanation.comparison.as_ref().unwrap().findings;
    let found: Vec<_> = findings.iter().map(|f| f.kind).collect();
    assert_eq!(found, [Kind::Preempted, Kind::Queued]);
}

#[test]
fn a_wait_for_a_mutex_names_its_owner_and_the_thread_that_preempts_the_owner() {
    let system =
        format!("{SYSTEM}2ms cpu0 20/22 thread comm=map\n3ms cpu0 20/22 switch_out state=1\n");
    let events = trace(&system, |t, is_planted| {
        if !is_planted {
            return punctual(t);
        }
        let (locked, freed) = (t + 1_500, t + 16_500);
        talk(t)
            + &wakes(t + 550, t + 560, 0)
            + &takes(t + 580, t + 510, 17_000)
            + &format!(
                "{}us cpu0 20/22 wake waker_tid=0
{}us cpu0 20/22 switch_in
{locked}us cpu1 20/20 lock_wait lock=0x5 owner_tid=22
{locked}us cpu1 20/20 switch_out state=1
{}us cpu0 20/22 switch_out next_tid=31 state=0
{}us cpu0 20/22 switch_in prev_tid=31
{freed}us cpu1 20/20 wake waker_tid=22
{freed}us cpu1 20/20 switch_in
{}us cpu0 20/22 switch_out state=1
",
                t + 1_200,
                t + 1_200,
                t + 2_500,
                t + 15_500,
                freed + 100
            )
    });
    let explanation = explained(&events);
    let by = Some("mutex held by /fusion (map)");
    check(&explanation, Kind::Sleeps, S, by);
    let during = &explanation.comparison.as_ref().unwrap().findings[0].during;
    let during: Vec<_> = during.iter().map(|(d, ns)| (d.text(), *ns)).collect();
    assert_eq!(
        during,
        [
            ("was preempted by neighbour (worker)".to_owned(), 13e6),
            ("ran".to_owned(), 2e6)
        ]
    );
    let said = sentence(&explanation);
    let named = "time in which /fusion:subscription(/chatter) slept, waiting for a mutex held by /fusion (map), which for \
                 13 ms was preempted by neighbour (worker) (longer than usual in 2 of 2";
    assert!(said.contains(named), "{said}");
}

#[test]
fn the_cause_of_a_slow_transport_names_the_middleware_thread_and_what_delayed_it() {
    let system =
        format!("{SYSTEM}2ms cpu2 20/23 thread comm=dds.recv\n3ms cpu2 20/23 switch_out state=1\n");
    let events = trace(&system, |t, is_planted| {
        let more = if is_planted { PLANTED_US } else { 0 };
        let (read, begin) = (t + 530 + more, t + 580 + more);
        talk(t)
            + &format!(
                "{}us cpu2 30/31 occupied prev_tid=0 last=no
{}us cpu2 20/23 woken ready_ns={}us
{}us cpu2 20/23 switch_in prev_tid=31
{begin}us cpu1 20/20 wake waker_tid=23
{begin}us cpu1 20/20 switch_in prev_tid=0
{}us cpu2 20/23 switch_out state=1
",
                t + 100,
                read,
                10 + more,
                read,
                begin + 20,
            )
            + &takes(begin + 30, t + 510, 2_000)
    });
    let explanation = explained(&events);
    let first = &explanation.comparison.as_ref().unwrap().findings[0];
    assert_eq!((first.kind, first.place.as_str()), (Kind::Transport, S));
    let by = first.by.as_ref().map(Culprit::text);
    assert_eq!(by.as_deref(), Some("woken by /fusion (dds.recv)"));
    let (during, ns) = &first.during[0];
    assert_eq!(during.text(), "waited for a CPU behind neighbour (worker)");
    assert!((ns - 15e6).abs() < 1.0, "{first:#?}");
}

#[test]
fn an_item_that_a_timer_callback_takes_itself_waits_for_this_callback() {
    let outer = |t: u64, begin: u64| {
        let end = begin + 3_000;
        talk(t)
            + &wakes(begin, begin, 0)
            + &format!(
                "{begin}us cpu1 20/20 executor_next_ready
{begin}us cpu1 20/20 timer_call timer=0x51
{begin}us cpu1 20/20 callback_start callback=0x61
{}{end}us cpu1 20/20 callback_end callback=0x61
{end}us cpu1 20/20 switch_out state=1
",
                takes(begin + 100, t + 510, 2_000).replace(
                    &format!("{}us cpu1 20/20 switch_out state=1\n", begin + 2_100),
                    ""
                )
            )
    };
    let events = trace(SYSTEM, |t, is_planted| {
        outer(t, t + 600 + if is_planted { PLANTED_US } else { 0 })
    });
    let explanation = explained(&events);
    let first = &explanation.comparison.as_ref().unwrap().findings[0];
    let named = format!("time in which {S}, which runs within {SLOW}, waited for {SLOW}");
    assert_eq!(first.text(), named);
    assert!((first.explained_ns - 15e6).abs() < 1.0, "{explanation:#?}");
}

#[test]
fn a_slow_callback_in_the_same_executor_is_named_as_cause() {
    let events = planted(|t| {
        let (begin, end) = (t + 400, t + 15_510);
        talk(t)
            + &wakes(begin, begin, 0)
            + &format!(
                "{begin}us cpu1 20/20 executor_next_ready
{begin}us cpu1 20/20 timer_call timer=0x51
{begin}us cpu1 20/20 callback_start callback=0x61
{end}us cpu1 20/20 callback_end callback=0x61
"
            )
            + &takes(end + 20, t + 510, 2_050)
    });
    let explanation = explained(&events);
    check(&explanation, Kind::Executor, S, Some(SLOW));
    let said = sentence(&explanation);
    let named =
        "15 ms are waits in the executor of /fusion behind /fusion:timer(100ms) (longer than usual in 2 of 2";
    assert!(said.contains(named), "{said}");
}

#[test]
fn time_that_the_host_takes_from_the_machine_is_named_as_cause() {
    let events = planted(|t| {
        talk(t)
            + &wakes(t + 550, t + 560, 0)
            + &takes(t + 580, t + 510, 17_000)
            + &format!("{}us cpu1 20/20 stolen stolen_ns=15ms\n", t + 17_000)
    });
    check(&explained(&events), Kind::Stolen, S, None);
}

#[test]
fn a_sleep_that_no_thread_of_the_process_ends_names_the_kind_of_call() {
    let events = planted(|t| {
        let (asleep, awake) = (t + 1_500, t + 16_500);
        talk(t)
            + &wakes(t + 550, t + 560, 0)
            + &takes(t + 580, t + 510, 17_000)
            + &format!(
                "{asleep}us cpu1 20/20 sleep call=sync
{asleep}us cpu1 20/20 switch_out state=2
{awake}us cpu1 20/20 wake waker_tid=0
{awake}us cpu1 20/20 switch_in
"
            )
    });
    let explanation = explained(&events);
    check(&explanation, Kind::Sleeps, S, Some("fsync"));
    let said = sentence(&explanation);
    let named = "15 ms are time in which /fusion:subscription(/chatter) slept in fsync (longer";
    assert!(said.contains(named), "{said}");
}

#[test]
fn a_callback_that_waits_for_a_response_names_the_service() {
    let system = format!(
        "{SYSTEM}
2ms cpu0 20/21 thread comm=spinner
2ms cpu1 20/20 client_init client=0x40 node=0x1 rmw=0x1040 name=/s
2ms cpu0 40/40 process command=/opt/map distribution=kilted rmw=rmw_fastrtps_cpp
2ms cpu0 40/40 thread comm=map
2ms cpu0 40/40 node_init node=0x1 rmw=0x1001 name=map
2ms cpu0 40/40 service_init service=0x30 node=0x1 rmw=0x1030 name=/s
"
    );
    let gid = "gid=01010101010101010101010101010101";
    // The response ends the sleep, or comes long after the callback.
    let events = |late_us: u64| {
        trace(&system, |t, is_planted| {
            if !is_planted {
                return punctual(t);
            }
            let (asks, awake) = (t + 1_500, t + 16_500);
            let answered = awake + late_us;
            talk(t)
                + &wakes(t + 550, t + 560, 0)
                + &takes(t + 580, t + 510, 17_000)
                + &format!(
                    "{asks}us cpu1 20/20 request_send rmw=0x1040 sequence={t}
{asks}us cpu1 20/20 sleep call=futex
{asks}us cpu1 20/20 switch_out state=1
{}us cpu0 40/40 request_take rmw=0x1030 {gid} sequence={t}
{}us cpu0 40/40 response_send rmw=0x1030 {gid} sequence={t} source_ns={}us
{}us cpu0 40/40 wait_set_init
{}us cpu0 20/21 response_take rmw=0x1040 sequence={t} source_ns={}us
{}us cpu0 20/21 wait_set_init
{awake}us cpu1 20/20 wake waker_tid=21
{awake}us cpu1 20/20 switch_in
",
                    asks + 100,
                    answered - 100,
                    answered - 100,
                    answered - 90,
                    answered - 20,
                    answered - 100,
                    answered - 10,
                )
        })
    };
    // Another chain goes on through the service, so the question is about the callback.
    let explained = |events: &[Event]| {
        let mut options = SynthOptions::new(run());
        let mut synth = Synth::new(options.clone());
        events.iter().for_each(|e| synth.push(e));
        options.ids = synth.into_ids();
        let of = (10_000_000, 30_000_000);
        let mut why = Why::new(options, Target::Callback(S.into()), Choice::All, of);
        events.iter().for_each(|e| why.push(e));
        why.finish()
    };
    let by = Some("woken by /fusion (spinner)");
    check(&explained(&events(50_000)), Kind::Sleeps, S, by);
    let explanation = explained(&events(0));
    check(
        &explanation,
        Kind::Sleeps,
        S,
        Some("/map:service(/s)@/fusion"),
    );
    let said = sentence(&explanation);
    let named = "slept, waiting for the response of /map:service(/s)@/fusion (longer";
    assert!(said.contains(named), "{said}");
}

#[test]
fn a_transport_during_which_a_socket_of_the_receiver_was_full_names_the_port() {
    let events = planted(|t| {
        let begin = t + 580 + PLANTED_US;
        talk(t)
            + &format!(
                "{}us cpu0 20/20 socket_drop port=7411 count=40\n",
                t + 2_000
            )
            + &wakes(begin - 30, begin - 20, 0)
            + &takes(begin, t + 510, 2_000)
    });
    let explanation = explained(&events);
    let comparison = explanation.comparison.as_ref().unwrap();
    let first = &comparison.findings[0];
    assert_eq!(first.kind, Kind::Transport);
    let named = "transport to /fusion:subscription(/chatter), datagrams dropped at a full socket (port 7411) (longer";
    let said = sentence(&explanation);
    assert!(said.contains(named), "{said}");
    // Transport that takes less than 2 ms has another cause.
    let late = |e: &&Execution| e.late;
    let is_socket = |s: &onbeat_why::Stretch| matches!(s.by, Some(Culprit::Socket(_)));
    let with = |e: &&Execution| e.stretches.iter().any(is_socket);
    let executions = &explanation.executions;
    assert_eq!(executions.iter().filter(with).count(), 2);
    assert_eq!(executions.iter().filter(late).filter(with).count(), 2);
}

#[test]
fn the_time_for_which_the_scheduler_withholds_the_cpu_is_named_as_cause() {
    // A thread of the same control group takes the CPU, and then the group has used up its quota.
    let events = |first: bool| {
        planted(move |t| {
            let (out, back) = (t + 1_000, t + 17_000);
            let first = if first { "yes" } else { "no" };
            talk(t)
                + &wakes(t + 550, t + 560, 0)
                + &takes(t + 580, t + 510, 18_000)
                + &format!(
                    "{out}us cpu1 20/20 switch_out next_tid=31 state=0
{back}us cpu1 20/20 throttled throttled_ns=15ms first={first}
{back}us cpu1 20/20 switch_in prev_tid=0
"
                )
        })
    };
    for first in [true, false] {
        let explanation = explained(&events(first));
        check(&explanation, Kind::Throttled, S, None);
        let late = explanation.executions.iter().find(|e| e.late).unwrap();
        let kinds: Vec<Kind> = late.stretches.iter().map(|s| s.kind).collect();
        let wait = match first {
            true => [Kind::Throttled, Kind::Preempted],
            false => [Kind::Preempted, Kind::Throttled],
        };
        assert!(kinds.windows(2).any(|pair| pair == wait), "{kinds:?}");
    }
}

/// Returns a round in which the talker's process holds the item back, and sends it at `sent`.
fn shaped(t: u64, sent: u64) -> String {
    let (publish, held) = (t + 510, format!("message=0x901 source_ns={}us", t + 510));
    let begin = sent + 70;
    talk(t).replace(&format!("source_ns={publish}us"), &held)
        + &format!("{sent}us cpu0 10/11 publish rmw=0x1010 message=0x900 source_ns={sent}us\n")
        + &wakes(begin - 30, begin - 20, 0)
        + &takes(begin, sent, 2_000)
}

#[test]
fn the_time_for_which_a_shaper_holds_an_item_back_is_named_as_cause() {
    // The planted items miss their slot.
    let events = trace(SYSTEM, |t, is_planted| {
        let late = if is_planted { PLANTED_US } else { 0 };
        shaped(t, t + 5_000 + late)
    });
    let explanation = explained(&events);
    for execution in &explanation.executions {
        let late = if execution.late { PLANTED_US } else { 0 };
        assert_eq!(us(execution, Kind::Held, None), 5_000 - 510 + late);
    }
    let said = sentence(&explanation);
    let named = "15 ms are time in which a shaper held items to /fusion:subscription(/chatter) back (longer than usual in 2 of 2 late executions and in 0 of 38 others)";
    assert!(said.contains(named), "{said}");
}

#[test]
fn the_wait_of_stored_data_for_a_timer_is_named_as_cause() {
    // The timer reads what the subscription stored. The data of the planted rounds come 15 ms
    // earlier.
    let system =
        ["timer_", "executor", "wait", "switch"]
            .iter()
            .fold(SYSTEM.to_owned(), |system, event| {
                // The timer is due at 4 ms of each round.
                let is_late = |ms: u32| format!("{ms}ms cpu1 20/20 {event}");
                let system = system.replace(&is_late(2), &is_late(4));
                system.replace(&is_late(3), &is_late(5))
            });
    let events = trace(&system, |t, is_planted| {
        let early = if is_planted { t - PLANTED_US } else { t };
        let (due, end) = (t + 4_000, t + 5_000);
        talk(early)
            + &wakes(early + 550, early + 560, 0)
            + &takes(early + 580, early + 510, 2_000)
            + &wakes(due, due, 0)
            + &format!(
                "{due}us cpu1 20/20 executor_next_ready
{due}us cpu1 20/20 timer_call timer=0x51
{due}us cpu1 20/20 callback_start callback=0x61
{end}us cpu1 20/20 publish rmw=0x1030 source_ns={end}us
{end}us cpu1 20/20 callback_end callback=0x61
{end}us cpu1 20/20 executor_wait_for_work timeout_ns=0
{end}us cpu1 20/20 wait
{end}us cpu1 20/20 switch_out state=1
"
            )
    });
    let mut options = SynthOptions::new(run());
    options.links = vec![format!("{S} -> {SLOW}").parse().unwrap()];
    let explanation = explain(&events, options, T, SLOW);
    let comparison = explanation.comparison.as_ref().unwrap();
    let first = &comparison.findings[0];
    assert_eq!((first.kind, first.place.as_str()), (Kind::Timer, SLOW));
    assert!((first.explained_ns - 15e6).abs() < 1.0, "{comparison:#?}");
}

#[test]
fn lost_scheduler_events_make_causes_unknown_but_never_wrong() {
    let preempted =
        |t: u64| talk(t) + &wakes(t + 550, t + 560, 0) + &takes(t + 580, t + 510, 17_000);
    // Only the event of getting the CPU again is there.
    let events =
        planted(|t| preempted(t) + &format!("{}us cpu1 20/20 switch_in prev_tid=31\n", t + 15_580));
    let explanation = explained(&events);
    check(&explanation, Kind::Unknown, S, None);
    let first = &explanation.comparison.as_ref().unwrap().findings[0];
    assert_eq!(first.reason, Some(Reason::MissingEvent));
    // Both events are lost, and the recorder counted them.
    let events = planted(|t| {
        preempted(t) + &format!("{}us cpu1 0/0 lost probe=switch count=2\n", t + 250_000)
    });
    let explanation = explained(&events);
    for execution in explanation.executions.iter().filter(|e| e.late) {
        let whole = execution.latency_ns / 1000;
        assert_eq!(us(execution, Kind::Unknown, None), whole, "{execution:#?}");
    }
    // Without any scheduler events, nothing is known but the callbacks.
    let bare = |e: &&Event| {
        let text = text::print(e);
        let kernel = ["switch", " wake", " thread "];
        !kernel.iter().any(|k| text.contains(k))
    };
    let events: Vec<Event> = planted(punctual).iter().filter(bare).cloned().collect();
    for execution in explained(&events).executions {
        let reasons: Vec<_> = execution
            .stretches
            .iter()
            .filter_map(|s| s.reason)
            .collect();
        assert!(reasons.iter().all(|r| *r == Reason::NoScheduler));
        assert_eq!(reasons.len(), execution.stretches.len());
    }
}

#[test]
fn a_wait_at_a_synchroniser_names_the_last_input_and_its_delay() {
    let node = |pid: u32, name: &str, topic: &str| {
        format!(
            "1ms cpu0 {pid}/{pid} process command=/opt/{name} distribution=kilted rmw=x
1ms cpu0 {pid}/{pid} thread comm={name}
1ms cpu0 {pid}/{pid} node_init node=0x1 rmw=0x1001 name={name}
1ms cpu0 {pid}/{pid} publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic={topic}
1ms cpu0 {pid}/{pid} timer_init timer=0x50 period_ns=100ms
1ms cpu0 {pid}/{pid} timer_callback timer=0x50 callback=0x60
1ms cpu0 {pid}/{pid} timer_node timer=0x50 node=0x1
"
        )
    };
    let fuse = "
1ms cpu1 20/20 thread comm=fuse
1ms cpu1 20/20 node_init node=0x1 rmw=0x1001 name=fuse
1ms cpu1 20/20 publisher_init publisher=0x10 node=0x1 rmw=0x1030 topic=/out
1ms cpu1 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/x
1ms cpu1 20/20 subscription_object subscription=0x20 object=0x25
1ms cpu1 20/20 subscription_callback object=0x25 callback=0x60
1ms cpu1 20/20 subscription_init subscription=0x21 node=0x1 rmw=0x1021 topic=/y
1ms cpu1 20/20 subscription_object subscription=0x21 object=0x26
1ms cpu1 20/20 subscription_callback object=0x26 callback=0x61
";
    let system = node(10, "a", "/x") + &node(11, "b", "/y") + fuse;
    let talks = |pid: u32, t: u64, publish: u64, kernel: &str| {
        format!(
            "{t}us cpu0 {pid}/{pid} timer_call timer=0x50
{t}us cpu0 {pid}/{pid} callback_start callback=0x60
{kernel}{publish}us cpu0 {pid}/{pid} publish rmw=0x1010 source_ns={publish}us
{publish}us cpu0 {pid}/{pid} callback_end callback=0x60
"
        )
    };
    let input = |t: u64, n: u32, source: u64, output: &str| {
        format!(
            "{t}us cpu1 20/20 take rmw=0x102{n} source_ns={source}us
{t}us cpu1 20/20 callback_start callback=0x6{n}
{output}{}us cpu1 20/20 callback_end callback=0x6{n}
",
            t + 200
        )
    };
    let events = trace(&system, |t, is_planted| {
        let more = if is_planted { PLANTED_US } else { 0 };
        let kernel = match is_planted {
            true => format!(
                "{}us cpu0 31/31 bystander comm=worker process=neighbour kernel=no
{}us cpu0 11/11 switch_out next_tid=31 state=0
{}us cpu0 11/11 switch_in prev_tid=31
",
                t + 200,
                t + 1_200,
                t + 1_200 + more
            ),
            false => String::new(),
        };
        let (x, y) = (t + 500, t + 1_600 + more);
        let out = y + 200;
        talks(10, t, x, "")
            + &talks(11, t + 1_000, y, &kernel)
            + &input(x + 100, 0, x, "")
            + &input(
                y + 100,
                1,
                y,
                &format!("{out}us cpu1 20/20 publish rmw=0x1030 source_ns={out}us\n"),
            )
    });
    let options = SynthOptions::new(run());
    let explanation = explain(&events, options, "/a:timer(100ms)", "/fuse:sync(/out)");
    let first = &explanation.comparison.as_ref().unwrap().findings[0];
    let found = (first.kind, first.place.as_str());
    assert_eq!(
        found,
        (Kind::Inputs, "/fuse:sync(/out)"),
        "{explanation:#?}"
    );
    let by = first.by.as_ref().map(Culprit::text);
    assert_eq!(by.as_deref(), Some("/fuse:subscription(/y)"));
    assert!((first.explained_ns - 15e6).abs() < 1.0, "{first:#?}");
    let (during, ns) = &first.during[0];
    assert_eq!(during.text(), "was preempted by neighbour (worker)");
    assert!((ns - 15e6).abs() < 1.0);
}

/// Returns a round in which the timer's callback runs on a second thread of the pool and begins
/// before the item is published. The item's callback begins on the first thread right after the
/// timer's callback.
fn behind_group(t: u64) -> String {
    let (begin, end) = (t + 400, t + 510 + PLANTED_US);
    let timer = format!(
        "{begin}us cpu0 20/21 executor_next_ready
{begin}us cpu0 20/21 timer_call timer=0x51
{begin}us cpu0 20/21 callback_start callback=0x61
{end}us cpu0 20/21 callback_end callback=0x61
{end}us cpu0 20/21 executor_wait_for_work timeout_ns=0
"
    );
    let take = wakes(end + 20, end + 30, 0) + &takes(end + 70, t + 510, 2_000);
    talk(t) + &timer + &take
}

#[test]
fn a_callback_group_that_another_thread_kept_busy_is_the_first_cause() {
    let explanation = explained(&planted(behind_group));
    check(&explanation, Kind::Executor, S, Some(SLOW));
}

#[test]
fn callbacks_that_have_run_at_the_same_time_do_not_wait_for_one_another() {
    // In the first round, the timer runs on the second thread during the item's callback.
    let together = |t: u64| {
        let (begin, end) = (t + 400, t + 5_000);
        talk(t)
            + &wakes(t + 550, t + 560, 0)
            + &takes(t + 580, t + 510, 4_000)
            + &format!(
                "{begin}us cpu0 20/21 executor_next_ready
{begin}us cpu0 20/21 timer_call timer=0x51
{begin}us cpu0 20/21 callback_start callback=0x61
{end}us cpu0 20/21 callback_end callback=0x61
{end}us cpu0 20/21 executor_wait_for_work timeout_ns=0
"
            )
    };
    let events = trace(SYSTEM, |t, is_planted| match is_planted {
        true => behind_group(t),
        false if t == 100_000 => together(t),
        false => punctual(t),
    });
    let explanation = explained(&events);
    let late: Vec<_> = explanation.executions.iter().filter(|e| e.late).collect();
    assert_eq!(late.len(), 2);
    for execution in late {
        assert_eq!(us(execution, Kind::Executor, Some(SLOW)), 0);
        assert!(us(execution, Kind::Transport, None) >= PLANTED_US);
    }
}
