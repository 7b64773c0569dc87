use super::*;
use proptest::prelude::*;

fn greedy(curve: &Upper, most: u64) -> Vec<u64> {
    let first = |units| {
        // The first whole nanosecond at which the curve allows this many units.
        let (mut low, mut high) = (0u64, 1u64 << 40);
        while low < high {
            let middle = (low + high) / 2;
            if curve.at(middle) >= units {
                high = middle
            } else {
                low = middle + 1
            }
        }
        (curve.at(low) >= units).then_some(low)
    };
    (1..=most).map_while(first).collect()
}

fn reached(bound: RateLatency, units: u64) -> u64 {
    bound.latency_ns
        + (u128::from(units) * u128::from(bound.rate.ns)).div_ceil(u128::from(bound.rate.units))
            as u64
}

struct Simulation {
    items: RateLatency,
    bytes: RateLatency,
    sizes: Sizes,
}

impl Simulation {
    fn plays(&self, trace: &[(u64, u64)]) -> bool {
        let mut loaded = 0;
        let (mut items, mut bytes) = (0, 0);
        let fits = |items, bytes, next: usize| {
            trace.get(next).is_some_and(|(_, size)| {
                items < self.sizes.buffer_items && bytes + size <= self.sizes.buffer_bytes
            })
        };
        while (items < self.sizes.preload_items || bytes < self.sizes.preload_bytes)
            && fits(items, bytes, loaded)
        {
            (items, bytes, loaded) = (items + 1, bytes + trace[loaded].1, loaded + 1);
        }
        // Since when the loader is not held up, and the items and bytes that it has brought since.
        let mut busy = fits(items, bytes, loaded).then_some((0, 0, 0));
        for (now, size) in trace {
            while let Some((since, brought, brought_bytes)) = busy {
                let by_items = reached(self.items, brought + 1);
                let by_bytes = reached(self.bytes, brought_bytes + 1);
                if since + by_items.min(by_bytes) > *now {
                    break;
                }
                let next = trace[loaded].1;
                (items, bytes, loaded) = (items + 1, bytes + next, loaded + 1);
                assert!(items <= self.sizes.buffer_items && bytes <= self.sizes.buffer_bytes);
                busy = fits(items, bytes, loaded).then_some((
                    since,
                    brought + 1,
                    brought_bytes + next,
                ));
            }
            if items == 0 {
                return false;
            }
            (items, bytes) = (items - 1, bytes - size);
            if busy.is_none() && fits(items, bytes, loaded) {
                busy = Some((*now, 0, 0));
            }
        }
        true
    }
}

fn bound(latency_ns: u64, units: u64, ns: u64) -> RateLatency {
    RateLatency {
        latency_ns,
        rate: Rate { units, ns },
    }
}

const ENOUGH: RateLatency = RateLatency {
    latency_ns: 0,
    rate: Rate {
        units: 1 << 30,
        ns: 1,
    },
};

