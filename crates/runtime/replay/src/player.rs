//! The player thread: plays every item at its time. It runs with a real-time priority. After its
//! start it allocates nothing, takes no lock and writes no log (for sinks see
//! [`crate::sink::Sink`]).

use crate::buffer::{Gather, Pieces, END, SOUGHT};
use crate::bus::Meter;
use crate::control::Control;
use crate::curves::{LoaderMonitor, Seen};
use crate::item::{Stamp, StreamId};
use crate::ledger::{Ledger, Output, Supply};
use crate::pace::{sleep_until, Axis};
use crate::sink::{Put, Refused, Sink};
use onbeat_flow::Consumer;
use onbeat_time::clock::monotonic_ns;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};

const HOP_NS: u64 = 20_000_000;
const RETRY_NS: u64 = 50_000;

/// The rule by which the player decides when items leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Items leave at their recorded times. The value is the speed: 2.0 plays twice as fast as
    /// recorded.
    Recorded(f64),
    /// The consumer sets the pace: an item leaves as soon as the consumer has consumed enough
    /// earlier items.
    Consumed,
}

pub(crate) struct Ticker {
    pub(crate) sink: usize,
    pub(crate) stream: StreamId,
    pub(crate) period_ns: u64,
    /// The time at which the next clock message is due, on CLOCK_MONOTONIC. If the consumer sets
    /// the pace, it is a recorded time.
    pub(crate) next: Option<i128>,
}

#[derive(Debug)]
pub(crate) enum Ended {
    Stopped,
    /// The user has sought another recorded time. The current item is skipped.
    Sought,
    Failed(usize, io::Error),
}

pub(crate) struct Player<'c> {
    pub(crate) consumer: Consumer,
    pub(crate) gather: Gather,
    pub(crate) stage: Stage<'c>,
}

pub(crate) struct Stage<'c> {
    pub(crate) sinks: Vec<Box<dyn Sink>>,
    pub(crate) routes: Vec<usize>,
    pub(crate) pace: Pace,
    pub(crate) spin_ns: u64,
    pub(crate) delay_ns: u64,
    pub(crate) ticker: Option<Ticker>,
    pub(crate) control: &'c Control,
    pub(crate) ledger: Ledger,
    /// For each sink, the meter of its CAN bus. `None` if the sink does not play on a CAN bus with
    /// a known bitrate.
    pub(crate) buses: Vec<Option<Meter>>,
    pub(crate) blocks: u64,
    pub(crate) timeline: Timeline,
    pub(crate) monitor: Option<LoaderMonitor>,
}

#[derive(Default)]
pub(crate) struct Timeline {
    axis: Option<Axis>,
    began_ns: Option<u64>,
    starving: bool,
    pub(crate) retries: u64,
    /// The number of the latest seek request that the player has carried out.
    sought: u32,
    fill: u16,
    pub(crate) supply: Supply,
}

impl Player<'_> {
    pub(crate) fn run(self) -> (Rest, Result<(), Ended>) {
        let Player {
            consumer,
            mut gather,
            mut stage,
        } = self;
        let mut result = Ok(());
        let mut is_over = false;
        while result.is_ok() && !is_over {
            let block = match consumer.receive() {
                Some(block) => block,
                None if consumer.is_over() => break,
                None => {
                    stage.starve();
                    // An error cannot occur here, because no block is borrowed.
                    match consumer.receive_until(Some(monotonic_ns() + HOP_NS)) {
                        Ok(Some(block)) => block,
                        _ if stage.control.is_stopping() => {
                            result = Err(Ended::Stopped);
                            break;
                        }
                        _ => continue,
                    }
                }
            };
            stage.filled(&consumer);
            for piece in Pieces::of(&block) {
                let Some(item) = gather.add(&piece) else {
                    continue;
                };
                match piece.stamp.stream {
                    END => is_over = stage.control.close(stage.timeline.sought),
                    SOUGHT => result = stage.sought(piece.stamp.time_ns, item),
                    _ => result = stage.play(piece.stamp, item),
                }
                if result.is_err() || is_over {
                    break;
                }
            }
        }
        let Stage {
            sinks,
            ledger,
            buses,
            timeline,
            ..
        } = stage;
        let rest = Rest {
            sinks,
            ledger,
            buses,
            timeline,
        };
        (rest, result)
    }
}

