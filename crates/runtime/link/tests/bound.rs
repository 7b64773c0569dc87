//! Compares the bound of a port's latencies with a simulation of the port: chunk by chunk, with its
//! window, its wire, and threads that do not always get their CPUs.

use onbeat_link::bound::{Cpu, Load, NoBound, Port};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Numbers from 0 to 10 that a test case uses over and over: tenths of the longest time of a step.
struct Chance<'a>(&'a [u64], usize);

impl Chance<'_> {
    fn tenths(&mut self) -> u64 {
        self.1 += 1;
        self.0[self.1 * 7 % self.0.len()]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A channel's application has handed over a message that was complete at this time.
    Pushed(usize, u64),
    /// The most urgent channel has not asked for a chunk since this time, so other channels may go
    /// first.
    Passed(usize, u64),
    /// A channel's writer asks for a chunk, and writes the chunk if it is granted.
    Asks(usize),
    Writes(usize),
    Left,
    /// The sender has learned that the peer has received a chunk of this many bytes on the wire.
    Freed(usize),
    /// A message that was complete at this time is taken.
    Taken(usize, u64),
}

struct Chunk {
    whole: usize,
    /// If this is the last chunk of its message: the channel, and the time at which the message was
    /// complete.
    last: Option<(usize, u64)>,
    channel: usize,
}

#[derive(Default)]
struct Channel {
    /// The times of each waiting message: when it was complete, and when it was handed over.
    waiting: VecDeque<(u64, u64)>,
    sent_bytes: usize,
    /// The time at which the port told the writer that it may ask for a chunk. `None` once the
    /// writer has asked.
    rung_ns: Option<u64>,
    is_writing: bool,
    is_passed: bool,
}

/// A simulation of a sender's port, its wire and all threads, chunk by chunk. Each step takes up to
/// [`Cpu::wake_ns`], and longer if it meets a stall.
struct World<'a> {
    port: &'a Port,
    cpu: Cpu,
    loads: &'a [Load],
    /// Times during which threads do not get their CPUs. Chance decides which threads.
    stalls: &'a [(u64, u64)],
    chance: Chance<'a>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    channels: Vec<Channel>,
    wire: VecDeque<Chunk>,
    posted_bytes: usize,
    longest: Vec<u64>,
}