fn curves() -> impl Strategy<Value = Upper> {
    (
        1u64..6,
        prop::collection::vec((1u64..30, 1u64..8), 0..4),
        1u64..30,
    )
        .prop_map(|(burst, pieces, last)| {
            let mut corners = vec![(0, burst)];
            let mut gap = 0;
            for (more, items) in pieces {
                gap += more;
                let (ns, units) = corners[corners.len() - 1];
                corners.push((ns + gap * items, units + items));
            }
            Upper::covering(
                &corners,
                Rate {
                    units: 1,
                    ns: gap + last,
                },
            )
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_computed_buffer_size_is_the_smallest_that_suffices(
        curve in curves(), latency_ns in 0u64..300, gap in 1u64..60, shift in 0usize..40,
    ) {
        let service = bound(latency_ns, 1, gap);
        let arrival = Arrival { items: curve.clone(), bytes: Upper::leaky_bucket(0, Rate { units: 0, ns: 1 }), largest_bytes: 0 };
        let Ok(sizes) = size(&arrival, &Service { items: vec![service], bytes: vec![ENOUGH] }) else {
            prop_assert!(!service.rate.at_least(curve.rate()));
            return Ok(());
        };
        // Bytes have no influence: this service of bytes brings nothing.
        let none = bound(u64::MAX / 4, 1, 1);
        let trace: Vec<(u64, u64)> = greedy(&curve, 400).into_iter().map(|ns| (ns, 0)).collect();
        let enough = Simulation { items: service, bytes: none, sizes };
        prop_assert!(enough.plays(&trace));
        // Any other trace within the envelope plays as well. Here it is a later part of the same
        // trace.
        let part: Vec<(u64, u64)> = trace.iter().skip(shift).map(|item| (item.0 - trace[shift].0, 0)).collect();
        prop_assert!(enough.plays(&part));
        if sizes.buffer_items > 1 {
            let less = Sizes { buffer_items: sizes.buffer_items - 1, preload_items: sizes.preload_items - 1, ..sizes };
            let small = Simulation { items: service, bytes: none, sizes: less };
            prop_assert!(!small.plays(&trace), "{:?}", sizes);
        }
    }

    #[test]
    fn a_measured_trace_plays_without_a_gap(
        gaps in prop::collection::vec((prop_oneof![Just(0u64), 1u64..50, 500u64..3000], 1u64..200), 1..150),
        (latency_ns, item_ns, byte_ns) in (0u64..5000, 1u64..400, 1u64..4),
    ) {
        let mut meter = ArrivalMeter::default();
        let mut now = 0;
        let mut trace = Vec::new();
        for (gap, bytes) in gaps {
            now += gap;
            trace.push((now, bytes));
            meter.observe(now as i64, bytes);
        }
        let (items, bytes) = (bound(latency_ns, 1, item_ns), bound(latency_ns, 1, byte_ns));
        if let Ok(sizes) = size(&meter.arrival(), &Service { items: vec![items], bytes: vec![bytes] }) {
            let enough = Simulation { items, bytes, sizes };
            prop_assert!(enough.plays(&trace), "{:?}", sizes);
        }
    }

    #[test]
    fn the_monitor_reports_the_first_item_above_the_envelope(curve in curves(), at in 0usize..60) {
        let trace = greedy(&curve, 80);
        let at = at.min(trace.len() - 1);
        let mut monitor = Monitor::new(&curve);
        for &ns in &trace[..=at] {
            prop_assert_eq!(monitor.observe(ns as i64, 1), None);
        }
        // The next item is allowed at trace[at + 1], but not a nanosecond earlier.
        if let Some(&next) = trace.get(at + 1) {
            if next > trace[at] {
                prop_assert!(monitor.clone().observe(next as i64 - 1, 1).is_some());
            }
            prop_assert_eq!(monitor.observe(next as i64, 1), None);
        }
    }
}

#[test]
fn leaky_bucket_bounds_match_the_textbook() {
    // Burst 10, 1 item/us. The service gives 2 items/us after 5 us. So the backlog is b + rT = 15
    // and the delay T + b/R = 10 us.
    let arrival = Arrival {
        items: Upper::leaky_bucket(10, Rate { units: 1, ns: 1000 }),
        bytes: Upper::leaky_bucket(1000, Rate { units: 1, ns: 10 }),
        largest_bytes: 100,
    };
    let sizes = size(
        &arrival,
        &Service::rate_latency(5000, 2_000_000, 200_000_000),
    )
    .expect("fast enough");
    let wanted = Sizes {
        buffer_items: 15,
        buffer_bytes: 1600,
        preload_items: 15,
        preload_bytes: 1500,
        delay_ns: 10_000,
    };
    assert_eq!(sizes, wanted);
}

#[test]
fn a_loader_slower_than_playback_is_an_error() {
    let arrival = Arrival {
        items: Upper::leaky_bucket(1, Rate { units: 1, ns: 1000 }),
        bytes: Upper::leaky_bucket(1, Rate { units: 1, ns: 1000 }),
        largest_bytes: 1,
    };
    let error = size(&arrival, &Service::rate_latency(0, 999_999, 1 << 40)).expect_err("too slow");
    assert_eq!((error.what, error.arrival_per_s), ("items", 1e6));
}

#[test]
fn faster_playback_has_the_same_items_in_less_time() {
    let curve = Upper::covering(&[(0, 3), (1000, 10)], Rate { units: 1, ns: 1000 });
    let fast = curve.faster(4.0);
    for ns in [0, 1, 100, 250, 1000, 100_000] {
        let exact = curve.at(ns * 4);
        assert!(
            (exact..=exact + 1).contains(&fast.at(ns)),
            "{} {} {exact}",
            ns,
            fast.at(ns)
        );
    }
}
