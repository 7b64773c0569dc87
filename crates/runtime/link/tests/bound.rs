//! Compares the bound of a port's latencies with a simulation of the port: chunk by chunk, with its
//! window.

use onbeat_link::bound::{Load, NoBound, Port};
use proptest::prelude::*;
use std::collections::VecDeque;

struct Message {
    load: usize,
    came_ns: u64,
    left: usize,
}

fn simulate(port: &Port, loads: &[Load], arrivals: &[(u64, usize)]) -> Vec<u64> {
    let wire = |bytes: usize| {
        let bits = (bytes + port.overhead_bytes) as u128 * 8 * 1_000_000_000;
        // Rounded down, so that the simulation is not slower than the wire.
        (bits / u128::from(port.bits_per_second)) as u64
    };
    let mut arrivals: VecDeque<_> = arrivals.iter().copied().collect();
    let (mut waiting, mut posted) = (Vec::<Message>::new(), VecDeque::new());
    let (mut longest, mut bytes_posted, mut now) = (vec![0; loads.len()], 0, 0);
    // The time at which the chunk on the wire has left.
    let mut leaves: Option<u64> = None;
    loop {
        while arrivals.front().is_some_and(|(at, _)| *at <= now) {
            let (came_ns, load) = arrivals.pop_front().unwrap();
            let left = loads[load].bytes;
            waiting.push(Message {
                load,
                came_ns,
                left,
            });
        }
        // The most urgent message goes first, and of equals the first that came (`max_by_key` takes
        // the last of equals).
        while let Some(at) = (0..waiting.len())
            .rev()
            .max_by_key(|i| loads[waiting[*i].load].priority)
        {
            let message = &mut waiting[at];
            let bytes = message.left.min(port.chunk_bytes);
            let whole = bytes + port.overhead_bytes;
            if bytes_posted > 0 && bytes_posted + whole > port.window_bytes {
                break;
            }
            bytes_posted += whole;
            message.left -= bytes;
            let done = (message.left == 0).then_some((message.load, message.came_ns));
            posted.push_back((bytes, done));
            if done.is_some() {
                waiting.remove(at);
            }
        }
        if leaves.is_none() {
            leaves = posted.front().map(|(bytes, _)| now + wire(*bytes));
        }
        let next = leaves
            .into_iter()
            .chain(arrivals.front().map(|(at, _)| *at))
            .min();
        let Some(next) = next else { return longest };
        now = next;
        if leaves == Some(now) {
            leaves = None;
            let (bytes, done) = posted.pop_front().unwrap();
            bytes_posted -= bytes + port.overhead_bytes;
            if let Some((load, came_ns)) = done {
                longest[load] = longest[load].max(now - came_ns);
            }
        }
    }
}

const GIGABIT: Port = Port {
    bits_per_second: 1_000_000_000,
    chunk_bytes: 64 << 10,
    window_bytes: 2 * ((64 << 10) + 100),
    overhead_bytes: 100,
    way_ns: 0,
};

fn load(priority: u8, bytes: usize, period_ms: u64) -> Load {
    let period_ns = period_ms * 1_000_000;
    Load {
        priority,
        bytes,
        period_ns,
        jitter_ns: 0,
    }
}

#[test]
fn the_bounds_of_a_cars_channels_are_at_most_twice_the_simulated_latency() {
    let loads = [
        load(9, 1000, 10),
        load(5, 1_000_000, 50),
        load(1, 4_000_000, 500),
    ];
    let bounds: Vec<u64> = GIGABIT
        .bounds(&loads)
        .into_iter()
        .map(|b| b.unwrap())
        .collect();
    // Computed by hand: the window of 131,272 bytes, and 1100 bytes of the message, 8 ns each.
    assert_eq!(bounds[0], (131_272 + 1100) * 8);
    // 16 chunks, the window, and the urgent message once, since all of it takes less than 10 ms.
    assert_eq!(bounds[1], (131_272 + 1_001_600 + 1100) * 8);
    // All messages come at once, just after the least urgent channel's first two chunks.
    let mut arrivals = vec![(0, 2)];
    arrivals.extend((0..40).map(|n| (1 + n * loads[0].period_ns, 0)));
    arrivals.extend((0..8).map(|n| (1 + n * loads[1].period_ns, 1)));
    arrivals.sort_unstable();
    let seen = simulate(&GIGABIT, &loads, &arrivals);
    for (bound, seen) in bounds.iter().zip(&seen) {
        assert!(seen <= bound && *bound <= 2 * seen, "{seen} of {bound} ns");
    }
}

#[test]
fn an_overloaded_port_has_bounds_only_for_urgent_channels() {
    let loads = [load(9, 1000, 10), load(1, 8_000_000, 50)];
    let bounds = GIGABIT.bounds(&loads);
    assert!(bounds[0].is_ok());
    let overload = NoBound::Overload {
        priority: 1,
        percent: 129,
    };
    assert_eq!(bounds[1], Err(overload));
    let stopped = Port {
        bits_per_second: 0,
        ..GIGABIT
    };
    assert_eq!(stopped.bounds(&loads), [Err(NoBound::Zero); 2]);
}

fn channels() -> impl Strategy<Value = Vec<(Load, u64)>> {
    // Priority, bytes, the period as a multiple of the message's wire time, and jitter and offset
    // as parts of the period.
    let channel = (0u8..3, 1usize..20_000, 5u64..60, 0u64..8, 0u64..100);
    proptest::collection::vec(channel, 1..5).prop_map(|channels| {
        let of = |(priority, bytes, times, jitter, offset): (u8, usize, u64, u64, u64)| {
            let period_ns = (bytes as u64 + 2000) * 8 * times;
            let jitter_ns = period_ns * jitter / 10;
            let load = Load {
                priority,
                bytes,
                period_ns,
                jitter_ns,
            };
            (load, period_ns * offset / 100)
        };
        channels.into_iter().map(of).collect()
    })
}

proptest! {
    #[test]
    fn no_message_takes_longer_than_its_bound(
        channels in channels(),
        late in proptest::collection::vec(0u64..=10, 200),
        chunk_bytes in 500usize..4000,
        chunks in 1usize..4,
    ) {
        let port = Port {
            chunk_bytes,
            window_bytes: chunks * (chunk_bytes + 50),
            overhead_bytes: 50,
            ..GIGABIT
        };
        let loads: Vec<Load> = channels.iter().map(|(load, _)| *load).collect();
        let mut arrivals = Vec::new();
        for (i, (load, offset)) in channels.iter().enumerate() {
            for n in 0..40 {
                let late = late[(n + 7 * i) % late.len()] * load.jitter_ns / 10;
                arrivals.push((offset + n as u64 * load.period_ns + late, i));
            }
        }
        arrivals.sort_unstable();
        let seen = simulate(&port, &loads, &arrivals);
        for (bound, seen) in port.bounds(&loads).iter().zip(&seen) {
            if let Ok(bound) = bound {
                prop_assert!(seen <= bound, "{} of {} ns: {:?}", seen, bound, loads);
            }
        }
    }
}
