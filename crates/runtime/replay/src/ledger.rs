//! Records the lateness, sizes and distances of all outputs over time. Its memory is allocated
//! before the first item.

use crate::item::Stamp;
use hdrhistogram::Histogram;
use serde::Serialize;

const MOST_NS: u64 = 3_600_000_000_000;
const SLOTS: usize = 512;
const SLOT_NS: u64 = 10_000_000;

/// The number of values in a series of measurements, and the smallest, mean and largest value. The
/// last three are 0 if the series is empty.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Extent {
    pub count: u64,
    pub min: u64,
    pub mean: f64,
    pub max: u64,
    #[serde(skip)]
    sum: u128,
}

impl Extent {
    pub(crate) fn add(&mut self, value: u64) {
        self.min = match self.count {
            0 => value,
            _ => self.min.min(value),
        };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        self.mean = self.sum as f64 / self.count as f64;
    }
}

/// The distribution of how late items left, in ns after they were due. Percentiles are exact to one
/// per cent of their value. A percentile is `None` if there are too few items for it. The extent is
/// exact.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Lateness {
    pub p50: Option<u64>,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub p9999: Option<u64>,
    pub extent: Extent,
}

/// The figures of one stream of a replay: counts of items, sizes, cycles and lateness.
#[allow(missing_docs)]
#[derive(Debug, Clone, Default, Serialize)]
pub struct StreamFigures {
    /// The name under which the stream was played.
    pub name: String,
    /// The name of the sink that played the stream, for example `udp:10.0.0.2:7400`.
    pub sink: String,
    pub read: u64,
    pub played: u64,
    /// The number of items that the sink cannot play, such as packets without a UDP payload.
    pub unsuitable: u64,
    /// The number of items that were read but not played, because the replay ended before they were
    /// due.
    pub not_played: u64,
    /// The number of items that were read but skipped, because the user sought another recorded
    /// time.
    pub skipped: u64,
    /// The size of items in bytes (Table I of Konheiser et al., see docs/papers.md).
    pub bytes: Extent,
    /// The time between two items as recorded, in ns (cycle time in Table I of Konheiser et al.,
    /// see docs/papers.md).
    pub recorded_cycle_ns: Extent,
    /// The time between two items as played, in ns.
    pub played_cycle_ns: Extent,
    /// The time in ns from the instant at which an item was due to its departure. Its mean is the
    /// delay in Table III of Konheiser et al. (docs/papers.md).
    pub lateness_ns: Lateness,
    /// The largest minus the smallest lateness of the stream's items, in ns. This is the jitter in
    /// Table III of Konheiser et al. (docs/papers.md).
    pub jitter_ns: u64,
}

/// The items that left within one interval of time, called a slot.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Slot {
    pub items: u64,
    /// The sum of the lateness of the slot's items, in ns.
    pub sum_ns: u64,
    /// The largest lateness of the slot's items, in ns.
    pub max_ns: u64,
    /// The lowest fill level of the buffer within the slot, in thousandths.
    pub least_fill: u16,
    /// The highest fill level of the buffer within the slot, in thousandths.
    pub most_fill: u16,
}

impl Slot {
    fn add(&mut self, late_ns: u64, fill: u16) {
        let only = Slot {
            items: 1,
            sum_ns: late_ns,
            max_ns: late_ns,
            least_fill: fill,
            most_fill: fill,
        };
        *self = self.with(&only);
    }

    fn with(&self, other: &Slot) -> Slot {
        if self.items == 0 || other.items == 0 {
            return if self.items == 0 { *other } else { *self };
        }
        Slot {
            items: self.items + other.items,
            sum_ns: self.sum_ns.saturating_add(other.sum_ns),
            max_ns: self.max_ns.max(other.max_ns),
            least_fill: self.least_fill.min(other.least_fill),
            most_fill: self.most_fill.max(other.most_fill),
        }
    }
}

/// The lateness of items over time, in a fixed number of slots. The slots become wider as the
/// replay continues.
#[derive(Debug)]
struct OverTime {
    slots: Vec<Slot>,
    width_ns: u64,
}

impl OverTime {
    /// Adds an item that left. Real-time safe: during a replay, the call goes through all slots at
    /// most 64 times, once each time that the slots become twice as wide.
    fn add(&mut self, since_ns: u64, late_ns: u64, fill: u16) {
        while since_ns / self.width_ns >= SLOTS as u64 {
            for n in 0..SLOTS / 2 {
                self.slots[n] = self.slots[2 * n].with(&self.slots[2 * n + 1]);
            }
            self.slots[SLOTS / 2..].fill(Slot::default());
            self.width_ns = self.width_ns.saturating_mul(2);
        }
        self.slots[(since_ns / self.width_ns) as usize].add(late_ns, fill);
    }
}

