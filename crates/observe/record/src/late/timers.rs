//! Reads the period and clock of a timer that was made before the recording.
//!
//! `rcl_timer_t` points to a private struct. It holds a pointer to the public `rcl_clock_t` and
//! three consecutive words: the timer's period, the time of its last call, and the time at which it
//! is due next. Their places vary, so onbeat searches for words that are consistent with one
//! another. Data of the clock itself report whether ROS time is simulated.

use super::Memory;
use onbeat_trace::EventKind;

const TIMER_STRUCT_WORDS: u64 = 24;

/// The longest period that is accepted: three hours. A larger value in memory is an address, not a
/// period.
const MAX_PERIOD_NS: u64 = 3 * 3600 * 1_000_000_000;

const MIN_PERIOD_NS: u64 = 10_000;

const ROS_TIME: u8 = 1;
const STEADY_TIME: u8 = 3;

struct Clock {
    address: u64,
    kind: u8,
    simulated: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub steady_ns: u64,
    pub system_ns: u64,
}

/// Reads a timer's clock and period from memory, as events. Returns `None` if the memory does not
/// show both.
pub fn read_timer(memory: &impl Memory, timer: u64, now: Now) -> Option<Vec<EventKind>> {
    let private = memory
        .word(timer)
        .filter(|p| *p >= 4096 && p.is_multiple_of(8))?;
    let word = |i: u64| memory.word(private.checked_add(8 * i)?);
    let words: Vec<u64> = (0..TIMER_STRUCT_WORDS).map_while(word).collect();
    let clock = words.iter().find_map(|&w| read_clock(memory, w))?;
    let now = match (clock.kind, clock.simulated) {
        (_, Some(time)) => time,
        (STEADY_TIME, None) => now.steady_ns,
        _ => now.system_ns,
    };
    let mut periods = words.windows(3).filter_map(|w| period(w, now));
    let (period_ns, None) = (periods.next()?, periods.next()) else {
        return None;
    };
    let mut events = vec![EventKind::ClockKind {
        clock: clock.address,
        time: clock.kind,
    }];
    if clock.simulated.is_some() {
        events.push(EventKind::ClockOverride {
            clock: clock.address,
            active: true,
        });
    }
    events.extend([
        EventKind::TimerFound { timer },
        EventKind::TimerClock {
            timer,
            clock: clock.address,
        },
        EventKind::TimerPeriod { timer, period_ns },
    ]);
    Some(events)
}

/// Reads the clock at an address, or returns `None` if no clock is there. The struct of a clock
/// contains its kind, callbacks, the number of callbacks, a function, and data (only for ROS time).
fn read_clock(memory: &impl Memory, address: u64) -> Option<Clock> {
    if address < 4096 || !address.is_multiple_of(8) {
        return None;
    }
    let kind = (memory.word(address)? & 0xffff_ffff) as u32;
    let kind = u8::try_from(kind).ok()?;
    let callbacks = memory.word(address.checked_add(16)?)?;
    let function = memory.word(address.checked_add(24)?)?;
    let data = memory.word(address.checked_add(32)?)?;
    let is_clock = (ROS_TIME..=STEADY_TIME).contains(&kind) && callbacks < 4096 && function >= 4096;
    if !is_clock || (kind == ROS_TIME) != (data >= 4096) {
        return None;
    }
    let simulated = match kind {
        // The data are the time, and whether it is in use.
        ROS_TIME => match memory.word(data.checked_add(8)?)? & 0xff {
            0 => None,
            1 => Some(memory.word(data)?),
            _ => return None,
        },
        _ => None,
    };
    Some(Clock {
        address,
        kind,
        simulated,
    })
}

