//! Compares one topic: holds the messages that may still find a partner, and judges those that
//! cannot.

use super::fields::{self, Digest};
use super::figures::{Alone, FieldTally, PairedBy, Shifts};
use super::layout::Layout;
use super::pairing::{self, Distances, Mark, Stamps, MOST};
use super::tolerance::Rule;
use std::collections::hash_map::DefaultHasher;
use std::collections::VecDeque;
use std::hash::Hasher;

struct Held {
    mark: Mark,
    payload: Vec<u8>,
    is_readable: bool,
}

pub(super) struct Reading {
    /// The layout of the topic's messages. If it is `None`, the type's definition is unknown or
    /// cannot be used, and onbeat compares bytes.
    pub layout: Option<Layout>,
    pub rules: Vec<Rule>,
}

impl Reading {
    fn digest(&self, payload: &[u8]) -> Option<Digest> {
        fields::digest(self.layout.as_ref()?, &self.rules, payload)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Expected,
    Observed,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub begin_ns: i64,
    /// The recorded time at which the compared part of the recordings begins. This part ends at
    /// `until_ns`. Messages outside of it may be paired, but do not count as missing or additional.
    pub from_ns: i64,
    pub until_ns: i64,
    pub within_ns: u64,
}

pub(super) struct Topic {
    pub reading: Reading,
    expected: VecDeque<Held>,
    observed: VecDeque<Held>,
    stamps: Stamps,
    distances: Distances,
    latest_ns: [Option<i64>; 2],
    pub tally: Tally,
}

pub(super) struct Tally {
    pub expected: u64,
    pub observed: u64,
    pub paired: u64,
    pub paired_by: PairedBy,
    pub missing: Alone,
    pub additional: Alone,
    pub different: u64,
    /// The number of pairs in which a message does not match its type's definition.
    pub unreadable: u64,
    pub fields: FieldTally,
    pub shifts: Shifts,
    /// The shortest time in ns within which matching messages were searched. Set only if the memory
    /// was too small for the whole search time.
    pub searched_ns: Option<u64>,
}

impl Topic {
    pub fn new(reading: Reading) -> Topic {
        Topic {
            reading,
            expected: VecDeque::new(),
            observed: VecDeque::new(),
            stamps: Stamps::default(),
            distances: Distances::default(),
            latest_ns: [None; 2],
            tally: Tally {
                expected: 0,
                observed: 0,
                paired: 0,
                paired_by: PairedBy::default(),
                missing: Alone::default(),
                additional: Alone::default(),
                different: 0,
                unreadable: 0,
                fields: FieldTally::default(),
                shifts: Shifts::new(),
                searched_ns: None,
            },
        }
    }

    fn side(&mut self, side: Side) -> &mut VecDeque<Held> {
        match side {
            Side::Expected => &mut self.expected,
            Side::Observed => &mut self.observed,
        }
    }

    /// Adds the next message of the recorded or of the observed side. Returns the number of bytes
    /// of memory that the message needs.
    pub fn add(&mut self, side: Side, time_ns: i64, payload: &[u8]) -> usize {
        let latest = &mut self.latest_ns[usize::from(side == Side::Observed)];
        if let Some(before_ns) = latest.replace(time_ns) {
            self.distances.add(time_ns.abs_diff(before_ns));
        }
        let digest = self.reading.digest(payload);
        let held = Held {
            mark: Mark {
                time_ns,
                digest: digest.unwrap_or_else(|| {
                    let mut hasher = DefaultHasher::new();
                    hasher.write(payload);
                    Digest {
                        stamp_ns: None,
                        hash: hasher.finish(),
                    }
                }),
            },
            payload: payload.to_vec(),
            is_readable: digest.is_some(),
        };
        self.side(side).push_back(held);
        payload.len()
    }

    pub fn bytes(&self) -> usize {
        let held = self.expected.iter().chain(&self.observed);
        held.map(|held| held.payload.len()).sum()
    }

    pub fn is_full(&self) -> bool {
        self.expected.len() >= MOST || self.observed.len() >= MOST
    }

    pub fn earliest_ns(&self) -> Option<i64> {
        let first = |held: &VecDeque<Held>| held.front().map(|h| h.mark.time_ns);
        first(&self.expected)
            .into_iter()
            .chain(first(&self.observed))
            .min()
    }

