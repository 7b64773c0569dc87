//! Simulates sensors whose clocks drift, with jitter, gaps and restarts, for up to a week.
use super::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

const BEGIN: u64 = 1_000_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Sensor {
    first_ns: u64,
    ppm: i64,
    jitter_ns: u64,
}

impl Sensor {
    fn due(&self, n: u64, period_ns: u64) -> u64 {
        let drift = i128::from(n) * i128::from(period_ns) * i128::from(self.ppm) / 1_000_000;
        self.first_ns + n * period_ns + u64::try_from(drift.max(0)).unwrap_or(0)
            - u64::try_from((-drift).max(0)).unwrap_or(0)
    }
}

struct Session {
    period_ns: u64,
    phase: Phase,
    clock: InputClock,
    fixed: Phase,
    at_fixed: InputClock,
    found_again: u64,
    fastest: f64,
    last_move: Option<u64>,
}

impl Session {
    fn new(period_ns: u64, origin_ns: u64, inputs: usize) -> Session {
        let phase = Phase::new(period_ns, origin_ns);
        Session {
            period_ns,
            clock: InputClock::new(&phase, inputs),
            at_fixed: InputClock::new(&phase, inputs),
            fixed: phase.clone(),
            phase,
            found_again: 0,
            fastest: 0.0,
            last_move: None,
        }
    }

    fn arrived(&mut self, input: usize, at_ns: u64) {
        self.clock.arrived(input, at_ns, &self.phase);
        self.at_fixed.arrived(input, at_ns, &self.fixed);
        let origin_ns = self.phase.origin_ns();
        match self.clock.follow(origin_ns, at_ns) {
            Some(Moved::Slewed(to)) => {
                if let Some(last) = self.last_move.filter(|last| at_ns > *last) {
                    let speed = to.abs_diff(origin_ns) as f64 / (at_ns - last) as f64;
                    self.fastest = self.fastest.max(speed);
                }
                self.phase = Phase::new(self.period_ns, to);
            }
            Some(Moved::FoundAgain(to)) => {
                self.found_again += 1;
                self.phase = Phase::new(self.period_ns, to);
            }
            None => {}
        }
        self.last_move = Some(at_ns);
    }

    fn behind_start(&self, at_ns: u64) -> u64 {
        self.phase.cycle(at_ns).1
    }
}

