//! Tests of late outputs: a short recording for each cause.

use super::*;

const MS: u64 = 1_000_000;
/// A recording without a delay. The threads 11 and 12 run the chain.
const USUAL: &str = "
100ms cpu1 10/11 woken ready_ns=4000
100ms cpu1 10/11 switch_in prev_tid=0
120ms cpu1 10/11 switch_out state=1 next_tid=12
120ms cpu1 10/12 woken ready_ns=3000
120ms cpu1 10/12 switch_in prev_tid=11
";

fn late() -> Late {
    Late {
        cycle: 7,
        cycle_ns: 100 * MS,
        start_ns: 100 * MS,
        ready_ns: 160 * MS,
        output_ns: 250 * MS,
        due_ns: 151 * MS,
        usual_start_ns: 0,
    }
}

fn item(arrival_ns: u64) -> Release {
    Release {
        output: 0,
        source_ns: 1,
        published_ns: 250 * MS,
        done_ns: 250 * MS,
        late: true,
        refused: false,
        arrival_ns,
        born_ns: None,
    }
}

fn run(callback: usize, took_ms: u64, usual_ms: u64) -> Cause {
    Cause {
        callback,
        tid: 11 + callback as u32,
        took_ns: took_ms * MS,
        usual_ns: usual_ms * MS,
    }
}

fn cause_of(text: &str, runs: &[Cause], late: Late, arrival_ns: u64, moves: Vec<Move>) -> String {
    let mut flight = Flight::default();
    flight.push(&onbeat_trace::text::parse(text).expect("events"));
    flight.moved(moves);
    flight.released(item(arrival_ns));
    let name = |c: usize| format!("/n{c}");
    let thread = |tid: u32| format!("t{tid}");
    let sentence = flight.explain(late, runs, (&name, &thread));
    assert_eq!(flight.late[0].cause, sentence);
    sentence
}

fn soon() -> u64 {
    160 * MS + 20_000
}

#[test]
fn a_longer_callback_is_named_as_the_cause_of_a_late_output() {
    let runs = [run(0, 20, 20), run(1, 40, 10)];
    let said = cause_of(USUAL, &runs, late(), soon(), vec![]);
    assert_eq!(said, "/n1 took 40.0 ms, usually 10.0 ms");
}

#[test]
fn several_slightly_longer_callbacks_together_are_the_cause_of_a_late_output() {
    let runs = [run(0, 24, 20), run(1, 13, 10), run(2, 13, 10)];
    let said = cause_of(USUAL, &runs, late(), soon(), vec![]);
    assert!(
        said.starts_with("together, the chain's callbacks took 10.0 ms more than usual: /n0"),
        "{said}"
    );
}

#[test]
fn a_thread_that_preempted_the_chain_is_the_cause_of_a_late_output() {
    let text = format!(
        "{USUAL}
130ms cpu1 10/12 switch_out state=0 next_tid=99
142ms cpu1 10/12 switch_in prev_tid=98
"
    );
    // The callback took longer only because it was preempted.
    let said = cause_of(&text, &[run(1, 22, 10)], late(), soon(), vec![]);
    assert_eq!(said, "preempted by t99 for 12.0 ms");
    let text = "
100ms cpu1 10/11 switch_in prev_tid=0
120ms cpu1 10/11 switch_out state=1 next_tid=77
131ms cpu1 10/12 woken ready_ns=11000000
131ms cpu1 10/12 switch_in prev_tid=77
";
    let said = cause_of(text, &[], late(), soon(), vec![]);
    assert_eq!(said, "preempted by t77 for 11.0 ms");
}

#[test]
fn waits_of_threads_outside_of_the_chain_are_not_the_cause_of_a_late_output() {
    let text = format!(
        "{USUAL}
155ms cpu1 10/12 switch_out state=0 next_tid=99
155ms cpu1 10/12 stolen stolen_ns=9000000
156ms cpu1 20/55 woken ready_ns=54000000
156ms cpu1 20/55 switch_in prev_tid=99
157ms cpu1 20/55 switch_out state=0 next_tid=12
157ms cpu1 10/12 switch_in prev_tid=55
159ms cpu1 20/55 switch_in prev_tid=98
"
    );
    let runs = [run(0, 20, 20), run(1, 40, 30)];
    let said = cause_of(&text, &runs, late(), soon(), vec![]);
    assert_eq!(said, "the host took the CPU for 9.0 ms");
}

#[test]
fn preemption_by_a_thread_of_the_chain_is_not_the_cause_of_a_late_output() {
    let text = "
100ms cpu1 10/11 switch_in prev_tid=0
110ms cpu1 10/11 switch_out state=0 next_tid=12
110ms cpu1 10/12 switch_in prev_tid=11
130ms cpu1 10/12 switch_out state=1 next_tid=11
130ms cpu1 10/11 switch_in prev_tid=12
";
    let said = cause_of(text, &[run(1, 35, 20)], late(), soon(), vec![]);
    assert_eq!(said, "/n1 took 35.0 ms, usually 20.0 ms");
}