impl World<'_> {
    fn at(&mut self, time_ns: u64, event: Event) {
        self.events.push(Reverse((time_ns, event)));
    }

    /// Returns when the last of `steps` consecutive steps of threads is done. The first step is due
    /// at `now`.
    fn done(&mut self, now: u64, steps: u64) -> u64 {
        let mut end = now;
        for _ in 0..steps {
            let due = end;
            end += self.cpu.wake_ns * self.chance.tenths() / 10;
            for &(from, to) in self.stalls {
                if due < to && end >= from && self.chance.tenths() > 3 {
                    end += to - from.max(due);
                }
            }
        }
        end
    }

    fn way(&mut self, most: u64) -> u64 {
        most * self.chance.tenths() / 10
    }

    fn need(&self, channel: usize) -> usize {
        let left = self.loads[channel].bytes - self.channels[channel].sent_bytes;
        left.min(self.port.chunk_bytes) + self.port.overhead_bytes
    }

    fn first(&self) -> Option<usize> {
        let waits = |c: &usize| !self.channels[*c].waiting.is_empty();
        let waits = (0..self.loads.len()).filter(waits);
        waits
            .filter(|c| !self.channels[*c].is_passed)
            .min_by_key(|c| {
                let since = self.channels[*c].waiting[0].1;
                (Reverse(self.loads[*c].priority), since, *c)
            })
    }

    fn has_room(&self, channel: usize) -> bool {
        let whole = self.need(channel);
        self.posted_bytes == 0 || self.posted_bytes + whole <= self.port.window_bytes
    }

    fn ring(&mut self, now: u64) {
        let Some(first) = self.first().filter(|c| self.has_room(*c)) else {
            return;
        };
        let channel = &mut self.channels[first];
        if channel.rung_ns.is_none() && !channel.is_writing {
            channel.rung_ns = Some(now);
            // Asking and writing are one step.
            let asks = self.done(now, 1);
            self.at(asks, Event::Asks(first));
            self.at(now + self.port.patience_ns, Event::Passed(first, now));
        }
    }

    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Pushed(channel, complete_ns) => {
                self.channels[channel].waiting.push_back((complete_ns, now));
            }
            Event::Asks(channel) => {
                let is_first = self.first() == Some(channel);
                self.channels[channel].is_passed = false;
                self.channels[channel].rung_ns = None;
                if (is_first || self.first() == Some(channel)) && self.has_room(channel) {
                    self.posted_bytes += self.need(channel);
                    self.channels[channel].is_writing = true;
                    self.at(now, Event::Writes(channel));
                }
            }
            Event::Passed(channel, rung_ns) => {
                let one = &mut self.channels[channel];
                one.is_passed |= one.rung_ns == Some(rung_ns);
            }
            Event::Writes(channel) => self.write(now, channel),
            Event::Left => self.leave(now),
            Event::Freed(whole) => self.posted_bytes -= whole,
            Event::Taken(channel, complete_ns) => {
                self.longest[channel] = self.longest[channel].max(now - complete_ns);
            }
        }
        self.ring(now);
    }

    fn write(&mut self, now: u64, channel: usize) {
        let whole = self.need(channel);
        let own = &mut self.channels[channel];
        own.is_writing = false;
        own.sent_bytes += whole - self.port.overhead_bytes;
        let mut last = None;
        if own.sent_bytes >= self.loads[channel].bytes {
            own.sent_bytes = 0;
            last = own
                .waiting
                .pop_front()
                .map(|(complete_ns, _)| (channel, complete_ns));
        }
        self.wire.push_back(Chunk {
            whole,
            last,
            channel,
        });
        if self.wire.len() == 1 {
            self.begin_chunk(now);
        }
    }

    fn begin_chunk(&mut self, now: u64) {
        if let Some(chunk) = self.wire.front() {
            let bits = chunk.whole as u128 * 8 * 1_000_000_000;
            // Rounded down, so that the simulation is not slower than the wire.
            let takes = (bits / u128::from(self.port.bits_per_second)) as u64;
            self.at(now + takes, Event::Left);
        }
    }

    fn leave(&mut self, now: u64) {
        let chunk = self.wire.pop_front().expect("a chunk has left");
        self.begin_chunk(now);
        let arrives = now + self.way(self.port.way_ns);
        let mut acknowledged = arrives;
        if let Some((channel, complete_ns)) = chunk.last {
            assert_eq!(channel, chunk.channel);
            let taken = self.done(arrives, 2);
            self.at(taken, Event::Taken(channel, complete_ns));
            // The receiver reads the message and answers.
            acknowledged = self.done(arrives, 2);
        }
        let back = acknowledged + self.way(self.port.way_ns);
        let freed = self.done(back, 1);
        self.at(freed, Event::Freed(chunk.whole));
    }
}

/// Returns the longest latency of each channel. `arrivals` are the times at which messages are
/// complete, with their channels.
fn simulate(
    port: &Port,
    cpu: Cpu,
    loads: &[Load],
    arrivals: &[(u64, usize)],
    (stalls, chance): (&[(u64, u64)], &[u64]),
) -> Vec<u64> {
    let mut world = World {
        port,
        cpu,
        loads,
        stalls,
        chance: Chance(chance, 0),
        events: BinaryHeap::new(),
        channels: loads.iter().map(|_| Channel::default()).collect(),
        wire: VecDeque::new(),
        posted_bytes: 0,
        longest: vec![0; loads.len()],
    };
    let mut last_pushed = vec![0; loads.len()];
    for &(complete_ns, channel) in arrivals {
        // A channel hands over its messages one after the other.
        let pushed = world.done(complete_ns, 1).max(last_pushed[channel]);
        last_pushed[channel] = pushed;
        world.at(pushed, Event::Pushed(channel, complete_ns));
    }
    while let Some(Reverse((now, event))) = world.events.pop() {
        world.handle(now, event);
    }
    world.longest
}

const GIGABIT: Port = Port {
    bits_per_second: 1_000_000_000,
    chunk_bytes: 64 << 10,
    window_bytes: 2 * ((64 << 10) + 100),
    overhead_bytes: 100,
    way_ns: 0,
    patience_ns: 20_000_000,
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
        .bounds(&loads, &Cpu::IDEAL)
        .into_iter()
        .map(|b| b.unwrap().longest_ns())
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
    let seen = simulate(&GIGABIT, Cpu::IDEAL, &loads, &arrivals, (&[], &[0]));
    for (bound, seen) in bounds.iter().zip(&seen) {
        assert!(seen <= bound && *bound <= 2 * seen, "{seen} of {bound} ns");
    }
}