    /// Judges at least half of the stored messages early to free memory, although matching messages
    /// may still come. `now_ns` is the recorded time up to which both sides were read.
    pub fn make_room(&mut self, now_ns: i64, times: &Times) {
        let mut all: Vec<i64> = self
            .expected
            .iter()
            .chain(&self.observed)
            .map(|h| h.mark.time_ns)
            .collect();
        all.sort_unstable();
        let Some(&cut_ns) = all.get(all.len() / 2) else {
            return;
        };
        let searched_ns = now_ns.abs_diff(cut_ns);
        if searched_ns < times.within_ns {
            let before = self.tally.searched_ns.unwrap_or(u64::MAX);
            self.tally.searched_ns = Some(searched_ns.min(before));
        }
        self.settle(cut_ns, times);
    }

    pub fn settle(&mut self, cut_ns: i64, times: &Times) {
        let marks = |held: &VecDeque<Held>| -> Vec<Mark> { held.iter().map(|h| h.mark).collect() };
        let (expected, observed) = (marks(&self.expected), marks(&self.observed));
        self.stamps.add(&expected, &observed);
        let by_stamp = self.stamps.identify();
        let pairs = match by_stamp {
            true => pairing::by_stamp(&expected, &observed, times.within_ns),
            false => {
                let distance_ns = self.distances.usual_ns().unwrap_or(times.within_ns);
                pairing::by_order(&expected, &observed, distance_ns, times.within_ns)
            }
        };
        let mut is_judged = vec![false; observed.len()];
        let judged = expected
            .iter()
            .take_while(|mark| mark.time_ns <= cut_ns)
            .count();
        for (n, pair) in pairs.iter().enumerate().take(judged) {
            match pair {
                Some(o) => {
                    self.pair([n, *o], by_stamp, times);
                    is_judged[*o] = true;
                }
                None => self.alone(Side::Expected, expected[n].time_ns, times),
            }
        }
        let mut has_partner = vec![false; observed.len()];
        pairs.iter().flatten().for_each(|&o| has_partner[o] = true);
        // In an alignment by order, no later message can have a partner before the last judged one.
        let last = match by_stamp {
            true => 0,
            false => is_judged.iter().rposition(|&judged| judged).unwrap_or(0),
        };
        for (o, mark) in observed.iter().enumerate() {
            if !has_partner[o] && (mark.time_ns <= cut_ns || o < last) {
                self.alone(Side::Observed, mark.time_ns, times);
                is_judged[o] = true;
            }
        }
        self.expected.drain(..judged);
        let mut judged = is_judged.into_iter();
        self.observed.retain(|_| !judged.next().unwrap_or(false));
    }

    fn alone(&mut self, side: Side, time_ns: i64, times: &Times) {
        if time_ns < times.from_ns || time_ns > times.until_ns {
            return;
        }
        let at_ns = time_ns.saturating_sub(times.begin_ns);
        match side {
            Side::Expected => {
                self.tally.expected += 1;
                self.tally.missing.add(at_ns);
            }
            Side::Observed => {
                self.tally.observed += 1;
                self.tally.additional.add(at_ns);
            }
        }
    }

    fn pair(&mut self, [e, o]: [usize; 2], by_stamp: bool, times: &Times) {
        let (expected, observed) = (&self.expected[e], &self.observed[o]);
        let tally = &mut self.tally;
        let number = tally.paired;
        tally.expected += 1;
        tally.observed += 1;
        tally.paired += 1;
        match by_stamp {
            true => tally.paired_by.stamp += 1,
            false => tally.paired_by.order += 1,
        }
        let time_ns = expected.mark.time_ns;
        let at_ns = time_ns.saturating_sub(times.begin_ns);
        tally
            .shifts
            .add(observed.mark.time_ns.saturating_sub(time_ns));
        if expected.mark.digest == observed.mark.digest
            && expected.is_readable == observed.is_readable
        {
            return;
        }
        let layout = self.reading.layout.as_ref();
        let layout = layout.filter(|_| expected.is_readable && observed.is_readable);
        let Some(layout) = layout else {
            tally.unreadable += 1;
            tally.different += 1;
            return;
        };
        let mut any = false;
        let mut found = |difference: fields::Difference| {
            any = true;
            tally.fields.add(number, at_ns, layout, &difference);
        };
        let rules = &self.reading.rules;
        // Both messages were read before, so they have this layout.
        let _ = fields::differences(
            layout,
            rules,
            &expected.payload,
            &observed.payload,
            &mut found,
        );
        if any {
            self.tally.different += 1;
        }
    }
}
