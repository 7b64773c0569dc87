use super::*;
use proptest::prelude::*;

fn trace(most: usize) -> impl Strategy<Value = Vec<(i64, u64)>> {
    let gap = prop_oneof![Just(0i64), 1i64..20, 100i64..2000];
    prop::collection::vec((gap, 0u64..500), 1..most).prop_map(|gaps| {
        let mut time_ns = 0;
        gaps.into_iter()
            .map(|(gap, bytes)| {
                time_ns += gap;
                (time_ns, bytes)
            })
            .collect()
    })
}

fn meter(most: usize, trace: &[(i64, u64)]) -> ArrivalMeter {
    let mut meter = ArrivalMeter {
        trace: Trace::new(most),
        largest_bytes: 0,
    };
    for &(time_ns, bytes) in trace {
        meter.observe(time_ns, bytes);
    }
    meter
}

fn windows(trace: &[(i64, u64)]) -> Vec<(u64, u64, u64)> {
    let mut all = Vec::new();
    for from in 0..trace.len() {
        let mut bytes = 0;
        for to in from..trace.len() {
            bytes += trace[to].1;
            all.push((
                (trace[to].0 - trace[from].0) as u64,
                (to - from + 1) as u64,
                bytes,
            ));
        }
    }
    all
}

proptest! {
    #[test]
    fn every_window_of_a_trace_is_below_its_envelope(trace in trace(120), most in prop_oneof![Just(EXACT), 2usize..40]) {
        let arrival = meter(most, &trace).arrival();
        for (length_ns, items, bytes) in windows(&trace) {
            prop_assert!(items <= arrival.items.at(length_ns), "{} items in {} ns", items, length_ns);
            prop_assert!(bytes <= arrival.bytes.at(length_ns), "{} bytes in {} ns", bytes, length_ns);
        }
    }

    #[test]
    fn a_window_reaches_every_corner_of_the_envelope(trace in trace(32)) {
        let arrival = meter(EXACT, &trace).arrival();
        for (length_ns, items, _) in arrival.items.buckets() {
            prop_assert!(windows(&trace).contains(&(length_ns, items, 0)) || windows(&trace).iter().any(|window| {
                window.0 <= length_ns && window.1 == items
            }), "{} items in {} ns", items, length_ns);
        }
    }

    #[test]
    fn a_measured_service_curve_holds_in_every_time_interval(
        periods in prop::collection::vec((trace(30), 1i64..5000), 1..4),
        most in prop_oneof![Just(EXACT), 2usize..20],
    ) {
        let mut meter = ServiceMeter { trace: Trace::new(most), resumed: true };
        // For each period: the instants, with the items and bytes that came.
        let mut all: Vec<Vec<(i64, u64, u64)>> = Vec::new();
        let mut start = 0;
        for (trace, pause) in &periods {
            meter.resumed(start);
            let mut instants = vec![(start, 0, 0)];
            for &(time_ns, bytes) in trace {
                meter.observe(start + time_ns, bytes);
                instants.push((start + time_ns, 1, bytes));
            }
            let end = start + trace[trace.len() - 1].0 + 7;
            meter.held_up(end);
            instants.push((end, 0, 0));
            all.push(instants);
            start = end + pause;
        }
        let service = meter.service();
        prop_assert!(!service.items.is_empty());
        for period in &all {
            for from in 0..period.len() {
                let (mut items, mut bytes) = (0, 0);
                for to in from + 1..period.len() {
                    // Just before this instant, only earlier items have come.
                    let before_ns = (period[to].0 - period[from].0).max(1) as u64 - 1;
                    for bound in &service.items {
                        prop_assert!(bound.at(before_ns) <= items, "{:?}: {} in {} ns", bound, items, before_ns);
                    }
                    for bound in &service.bytes {
                        prop_assert!(bound.at(before_ns) <= bytes, "{:?}: {} in {} ns", bound, bytes, before_ns);
                    }
                    items += period[to].1;
                    bytes += period[to].2;
                }
            }
        }
    }
}

#[test]
fn the_measured_rate_of_a_steady_loader_is_exact() {
    let mut meter = ServiceMeter::default();
    meter.resumed(0);
    for item in 1..=1000 {
        meter.observe(item * 100, 50);
    }
    let bounds = meter.service().items;
    assert_eq!(bounds.len(), 1, "{bounds:?}");
    assert_eq!(
        (bounds[0].latency_ns, bounds[0].rate.per_second()),
        (100, 1e7)
    );
}