/// Returns a timer's period. `words` must be a period, the time of the last call and the time of
/// the next call, and the times must fit the period. Otherwise returns `None`.
fn period(words: &[u64], now: u64) -> Option<i64> {
    let &[period_ns, last, next] = words else {
        return None;
    };
    let is_period = (MIN_PERIOD_NS..=MAX_PERIOD_NS).contains(&period_ns);
    let holds = is_period && last > 0 && last <= now && next > last && next <= now + period_ns;
    holds.then_some(period_ns as i64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Image;
    use super::*;

    const TIMER: u64 = 5000;
    const CLOCK: u64 = 9000;
    const NOW: Now = Now {
        steady_ns: 1_010_000_000,
        system_ns: 1_011_000_000,
    };

    /// Returns memory with a timer of 20 ms on a clock of this kind. `simulated` is the flag in the
    /// clock's data. `first` is the index of the pointer to the clock.
    fn timer_memory(kind: u64, simulated: Option<u64>, first: u64) -> Image {
        let mut image = Image::new();
        image.word_at(TIMER, 8000);
        // The context lies before or behind the clock.
        image.word_at(8000 + 8 * first, CLOCK);
        image.word_at(8000 + 8 * (1 - first), 12_000);
        image.word_at(12_000, 0x5555_0000);
        for (i, word) in [0x7fff_0000_1000, 20_000_000, 1_000_000_000, 1_019_000_000]
            .into_iter()
            .enumerate()
        {
            image.word_at(8000 + 8 * (4 + i as u64), word);
        }
        image.word_at(CLOCK, kind);
        image.word_at(CLOCK + 24, 0x7fff_0000);
        if let Some(simulated) = simulated {
            image.word_at(CLOCK + 32, 10_000);
            image.word_at(10_000, 1_012_000_000);
            image.word_at(10_008, simulated);
        }
        image
    }

    fn expected_events(time: u8, simulated: bool) -> Option<Vec<EventKind>> {
        let (timer, clock) = (TIMER, CLOCK);
        let mut events = vec![EventKind::ClockKind { clock, time }];
        if simulated {
            let active = true;
            events.push(EventKind::ClockOverride { clock, active });
        }
        events.push(EventKind::TimerFound { timer });
        events.push(EventKind::TimerClock { timer, clock });
        let period_ns = 20_000_000;
        events.push(EventKind::TimerPeriod { timer, period_ns });
        Some(events)
    }

    #[test]
    fn a_timers_period_and_clock_are_read_in_any_layout() {
        for first in [0, 1] {
            assert_eq!(
                read_timer(&timer_memory(3, None, first), TIMER, NOW),
                expected_events(3, false)
            );
        }
        assert_eq!(
            read_timer(&timer_memory(1, Some(0), 0), TIMER, NOW),
            expected_events(1, false)
        );
        assert_eq!(
            read_timer(&timer_memory(1, Some(1), 0), TIMER, NOW),
            expected_events(1, true)
        );
    }

    #[test]
    fn a_timer_without_a_consistent_clock_and_period_is_not_reported() {
        // Nothing shows whether the time is simulated.
        assert_eq!(read_timer(&timer_memory(1, Some(7), 0), TIMER, NOW), None);
        assert_eq!(read_timer(&timer_memory(1, None, 0), TIMER, NOW), None);
        // The timer is due later than one period from now, or before its last call.
        let mut image = timer_memory(3, None, 0);
        image.word_at(8000 + 8 * 7, 1_031_000_000);
        assert_eq!(read_timer(&image, TIMER, NOW), None);
        let mut image = timer_memory(3, None, 0);
        image.word_at(8000 + 8 * 7, 900_000_000);
        assert_eq!(read_timer(&image, TIMER, NOW), None);
        // An address may look like a period.
        let mut image = timer_memory(3, None, 0);
        image.word_at(8000 + 8 * 4, 0x5555_1000);
        assert_eq!(read_timer(&image, TIMER, NOW), None);
        assert_eq!(read_timer(&image, 0, NOW), None);
        assert_eq!(read_timer(&Image::new(), TIMER, NOW), None);
    }
}