fn fixed_seed() -> ProptestConfig {
    ProptestConfig {
        cases: 12,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(12),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn the_origin_follows_a_drifting_clock_without_slips(
        seed: u64, ppm in -200i64..=200, jitter_ns in 0u64..3_000_000, phase in 0u64..100_000_000,
        lost in 0u64..20,
    ) {
        let period_ns = 100_000_000;
        let sensor = Sensor { first_ns: BEGIN + phase, ppm, jitter_ns };
        let mut random = Random(seed);
        // Begins a tenth of a cycle after the input, as at the start of a session.
        let mut session = Session::new(period_ns, sensor.first_ns + jitter_ns + 10_000_000 , 1);
        for n in 0..12_000u64 {
            let late = random.below(sensor.jitter_ns + 1);
            if random.below(100) < lost {
                continue;
            }
            let due = sensor.due(n, period_ns);
            session.arrived(0, due + late);
            if n > 200 {
                let behind = session.behind_start(due + late);
                prop_assert!(behind > period_ns / 2, "message {n} came {behind} ns into its cycle");
            }
        }
        prop_assert_eq!(session.clock.slips(), 0);
        prop_assert_eq!(session.found_again, 0);
        prop_assert!(session.fastest <= 1.0 / SLEW_PART as f64 + 1e-9, "{}", session.fastest);
        // In 20 minutes, a drift of more than 10 ms causes a slip if the origin stays.
        let drift_ns = ppm.unsigned_abs() * 1200 * 1000;
        if ppm > 0 && drift_ns > 10_000_000 + 2 * jitter_ns {
            prop_assert!(session.at_fixed.slips() > 0, "no input slipped under a fixed origin");
        }
    }

    #[test]
    fn the_phase_of_an_input_is_found_again_after_a_gap_and_a_restart(
        seed: u64, ppm in -200i64..=200, jitter_ns in 0u64..2_000_000, jump in 10_000_000u64..90_000_000,
        gap in 1u64..40_000, outlier_every in 40u64..200,
    ) {
        let period_ns = 100_000_000;
        let mut sensor = Sensor { first_ns: BEGIN, ppm, jitter_ns };
        let mut random = Random(seed);
        let mut session = Session::new(period_ns, BEGIN + jitter_ns + 10_000_000, 1);
        for n in 0..3000u64 {
            let mut late = random.below(jitter_ns + 1);
            if n % outlier_every == 17 {
                late += 30_000_000;
            }
            session.arrived(0, sensor.due(n, period_ns) + late);
        }
        prop_assert_eq!(session.found_again, 0, "outliers counted as another phase of the input");
        // Each outlier is late for its cycle, and the next message is the second of a cycle.
        let before = session.clock.slips();
        prop_assert!(before <= 2 * (3000 / outlier_every + 1), "{}", before);
        // The sensor is silent and returns at another phase.
        sensor.first_ns = sensor.due(3000 + gap, period_ns) + jump;
        for n in 0..400u64 {
            let at = sensor.due(n, period_ns) + random.below(jitter_ns + 1);
            session.arrived(0, at);
            if n > 100 {
                prop_assert!(session.behind_start(at) > period_ns / 2);
            }
        }
        prop_assert!(session.found_again <= 1);
        let after = session.clock.slips() - before;
        prop_assert!(after <= 16, "{after} slips until the new phase was found");
    }

    #[test]
    fn irregular_arrivals_do_not_move_the_origin(seed: u64) {
        let mut random = Random(seed);
        let mut session = Session::new(50_000_000, BEGIN, 1);
        let mut at = BEGIN;
        for _ in 0..2000 {
            at += 15_000_000 + random.below(30_000_000);
            session.arrived(0, at);
        }
        prop_assert_eq!(session.phase.origin_ns(), BEGIN);
        prop_assert_eq!(session.clock.slips(), 0);
    }

    #[test]
    fn the_cycle_begins_after_the_later_of_two_inputs_with_one_clock(seed: u64, ppm in -200i64..=200, apart in 1u64..40) {
        let period_ns = 100_000_000;
        let sensor = |ms: u64| Sensor { first_ns: BEGIN + ms * 1_000_000, ppm, jitter_ns: 500_000 };
        let sensors = [sensor(0), sensor(apart)];
        let mut random = Random(seed);
        let mut session = Session::new(period_ns, BEGIN + apart * 1_000_000 + 10_500_000, 2);
        for n in 0..6000 {
            for (input, sensor) in sensors.iter().enumerate() {
                session.arrived(input, sensor.due(n, period_ns) + random.below(500_000));
            }
        }
        prop_assert_eq!(session.clock.slips(), 0);
        let last = sensors[1].due(6000, period_ns);
        let behind = session.behind_start(last);
        prop_assert!(behind > period_ns - 14_000_000, "the message came {behind} ns into its cycle");
    }

    #[test]
    fn an_origin_between_two_inputs_half_a_cycle_apart_stays_there(seed: u64, apart in 46u64..=54) {
        let period_ns = 100_000_000;
        let first = [0, apart].map(|ms| BEGIN + ms * 1_000_000);
        let mut random = Random(seed);
        let mut session = Session::new(period_ns, first[1] + 12_000_000, 2);
        let (mut moves, mut last) = (0, session.phase.origin_ns());
        for n in 0..3000 {
            for (input, first_ns) in first.iter().enumerate() {
                session.arrived(input, first_ns + n * period_ns + random.below(2_000_000));
            }
            moves += u64::from(n >= 100 && session.phase.origin_ns() != last);
            last = session.phase.origin_ns();
        }
        prop_assert_eq!((session.clock.slips(), session.found_again), (0, 0));
        prop_assert!(last.abs_diff(first[1] + 12_000_000) < 2_500_000, "{last}");
        prop_assert_eq!(moves, 0);
    }
}

#[test]
fn a_clock_that_drifts_for_a_week_causes_no_slip() {
    // A message per second for a week: 604,800.
    let period_ns = 1_000_000_000;
    let sensor = Sensor {
        first_ns: BEGIN,
        ppm: 200,
        jitter_ns: 3_000_000,
    };
    let mut random = Random(7);
    let mut session = Session::new(period_ns, BEGIN + 103_000_000, 1);
    for n in 0..604_800 {
        session.arrived(0, sensor.due(n, period_ns) + random.below(sensor.jitter_ns));
    }
    assert_eq!((session.clock.slips(), session.found_again), (0, 0));
    let slips = session.at_fixed.slips();
    assert!(slips >= 121, "{slips} slips with a fixed origin");
}