#[test]
fn steps_and_stalls_of_threads_add_the_derived_time_to_a_bound() {
    let port = Port {
        way_ns: 50_000,
        patience_ns: 2_000_000,
        ..GIGABIT
    };
    let (step, stall) = (150_000, 5_000_000);
    let (wake_ns, stall_ns) = (step, stall);
    let loads = [load(9, 1000, 100), load(1, 1_000_000, 500)];
    let bounds = port.bounds(&loads, &Cpu { wake_ns, stall_ns });
    let [urgent, large] = [0, 1].map(|i| bounds[i].unwrap());
    // Ideally, the first message waits for the window, or for a chunk, its own size and the way
    // there and back.
    let (chunk, window, way) = (65_636 * 8, 131_272 * 8, 50_000);
    assert!(window > chunk + 1100 * 8 + 2 * way);
    assert_eq!(urgent.wire_ns, window + 1100 * 8 + way);
    // With steps, a turn is long: hear and post, but also receive and answer. The writer is passed
    // over twice, and waits as at the start each time.
    let until_room = chunk + 1100 * 8 + 2 * way + 4 * step;
    assert!(until_room > window);
    let before = 2 * step + until_room + stall + 2 * (2 * step + until_room);
    assert_eq!(urgent.longest_ns(), before + 1100 * 8 + way + 2 * step);
    // The large message waits for a turn before it has room, since the last chunk of its
    // predecessor can be in the window. A turn of 0.4 ms hides behind a chunk.
    let gaps = 4 * step + 2 * way + 2 * step;
    let before = 2 * step + (2 * way + 4 * step) + stall + (1100 * 8 + gaps);
    assert_eq!(large.longest_ns(), before + 1_001_600 * 8 + way + 2 * step);
    // A turn that is longer than a chunk leaves the wire idle before each chunk.
    let slow = [0, 100_000].map(|extra| {
        let way_ns = port.way_ns + chunk / 2 + extra;
        let bounds = Port { way_ns, ..port }.bounds(&loads, &Cpu::IDEAL);
        bounds[1].unwrap().longest_ns()
    });
    // Sixteen chunks and one of the urgent message, twice the way before each, and once at the start,
    // around the urgent message, and at the end.
    assert_eq!(
        slow[1] - slow[0],
        2 * (16 + 1) * 100_000 + 2 * 2 * 100_000 + 100_000
    );
    let crowded = port.bounds(
        &[load(9, 1000, 1), loads[1]],
        &Cpu {
            wake_ns: 2 * step,
            stall_ns,
        },
    );
    let steps = NoBound::Steps {
        priority: 9,
        percent: 209,
    };
    assert_eq!(crowded[0], Err(steps));
}

#[test]
fn a_writer_is_passed_over_when_its_step_and_a_stall_take_as_long_as_the_patience() {
    let (wake_ns, stall_ns) = (1_800_000, 200_000);
    let cpu = Cpu { wake_ns, stall_ns };
    // A chunk takes 100 ms, so that chunks outweigh all steps.
    let port = Port {
        bits_per_second: 5_250_880,
        patience_ns: 2_000_000,
        ..GIGABIT
    };
    let loads = [load(1, 1_000_000, 100_000), load(9, 1000, 1000)];
    let bound = port.bounds(&loads, &cpu)[1].unwrap().longest_ns();
    let mut longest = 0;
    // The first chunk leaves after 100 ms. The stall then meets the urgent writer's step.
    for place in 0..24 {
        let from = 100_000_000 + place * 300_000;
        let (arrivals, stalls) = ([(0, 0), (2_000_000, 1)], [(from, from + stall_ns)]);
        for seed in 0..8 {
            let quick = |i| (seed * 7919 + i * 104_729) % 97 % 3 == 0;
            let chance: Vec<u64> = (0..37).map(|i| if quick(i) { 0 } else { 10 }).collect();
            let seen = simulate(&port, cpu, &loads, &arrivals, (&stalls, &chance));
            longest = longest.max(seen[1]);
        }
    }
    // Three chunks go first: two that were granted before, and one that passed the writer over.
    assert!(
        longest > 300_000_000 && longest <= bound,
        "{longest} of {bound}"
    );
    let wake_ns = port.patience_ns;
    let slow = port.bounds(&loads, &Cpu { wake_ns, stall_ns });
    let patience_ns = port.patience_ns;
    assert_eq!(slow[1], Err(NoBound::Patience { patience_ns }));
    // Nobody is less urgent than the other channel.
    assert!(slow[0].is_ok());
}