#[test]
fn stolen_time_and_idle_cpus_that_wake_up_late_are_causes_of_late_outputs() {
    let text = format!("{USUAL}\n150ms cpu1 10/12 stolen stolen_ns=9000000\n");
    let said = cause_of(&text, &[run(1, 19, 10)], late(), soon(), vec![]);
    assert_eq!(said, "the host took the CPU for 9.0 ms");
    let text = USUAL.to_owned()
        + "130ms cpu1 10/11 woken ready_ns=8000000\n130ms cpu1 10/11 switch_in prev_tid=0\n";
    let said = cause_of(&text, &[], late(), soon(), vec![]);
    assert_eq!(said, "an idle CPU woke up 8.0 ms late");
}

#[test]
fn a_late_dispatcher_is_the_cause_of_a_late_output() {
    let moved = |delay_ns, open| Move {
        at_ns: 110 * MS,
        delay_ns,
        server: 2,
        open,
    };
    let moves = vec![moved(8 * MS, true), moved(90 * MS, false)];
    let said = cause_of(USUAL, &[], late(), soon(), moves);
    assert_eq!(said, "the dispatcher opened a gate 8.0 ms late");
}

#[test]
fn a_late_input_is_the_cause_of_a_late_output() {
    let late = Late {
        start_ns: 112 * MS,
        usual_start_ns: MS / 2,
        ..late()
    };
    let said = cause_of(USUAL, &[run(0, 20, 20)], late, soon(), vec![]);
    assert_eq!(
        said,
        "the chain's input came late: the chain began 12.0 ms after the start of its cycle, usually 0.5 ms"
    );
}

#[test]
fn a_shaper_that_receives_or_sends_late_is_the_cause_of_a_late_output() {
    let ready = Late {
        ready_ns: 140 * MS,
        ..late()
    };
    let said = cause_of(USUAL, &[], ready, 159 * MS, vec![]);
    assert_eq!(
        said,
        "the shaper took the output 19.0 ms after it was ready"
    );
    let said = cause_of(USUAL, &[], ready, 140 * MS + 9_000, vec![]);
    assert_eq!(
        said,
        "the shaper's sender did not wake up in the output's slot"
    );
}

#[test]
fn the_cause_of_a_late_output_states_unexplained_time_and_lost_records() {
    let said = cause_of("", &[], late(), soon(), vec![]);
    assert_eq!(
        said,
        "the cause is unknown: the recorder lost the thread switches of the chain"
    );
    let lost = format!("{USUAL}\n150ms cpu1 10/12 lost probe=ring count=3\n");
    let said = cause_of(&lost, &[run(1, 40, 10)], late(), soon(), vec![]);
    assert_eq!(
        said,
        "/n1 took 40.0 ms, usually 10.0 ms (3 records of that time were lost)"
    );
    let said = cause_of(USUAL, &[run(1, 10, 10)], late(), soon(), vec![]);
    assert!(
        said.contains("9.0 ms after the end of its last slot. The chain's callbacks ran as usual"),
        "{said}"
    );
    let said = cause_of(USUAL, &[run(1, 11, 10)], late(), soon(), vec![]);
    assert!(
        said.starts_with(
            "no single cause: /n1 took 11.0 ms, usually 10.0 ms; the cause of 8.0 of 9.0 ms of the delay"
        ),
        "{said}"
    );
}

#[test]
fn the_flight_recorder_has_bounded_memory_for_any_events() {
    let mut flight = Flight::default();
    let events = onbeat_trace::text::parse(USUAL).expect("events");
    for _ in 0..20_000 {
        flight.push(&events);
    }
    let moved = Move {
        at_ns: 110 * MS,
        delay_ns: 1,
        server: 0,
        open: true,
    };
    flight.moved(vec![moved; 5 * MAX_MOVES_AND_ITEMS]);
    for _ in 0..5 * MAX_MOVES_AND_ITEMS {
        flight.released(item(soon()));
    }
    let (name, thread) = (|_: usize| String::new(), |_: u32| String::new());
    for _ in 0..3 * MAX_DUMPS {
        flight.explain(late(), &[], (&name, &thread));
    }
    assert_eq!(flight.switches.len(), MAX_SWITCHES);
    assert_eq!(
        (flight.moves.len(), flight.items.len()),
        (MAX_MOVES_AND_ITEMS, MAX_MOVES_AND_ITEMS)
    );
    assert_eq!(flight.late.len(), MAX_DUMPS);
    assert!(flight
        .late
        .iter()
        .all(|l| l.dump.len() <= MAX_LINES + MAX_MOVES_AND_ITEMS));
}

#[test]
fn the_dump_of_a_late_output_shows_when_each_thread_ran() {
    let mut flight = Flight::default();
    flight.push(&onbeat_trace::text::parse(USUAL).expect("events"));
    let (name, thread) = (|_: usize| String::new(), |tid: u32| format!("t{tid}"));
    flight.explain(late(), &[], (&name, &thread));
    let late = flight.into_late();
    assert_eq!(
        late[0].dump[1],
        "    0.000 cpu1 t11 was ready to run for 0.004 ms"
    );
    assert_eq!(late[0].dump[2], "   20.000 cpu1 t11 sleeps");
}