/// The performance of the loader, from the first item of the replay on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Supply {
    /// The time at which the loader first was later than its service curve by more than the limit
    /// in `Settings::watched`, in ns since the first item. `None` if the loader never was, or if
    /// the curve is unknown.
    pub warned_after_ns: Option<u64>,
    /// The loader's delay against its service curve at `warned_after_ns`, in ns.
    pub behind_ns: u64,
    /// The time at which the buffer first lacked an item that was due, in ns since the first item.
    /// `None` if the buffer never lacked one.
    pub starved_after_ns: Option<u64>,
}

struct Row {
    figures: StreamFigures,
    lateness: Histogram<u64>,
    last: Option<(i64, u64)>,
    kept: u64,
}

pub(crate) struct Ledger {
    rows: Vec<Row>,
    all: Histogram<u64>,
    extent: Extent,
    over_time: OverTime,
}

pub(crate) struct Output {
    pub(crate) stamp: Stamp,
    pub(crate) bytes: usize,
    pub(crate) due_ns: u64,
    pub(crate) left_ns: u64,
    pub(crate) since_ns: u64,
    pub(crate) fill: u16,
}

pub(crate) fn histogram() -> Histogram<u64> {
    // These bounds are always valid: at least 1, at least twice the lower bound, and two digits.
    Histogram::new_with_bounds(1, MOST_NS, 2).expect("valid bounds")
}

impl Ledger {
    pub(crate) fn new(streams: impl Iterator<Item = (String, String)>) -> Ledger {
        let row = |(name, sink)| Row {
            figures: StreamFigures {
                name,
                sink,
                ..StreamFigures::default()
            },
            lateness: histogram(),
            last: None,
            kept: 0,
        };
        Ledger {
            rows: streams.map(row).collect(),
            all: histogram(),
            extent: Extent::default(),
            over_time: OverTime {
                slots: vec![Slot::default(); SLOTS],
                width_ns: SLOT_NS,
            },
        }
    }

    /// Records an item that left. Returns its lateness in ns. Real-time safe.
    pub(crate) fn played(&mut self, output: &Output) -> u64 {
        let late_ns = output.left_ns.saturating_sub(output.due_ns);
        self.all.saturating_record(late_ns);
        self.extent.add(late_ns);
        self.over_time.add(output.since_ns, late_ns, output.fill);
        let Some(row) = self.rows.get_mut(output.stamp.stream.0 as usize) else {
            return late_ns;
        };
        row.lateness.saturating_record(late_ns);
        let f = &mut row.figures;
        f.played += 1;
        f.lateness_ns.extent.add(late_ns);
        f.bytes.add(output.bytes as u64);
        if let Some((recorded, left)) = row.last {
            let cycle = output.stamp.time_ns.saturating_sub(recorded).max(0);
            f.recorded_cycle_ns.add(cycle as u64);
            f.played_cycle_ns.add(output.left_ns.saturating_sub(left));
        }
        row.last = Some((output.stamp.time_ns, output.left_ns));
        late_ns
    }

    pub(crate) fn unsuitable(&mut self, stamp: Stamp) {
        if let Some(row) = self.rows.get_mut(stamp.stream.0 as usize) {
            row.figures.unsuitable += 1;
        }
    }

    /// Counts an item that was skipped because the user sought another recorded time. Real-time
    /// safe.
    pub(crate) fn skipped(&mut self, stamp: Stamp) {
        if let Some(row) = self.rows.get_mut(stamp.stream.0 as usize) {
            row.figures.skipped += 1;
        }
    }

    /// Leaves the next time between two items out of the figures, because the item before this call
    /// and the item after it come from different places of the recording. Real-time safe.
    pub(crate) fn interrupt(&mut self) {
        self.rows.iter_mut().for_each(|row| row.last = None);
    }

    /// Counts a fragment of a datagram. The sink sends the fragment later, together with the
    /// datagram's last fragment. Real-time safe.
    pub(crate) fn kept(&mut self, stamp: Stamp) {
        if let Some(row) = self.rows.get_mut(stamp.stream.0 as usize) {
            row.kept += 1;
        }
    }

    /// Counts the fragments of a datagram that waited for the last one, and have now left with it.
    /// `parts` includes the last fragment. Real-time safe.
    pub(crate) fn joined(&mut self, stamp: Stamp, parts: u32) {
        if let Some(row) = self.rows.get_mut(stamp.stream.0 as usize) {
            let before = u64::from(parts.saturating_sub(1)).min(row.kept);
            row.kept -= before;
            row.figures.played += before;
        }
    }

    pub(crate) fn close(self, read: &[u64]) -> Figures {
        let rows = self
            .rows
            .into_iter()
            .zip(read.iter().chain(std::iter::repeat(&0)));
        let streams = rows.map(|(row, &read)| {
            let mut f = row.figures;
            f.read = read;
            f.unsuitable += row.kept;
            f.not_played = read.saturating_sub(f.played + f.unsuitable + f.skipped);
            f.lateness_ns = lateness(&row.lateness, f.lateness_ns.extent);
            f.jitter_ns = f.lateness_ns.extent.max - f.lateness_ns.extent.min;
            f
        });
        let used = self.over_time.slots.iter().rposition(|s| s.items > 0);
        let mut slots = self.over_time.slots;
        slots.truncate(used.map_or(0, |last| last + 1));
        Figures {
            lateness_ns: lateness(&self.all, self.extent),
            streams: streams.collect(),
            over_time: slots,
            slot_ns: self.over_time.width_ns,
        }
    }
}