#[test]
fn an_overloaded_port_has_bounds_only_for_urgent_channels() {
    let loads = [load(9, 1000, 10), load(1, 8_000_000, 50)];
    let bounds = GIGABIT.bounds(&loads, &Cpu::default());
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
    assert_eq!(stopped.bounds(&loads, &Cpu::IDEAL), [Err(NoBound::Zero); 2]);
}

fn channels() -> impl Strategy<Value = Vec<(Load, u64)>> {
    // Priority, bytes, the period as a multiple of the message's wire time, jitter as a part of the
    // period, and the offset in us: messages of all channels meet early.
    let bytes = prop_oneof![1usize..600, 1usize..20_000];
    let channel = (0u8..3, bytes, 5u64..200, 0u64..8, 0u64..60);
    proptest::collection::vec(channel, 1..5).prop_map(|channels| {
        let of = |(priority, bytes, times, jitter, offset_us): (u8, usize, u64, u64, u64)| {
            let period_ns = (bytes as u64 + 2000) * 8 * times;
            let jitter_ns = period_ns * jitter / 10;
            let load = Load {
                priority,
                bytes,
                period_ns,
                jitter_ns,
            };
            (load, 1000 * offset_us)
        };
        channels.into_iter().map(of).collect()
    })
}

/// Returns stalls, each with its begin and end in ns. Each entry of `places` makes one stall: its
/// begin in ten-thousandths of `until_ns`, and its part of `stall_ns` relative to the other
/// entries.
fn stalls(stall_ns: u64, places: &[(u64, u64)], until_ns: u64) -> Vec<(u64, u64)> {
    let parts: u64 = places.iter().map(|(_, part)| part).sum();
    let mut stalls = Vec::new();
    for &(place, part) in places {
        let from = until_ns * place / 10_000;
        stalls.push((from, from + stall_ns * part / parts.max(1)));
    }
    stalls
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn no_message_takes_longer_than_its_bound(
        channels in channels(),
        late in proptest::collection::vec(0u64..=10, 200),
        chance in proptest::collection::vec(prop_oneof![1 => 0u64..=10, 6 => Just(10)], 199),
        places in proptest::collection::vec((0u64..500, 1u64..4), 1..4),
        chunk_bytes in 500usize..4000,
        chunks in 1usize..4,
        (wake_ns, way_ns) in (0u64..20_000, 0u64..10_000),
        stall_ns in 0u64..500_000,
        patience_ns in prop_oneof![100_000u64..1_000_000, 1000u64..60_000],
        // The usual time of a step and the stalls, as tenths of the patience.
        near in proptest::option::of((5u64..12, 0u64..10)),
    ) {
        let [wake_ns, stall_ns] = near.map_or([wake_ns, stall_ns], |(wake, stall)| {
            [wake, stall].map(|tenths| patience_ns * tenths / 10)
        });
        let port = Port {
            chunk_bytes,
            window_bytes: chunks * (chunk_bytes + 50),
            overhead_bytes: 50,
            way_ns,
            patience_ns,
            ..GIGABIT
        };
        let cpu = Cpu { wake_ns, stall_ns };
        let loads: Vec<Load> = channels.iter().map(|(load, _)| *load).collect();
        let mut arrivals = Vec::new();
        for (i, (load, offset)) in channels.iter().enumerate() {
            for n in 0..10 {
                let late = late[(n + 7 * i) % late.len()] * load.jitter_ns / 10;
                arrivals.push((offset + n as u64 * load.period_ns + late, i));
            }
        }
        arrivals.sort_unstable();
        let until_ns = arrivals.last().map_or(0, |(at, _)| *at);
        let stalls = stalls(stall_ns, &places, until_ns);
        let seen = simulate(&port, cpu, &loads, &arrivals, (&stalls, &chance));
        for (bound, seen) in port.bounds(&loads, &cpu).iter().zip(&seen) {
            if let Ok(bound) = bound {
                let longest = bound.longest_ns();
                prop_assert!(*seen <= longest, "{} of {} ns: {:?}", seen, longest, loads);
            }
        }
    }
}