pub(crate) struct Rest {
    pub(crate) sinks: Vec<Box<dyn Sink>>,
    pub(crate) ledger: Ledger,
    pub(crate) buses: Vec<Option<Meter>>,
    pub(crate) timeline: Timeline,
}

impl Stage<'_> {
    fn seeks(&self) -> bool {
        self.control.sought(self.timeline.sought).is_some()
    }

    /// Waits until the loader has filled the buffer from the sought time on, then continues at the
    /// recorded time `to_ns`. `number` is the number of the seek request.
    fn sought(&mut self, to_ns: i64, number: &[u8]) -> Result<(), Ended> {
        let number = number.first_chunk().map_or(0, |n| u32::from_ne_bytes(*n));
        self.timeline.sought = number;
        self.timeline.starving = false;
        // The curve and the distances do not hold across this place.
        self.monitor = None;
        self.ledger.interrupt();
        if let Some(ticker) = &mut self.ticker {
            ticker.next = None;
        }
        let control = self.control;
        while !control.loading.ready.load(Relaxed) && !self.seeks() {
            if control.is_stopping() {
                return Err(Ended::Stopped);
            }
            sleep_until(monotonic_ns() + HOP_NS / 20, 0);
        }
        if let Some(axis) = &mut self.timeline.axis {
            (axis.first_ns, axis.origin_ns) = (to_ns, monotonic_ns());
        }
        control.playing.position_ns.store(to_ns, Relaxed);
        self.show_axis();
        control.has_sought(number);
        Ok(())
    }

    fn starve(&mut self) {
        self.watch(monotonic_ns());
        self.timeline.starving |= self.timeline.axis.is_some() && !self.seeks();
        self.note_fill(0);
    }

    fn filled(&mut self, consumer: &Consumer) {
        let waiting = u64::from(consumer.waiting()) + 1;
        self.note_fill((waiting * 1000 / self.blocks.max(1)).min(1000) as u16);
    }

    fn note_fill(&mut self, fill: u16) {
        self.timeline.fill = fill;
        self.control.playing.fill.store(fill.into(), Relaxed);
    }

    /// Compares the loader with its service curve, and records the first time at which the loader
    /// was too late. Real-time safe.
    fn watch(&mut self, now_ns: u64) {
        let (Some(monitor), Some(began_ns)) = (&mut self.monitor, self.timeline.began_ns) else {
            return;
        };
        let seen = Seen {
            time_ns: now_ns,
            brought: self.control.loading.brought.load(Relaxed),
            holds: self.control.loading.holds.load(Relaxed),
        };
        let supply = &mut self.timeline.supply;
        if let (Some(behind_ns), None) = (monitor.observe(seen), supply.warned_after_ns) {
            supply.warned_after_ns = Some(now_ns.saturating_sub(began_ns));
            supply.behind_ns = behind_ns;
            self.control
                .playing
                .behind_ns
                .store(behind_ns.max(1), Relaxed);
        }
    }

    fn play(&mut self, stamp: Stamp, item: &[u8]) -> Result<(), Ended> {
        let result = match self.seeks() {
            true => Err(Ended::Sought),
            false => self.play_in_time(stamp, item),
        };
        match result {
            Err(Ended::Sought) => {
                self.ledger.skipped(stamp);
                Ok(())
            }
            result => result,
        }
    }

    fn play_in_time(&mut self, stamp: Stamp, item: &[u8]) -> Result<(), Ended> {
        let due_ns = self.wait_for(stamp.time_ns)?;
        let Some(&sink) = self.routes.get(stamp.stream.0 as usize) else {
            return Ok(());
        };
        let (put, tried_ns) = self.put(sink, stamp.stream, item)?;
        let due_ns = match self.pace {
            Pace::Recorded(_) => due_ns,
            // Without a pace, an item is due when the consumer is ready for it.
            Pace::Consumed => tried_ns,
        };
        match put {
            Put::Unsuitable => self.ledger.unsuitable(stamp),
            Put::Kept => self.ledger.kept(stamp),
            Put::Left => {
                let since_ns = self.left(stamp, item.len(), due_ns);
                if let Some(bus) = &mut self.buses[sink] {
                    bus.add(since_ns, item);
                }
            }
            Put::Joined { parts } => {
                self.ledger.joined(stamp, parts);
                self.left(stamp, item.len(), due_ns);
            }
        }
        Ok(())
    }

    /// Records an item that has just left. Returns the time at which it left, in ns since the first
    /// item was due.
    fn left(&mut self, stamp: Stamp, bytes: usize, due_ns: u64) -> u64 {
        let left_ns = monotonic_ns();
        let began_ns = self.timeline.began_ns.unwrap_or(due_ns);
        let since_ns = left_ns.saturating_sub(began_ns);
        let late_ns = self.ledger.played(&Output {
            stamp,
            bytes,
            due_ns,
            left_ns,
            since_ns,
            fill: self.timeline.fill,
        });
        let playing = &self.control.playing;
        // Only this thread writes these figures, so plain loads and stores suffice.
        playing
            .played
            .store(playing.played.load(Relaxed) + 1, Relaxed);
        if late_ns > playing.max_late_ns.load(Relaxed) {
            playing.max_late_ns.store(late_ns, Relaxed);
        }
        playing.position_ns.store(stamp.time_ns, Relaxed);
        since_ns
    }

    fn wait_for(&mut self, time_ns: i64) -> Result<u64, Ended> {
        if self.timeline.axis.is_none() {
            self.begin(time_ns);
        }
        loop {
            if self.control.is_stopping() {
                return Err(Ended::Stopped);
            }
            if self.seeks() {
                return Err(Ended::Sought);
            }
            if self.control.is_paused() && !self.pause(time_ns)? {
                continue;
            }
            let now_ns = monotonic_ns();
            self.change_rate(now_ns);
            self.watch(now_ns);
            let due_ns = self.due(time_ns, now_ns);
            let tick_ns = self.tick(time_ns, now_ns)?;
            if due_ns <= now_ns {
                self.caught_up(now_ns, due_ns);
                return Ok(due_ns);
            }
            self.timeline.starving = false;
            let until = due_ns.min(tick_ns);
            let hop = now_ns + HOP_NS;
            match until > hop + self.spin_ns {
                true => sleep_until(hop, 0),
                false => sleep_until(until, self.spin_ns),
            }
        }
    }

    fn change_rate(&mut self, now_ns: u64) {
        let (Pace::Recorded(_), Some(rate)) = (self.pace, self.control.chosen_rate()) else {
            return;
        };
        if let Some(axis) = self.timeline.axis.as_mut().filter(|axis| axis.rate != rate) {
            axis.change_rate(rate, now_ns);
            // The curve was measured for another rate.
            self.monitor = None;
            self.show_axis();
        }
    }

    fn caught_up(&mut self, now_ns: u64, due_ns: u64) {
        if self.timeline.starving && due_ns < now_ns {
            let since_ns = now_ns.saturating_sub(self.timeline.began_ns.unwrap_or(now_ns));
            self.timeline
                .supply
                .starved_after_ns
                .get_or_insert(since_ns);
            let starved = &self.control.playing.starved;
            starved.store(starved.load(Relaxed) + 1, Relaxed);
        }
    }

    fn due(&self, time_ns: i64, now_ns: u64) -> u64 {
        match (self.pace, &self.timeline.axis) {
            (Pace::Recorded(_), Some(axis)) => axis.due_ns(time_ns),
            _ => now_ns,
        }
    }

    fn begin(&mut self, time_ns: i64) {
        let begin_ns = monotonic_ns().saturating_add(self.delay_ns);
        let rate = match self.pace {
            Pace::Recorded(rate) => rate,
            Pace::Consumed => 1.0,
        };
        self.timeline.axis = Some(Axis::new(time_ns, begin_ns, rate));
        self.timeline.began_ns = Some(begin_ns);
        let playing = &self.control.playing;
        playing.first_ns.store(time_ns, Relaxed);
        playing.position_ns.store(time_ns, Relaxed);
        self.show_axis();
        playing.began.store(true, Release);
    }

    fn show_axis(&self) {
        if let Some(axis) = &self.timeline.axis {
            let is_paced = matches!(self.pace, Pace::Recorded(_));
            self.control.playing.set_axis(axis, is_paced);
        }
    }

    /// Waits while the replay is paused. If the user asks for a single step, returns `true`, and
    /// the item with the recorded time `time_ns` is due at once.
    fn pause(&mut self, time_ns: i64) -> Result<bool, Ended> {
        let since_ns = monotonic_ns();
        while self.control.is_paused() {
            if self.control.is_stopping() {
                return Err(Ended::Stopped);
            }
            if self.seeks() {
                return Err(Ended::Sought);
            }
            if self.control.take_step() {
                let now_ns = monotonic_ns();
                if let Some(axis) = &mut self.timeline.axis {
                    axis.move_to(axis.due_ns(time_ns), now_ns);
                }
                self.show_axis();
                return Ok(true);
            }
            sleep_until(monotonic_ns() + RETRY_NS * 40, 0);
        }
        if let Some(axis) = &mut self.timeline.axis {
            axis.delay(monotonic_ns() - since_ns);
        }
        self.show_axis();
        Ok(false)
    }

    /// Offers an item to the sink again and again until the sink accepts it, so that no item is
    /// dropped. Also returns the time at which the last attempt began.
    fn put(&mut self, sink: usize, stream: StreamId, item: &[u8]) -> Result<(Put, u64), Ended> {
        loop {
            let tried_ns = monotonic_ns();
            match self.sinks[sink].put(stream, item) {
                Ok(put) => return Ok((put, tried_ns)),
                Err(Refused::Failed(error)) => return Err(Ended::Failed(sink, error)),
                Err(Refused::Busy) if self.control.is_stopping() => return Err(Ended::Stopped),
                Err(Refused::Busy) if self.seeks() => return Err(Ended::Sought),
                Err(Refused::Busy) => {
                    self.timeline.retries += 1;
                    sleep_until(monotonic_ns() + RETRY_NS, 0);
                }
            }
        }
    }

    /// Publishes `/clock` if it is due. Returns the time on CLOCK_MONOTONIC at which `/clock` is
    /// due next.
    fn tick(&mut self, time_ns: i64, now_ns: u64) -> Result<u64, Ended> {
        let (Some(ticker), Some(axis)) = (&mut self.ticker, &self.timeline.axis) else {
            return Ok(u64::MAX);
        };
        let (at, recorded_ns) = match self.pace {
            Pace::Recorded(_) => (i128::from(now_ns), axis.recorded_ns(now_ns).min(time_ns)),
            Pace::Consumed => (i128::from(time_ns), time_ns),
        };
        let period = i128::from(ticker.period_ns.max(1));
        let next = ticker.next.unwrap_or(at);
        let mut due = next;
        if next <= at {
            // Messages that were missed are not published later.
            due = next + ((at - next) / period + 1) * period;
            ticker.next = Some(due);
            let (sink, stream) = (ticker.sink, ticker.stream);
            self.put(sink, stream, &clock_message(recorded_ns))?;
        }
        Ok(match self.pace {
            Pace::Recorded(_) => u64::try_from(due).unwrap_or(u64::MAX),
            Pace::Consumed => u64::MAX,
        })
    }
}

/// Serialises a `rosgraph_msgs/msg/Clock`: four bytes of encapsulation (CDR, little endian), then
/// seconds and nanoseconds.
pub(crate) fn clock_message(time_ns: i64) -> [u8; 12] {
    let (seconds, ns) = (
        time_ns.div_euclid(1_000_000_000),
        time_ns.rem_euclid(1_000_000_000),
    );
    let mut bytes = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let seconds = seconds.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    bytes[4..8].copy_from_slice(&seconds.to_le_bytes());
    bytes[8..].copy_from_slice(&(ns as u32).to_le_bytes());
    bytes
}