pub(crate) fn lateness(histogram: &Histogram<u64>, extent: Extent) -> Lateness {
    let at = |share: f64| {
        // The percentile of fewer values would be the largest value.
        let tells = extent.count as f64 * (1.0 - share) >= 1.0 - 1e-9;
        // The upper end of the histogram's class: never below the true value, and never above the
        // largest one seen.
        tells.then(|| {
            histogram
                .value_at_quantile(share)
                .clamp(extent.min, extent.max)
        })
    };
    Lateness {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        extent,
    }
}

/// The figures of a replay: its lateness, its streams, and the lateness and fill level over time.
#[allow(missing_docs)]
#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    pub lateness_ns: Lateness,
    pub streams: Vec<StreamFigures>,
    /// The lateness and the fill level over time, in slots without gaps. The first slot begins when
    /// the first item was due.
    pub over_time: Vec<Slot>,
    pub slot_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::StreamId;

    fn output(n: u64, late_ns: u64) -> Output {
        Output {
            stamp: Stamp {
                time_ns: 1000 * n as i64,
                stream: StreamId(0),
            },
            bytes: 10 + n as usize % 2,
            due_ns: 5000 + 1000 * n,
            left_ns: 5000 + 1000 * n + late_ns,
            since_ns: 1000 * n,
            fill: n as u16,
        }
    }

    #[test]
    fn fragments_count_as_played_when_their_datagram_leaves() {
        let mut ledger = Ledger::new([("/a".into(), "udp".into())].into_iter());
        let last = output(3, 1);
        (0..4).for_each(|_| ledger.kept(last.stamp));
        ledger.joined(last.stamp, 3);
        ledger.played(&last);
        // Two fragments of another datagram are still waiting for the rest.
        let figures = ledger.close(&[5]);
        let stream = &figures.streams[0];
        assert_eq!(
            (stream.played, stream.unsuitable, stream.not_played),
            (3, 2, 0)
        );
    }

    #[test]
    fn the_ledger_reports_the_lateness_of_outputs() {
        let mut ledger = Ledger::new([("/a".into(), "udp".into())].into_iter());
        for n in 0..1000 {
            assert_eq!(ledger.played(&output(n, n + 1)), n + 1);
        }
        ledger.unsuitable(output(0, 0).stamp);
        let figures = ledger.close(&[1003]);
        let stream = &figures.streams[0];
        let counts = (
            stream.read,
            stream.played,
            stream.unsuitable,
            stream.not_played,
        );
        assert_eq!(counts, (1003, 1000, 1, 2));
        let close_to = |found: Option<u64>, exact: u64| {
            let found = found.expect("enough items");
            assert!(
                found >= exact && found <= exact + exact / 50,
                "{found} {exact}"
            );
        };
        for lateness in [figures.lateness_ns, stream.lateness_ns] {
            close_to(lateness.p50, 500);
            close_to(lateness.p99, 990);
            close_to(lateness.p999, 999);
            assert_eq!(lateness.p9999, None, "1000 items do not tell");
            assert_eq!((lateness.extent.min, lateness.extent.max), (1, 1000));
            assert_eq!(lateness.extent.mean, 500.5);
        }
        assert_eq!(stream.jitter_ns, 999);
        let cycle = stream.recorded_cycle_ns;
        assert_eq!((cycle.count, cycle.min, cycle.max), (999, 1000, 1000));
        assert_eq!(stream.played_cycle_ns.mean, 1001.0);
        assert_eq!(
            (stream.bytes.min, stream.bytes.mean, stream.bytes.max),
            (10, 10.5, 11)
        );
    }

    #[test]
    fn a_bounded_number_of_intervals_covers_a_replay_of_any_length() {
        let mut ledger = Ledger::new([("/a".into(), "udp".into())].into_iter());
        for n in 0..10_000u64 {
            let mut output = output(n, 7);
            output.since_ns = n * SLOT_NS / 2;
            output.due_ns = 0;
            output.left_ns = n;
            ledger.played(&output);
        }
        let figures = ledger.close(&[]);
        assert_eq!(figures.slot_ns, 16 * SLOT_NS);
        let items: u64 = figures.over_time.iter().map(|s| s.items).sum();
        assert_eq!(items, 10_000);
        assert_eq!(figures.over_time[0].items, 32);
        assert_eq!(
            (figures.over_time[1].max_ns, figures.over_time[1].sum_ns),
            (63, 1520)
        );
        assert_eq!(
            (
                figures.over_time[1].least_fill,
                figures.over_time[1].most_fill
            ),
            (32, 63)
        );
    }
}
