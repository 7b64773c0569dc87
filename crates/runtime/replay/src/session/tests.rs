//! Runs whole replays from recordings in memory to test sinks.

use super::*;
use crate::bus::offered::Offered;
use crate::bus::Speed;
use crate::chain::{Chain, Choice};
use crate::item::{SourceError, Stamp, StreamId};
use crate::sink::{Put, Refused, Sink};
use crate::sizing::{measure, Wish};
use crate::testing::{stream, Listed};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Mutex;

thread_local! {
    static COUNTED: Cell<Option<u64>> = const { Cell::new(None) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNTED.try_with(|c| c.set(c.get().map(|n| n + 1)));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _ = COUNTED.try_with(|c| c.set(c.get().map(|n| n + 1)));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Seen {
    items: Vec<(u32, Vec<u8>)>,
    at_ns: Vec<u64>,
    allocations: u64,
}

struct Catch {
    seen: Arc<Mutex<Seen>>,
    bytes: Vec<u8>,
    ends: Vec<(u32, usize, u64)>,
    busy_every: u64,
    calls: u64,
    nap_ns: u64,
    fails_at: Option<usize>,
}

impl Catch {
    fn new(busy_every: u64, nap_ns: u64) -> (Catch, Arc<Mutex<Seen>>) {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let catch = Catch {
            seen: seen.clone(),
            bytes: Vec::with_capacity(64 << 20),
            ends: Vec::with_capacity(1 << 17),
            busy_every,
            calls: 0,
            nap_ns,
            fails_at: None,
        };
        (catch, seen)
    }
}

impl Sink for Catch {
    fn name(&self) -> String {
        "catch".into()
    }

    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused> {
        self.calls += 1;
        if self.busy_every > 0 && self.calls.is_multiple_of(self.busy_every) {
            return Err(Refused::Busy);
        }
        if self.fails_at == Some(self.ends.len()) {
            return Err(Refused::Failed(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        if self.nap_ns > 0 {
            sleep_until(monotonic_ns() + self.nap_ns, 0);
        }
        // Counting starts with the first item, on the player's thread.
        COUNTED.with(|c| c.set(c.get().or(Some(0))));
        self.bytes.extend_from_slice(bytes);
        self.ends.push((stream.0, self.bytes.len(), monotonic_ns()));
        Ok(Put::Left)
    }

    fn settle(&mut self, _: u64) {
        let mut seen = self.seen.lock().unwrap();
        let mut start = 0;
        for &(stream, end, at_ns) in &self.ends {
            seen.items.push((stream, self.bytes[start..end].to_vec()));
            seen.at_ns.push(at_ns);
            start = end;
        }
    }

    fn gives_credit(&self) -> bool {
        self.busy_every > 0
    }

    fn bus(&self) -> Option<(&str, Speed)> {
        Some(("can0", SPEED))
    }
}

const SPEED: Speed = Speed {
    nominal: 500_000,
    data: 500_000,
};

struct Witness(Arc<Mutex<Seen>>);

impl Sink for Witness {
    fn name(&self) -> String {
        "witness".into()
    }
    fn put(&mut self, _: StreamId, _: &[u8]) -> Result<Put, Refused> {
        let counted = COUNTED.with(Cell::get).unwrap_or(u64::MAX);
        self.0.lock().unwrap().allocations = counted;
        Ok(Put::Left)
    }
}

fn settings(pace: Pace) -> Settings {
    Settings {
        buffer_bytes: crate::LEAST_BYTES,
        largest_bytes: None,
        watched: None,
        pace,
        priority: None,
        cpu: None,
        spin_ns: 0,
        clock_ns: None,
        delay_ns: 0,
        is_seekable: false,
    }
}

fn outputs(sinks: Vec<Box<dyn Sink>>, routes: Vec<usize>) -> Outputs {
    Outputs {
        sinks,
        routes,
        clock: None,
    }
}

fn play(source: Listed, outputs: Outputs, settings: &Settings) -> Played {
    let control = Arc::new(Control::default());
    let session = Session::start(Box::new(source), outputs, settings, control).unwrap();
    session.finish().unwrap()
}

fn many(count: u32, distance_ns: i64) -> (Listed, Vec<(u32, Vec<u8>)>) {
    let mut source = Listed::new(vec![stream("/a"), stream("/b")]);
    let mut items = Vec::new();
    for n in 0..count {
        let length = match n % 50 {
            0 => 60_000,
            _ => n as usize % 90,
        };
        let bytes: Vec<u8> = (0..length).map(|i| (i as u32 + n) as u8).collect();
        source.push(i64::from(n) * distance_ns, n % 2, &bytes);
        items.push((n % 2, bytes));
    }
    (source, items)
}

#[test]
fn a_slow_consumer_gets_all_items_in_order_without_allocations() {
    let (mut source, expected) = many(3000, 1000);
    let (catch, seen) = Catch::new(3, 20_000);
    let last = 3000 * 1000;
    source.push(last, 2, b"");
    source.streams_mut().push(stream("/end"));
    let sinks: Vec<Box<dyn Sink>> = vec![Box::new(catch), Box::new(Witness(seen.clone()))];
    let played = play(
        source,
        outputs(sinks, vec![0, 0, 1]),
        &settings(Pace::Recorded(1.0)),
    );
    let seen = seen.lock().unwrap();
    assert!(
        seen.items == expected,
        "the items should arrive unchanged and in order"
    );
    assert_eq!(seen.allocations, 0, "allocations of the player's thread");
    let items = played.items;
    assert_eq!((items.read, items.played, items.lost), (3001, 3001, 0));
    assert!(
        items.retries >= 1000 && played.machine.loader_stalls > 0,
        "{items:?}"
    );
    // Each item takes longer than its period, so the last one is late by the sum. The figures must
    // show it.
    let late = played.figures.lateness_ns.extent;
    assert!(late.max >= 3000 * 19_000, "{late:?}");
    assert!(played.failed.is_none() && !played.stopped);
}

#[test]
fn at_every_rate_no_item_leaves_before_it_is_due() {
    for rate in [1.0, 4.0] {
        let (source, expected) = many(200, 400_000);
        let (catch, seen) = Catch::new(0, 0);
        let played = play(
            source,
            outputs(vec![Box::new(catch)], vec![0, 0]),
            &settings(Pace::Recorded(rate)),
        );
        let seen = seen.lock().unwrap();
        assert!(seen.items == expected);
        let first = seen.at_ns[0];
        // The first item leaves after it is due. Later ones may therefore seem early by its
        // lateness.
        let first_late = played.figures.lateness_ns.extent.max;
        for (n, at_ns) in seen.at_ns.iter().enumerate() {
            let due = first + (n as f64 * 400_000.0 / rate) as u64;
            assert!(at_ns + first_late >= due, "item {n} at rate {rate}");
        }
        let wall = (199.0 * 400_000.0 / rate) as u64;
        assert!(played.machine.wall_ns >= wall);
    }
}

#[test]
fn the_time_that_sending_takes_does_not_add_up() {
    let (period_ns, nap_ns, count) = (2_000_000, 1_000_000, 200);
    let mut source = Listed::new(vec![stream("/a")]);
    for n in 0..count {
        source.push(n * period_ns, 0, b"");
    }
    let (catch, seen) = Catch::new(0, nap_ns);
    let sinks: Vec<Box<dyn Sink>> = vec![Box::new(catch)];
    play(
        source,
        outputs(sinks, vec![0]),
        &settings(Pace::Recorded(1.0)),
    );
    let seen = seen.lock().unwrap();
    let drifts = (0..count).map(|n| {
        let since_first = seen.at_ns[n as usize] - seen.at_ns[0];
        since_first as i64 - n * period_ns
    });
    // A player that waits for each period anew is late by all naps before. The machine may delay
    // some of the last items, but not all of them.
    let least = drifts.skip(100).min().unwrap();
    let naps_ns = 100 * nap_ns as i64;
    assert!(least < naps_ns / 2, "{least} ns");
}

#[test]
fn items_before_a_source_error_are_played() {
    let (mut source, expected) = many(100, 1000);
    source.breaks = Some("it broke".into());
    let (catch, seen) = Catch::new(0, 0);
    let played = play(
        source,
        outputs(vec![Box::new(catch)], vec![0, 0]),
        &settings(Pace::Recorded(1.0)),
    );
    assert!(seen.lock().unwrap().items == expected);
    assert_eq!(played.failed.as_deref(), Some("listed: it broke"));
    assert_eq!(played.items.played, 100);
}

#[test]
fn hostile_times_streams_and_lengths_cause_no_panic() {
    let mut source = Listed::new(vec![stream("/a")]);
    source.push(0, 0, b"first");
    source.push(i64::MIN, 0, b"long ago");
    source.push(-1, 77, b"no such stream");
    source.push(1, 0, b"last");
    source.push(2, 0, &vec![0; crate::LEAST_BYTES]);
    let (catch, seen) = Catch::new(0, 0);
    let played = play(
        source,
        outputs(vec![Box::new(catch)], vec![0]),
        &settings(Pace::Recorded(1.0)),
    );
    let texts: Vec<_> = seen
        .lock()
        .unwrap()
        .items
        .iter()
        .map(|i| i.1.clone())
        .collect();
    assert_eq!(texts, [&b"first"[..], b"long ago", b"last"]);
    let failed = played.failed.unwrap();
    assert!(failed.contains("--buffer"), "{failed}");
    // The player waits for an item of the far future, and the wait can be ended.
    let mut source = Listed::new(vec![stream("/a")]);
    source.push(i64::MIN, 0, b"first");
    source.push(i64::MAX, 0, b"never");
    let (catch, _) = Catch::new(0, 0);
    let control = Arc::new(Control::default());
    let outputs = outputs(vec![Box::new(catch)], vec![0]);
    let session = Session::start(
        Box::new(source),
        outputs,
        &settings(Pace::Recorded(1.0)),
        control.clone(),
    );
    let session = session.unwrap();
    while control.state().played == 0 {
        std::thread::yield_now();
    }
    control.stop();
    let played = session.finish().unwrap();
    assert!(played.stopped);
    assert_eq!(
        (
            played.items.played,
            played.items.not_played,
            played.items.lost
        ),
        (1, 1, 0)
    );
}

#[test]
fn the_load_of_a_bus_is_measured_before_and_while_playing() {
    let frames = || {
        let mut source = Listed::new(vec![stream("can0")]);
        for n in 0..200 {
            // 53 bits at 500 kbit/s: 106 us of each ms, and half of that at half the speed.
            source.push(n * 1_000_000, 0, &[0; 16]);
        }
        source
    };
    let (catch, _) = Catch::new(0, 0);
    let mut source = frames();
    let mut meters = [Meter::new("can0", SPEED)];
    let mut offered = Offered::new(&mut source, &mut meters, &[Some(0)], 0.5);
    while offered.next(&mut Vec::new()).unwrap().is_some() {}
    let planned = meters[0].figures();
    assert_eq!((planned.frames, planned.busy_ns), (200, 200 * 106_000));
    assert_eq!(planned.peak_load, 50.0 * 106_000.0 / 1e8);
    let played = play(
        frames(),
        outputs(vec![Box::new(catch)], vec![0]),
        &settings(Pace::Recorded(1.0)),
    );
    let bus = &played.buses[0];
    assert_eq!((bus.frames, bus.busy_ns), (200, 200 * 106_000));
    assert!(
        bus.load.is_some_and(|load| load > 0.0 && load < 0.11),
        "{bus:?}"
    );
}

#[test]
fn a_sink_that_fails_ends_the_replay_and_is_named_in_the_error() {
    let (source, _) = many(1000, 0);
    let (mut catch, seen) = Catch::new(0, 0);
    catch.fails_at = Some(10);
    let played = play(
        source,
        outputs(vec![Box::new(catch)], vec![0, 0]),
        &settings(Pace::Recorded(1.0)),
    );
    assert_eq!(seen.lock().unwrap().items.len(), 10);
    assert!(played.failed.unwrap().starts_with("catch: "));
    assert_eq!(played.items.played, 10);
    assert_eq!(
        played.items.played + played.items.not_played,
        played.items.read
    );
}

#[test]
fn a_paused_replay_plays_one_item_per_step() {
    let (source, expected) = many(50, 1000);
    let (catch, seen) = Catch::new(0, 0);
    let control = Arc::new(Control::default());
    control.pause();
    let outputs = outputs(vec![Box::new(catch)], vec![0, 0]);
    let session = Session::start(
        Box::new(source),
        outputs,
        &settings(Pace::Recorded(1.0)),
        control.clone(),
    );
    let session = session.unwrap();
    for n in 1..=3 {
        control.step();
        while control.state().played < n {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(control.state().played, n, "one at a time");
    }
    control.go_on();
    let played = session.finish().unwrap();
    assert!(seen.lock().unwrap().items == expected);
    assert_eq!(played.items.played, 50);
}

fn numbered(count: u32, distance_ns: i64) -> Box<dyn Source> {
    let open = move || {
        let mut source = Listed::new(vec![stream("/a")]);
        for n in 0..count {
            source.push(i64::from(n) * distance_ns, 0, &n.to_le_bytes());
        }
        Ok(Box::new(source) as Box<dyn Source>)
    };
    Box::new(Chain::new(Box::new(open), Choice::default()).unwrap())
}

fn numbers(seen: &Mutex<Seen>) -> Vec<u32> {
    let seen = seen.lock().unwrap();
    let number = |bytes: &Vec<u8>| u32::from_le_bytes(*bytes.first_chunk().unwrap());
    seen.items.iter().map(|(_, bytes)| number(bytes)).collect()
}

fn until(control: &Control, holds: impl Fn(&crate::control::State) -> bool) {
    while !holds(&control.state()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_replay_can_seek_back_and_forward_in_a_recording_of_any_size() {
    // The first recording fits into the buffer, so the loader has ended. The second does not.
    for count in [1000, 100_000u32] {
        let (catch, seen) = Catch::new(0, 0);
        let control = Arc::new(Control::default());
        control.pause();
        let mut settings = settings(Pace::Recorded(1.0));
        settings.is_seekable = true;
        let sinks = outputs(vec![Box::new(catch)], vec![0]);
        assert!(!control.seek(0), "the replay has not begun");
        let second = 1_000_000_000;
        let session = Session::start(numbered(count, second), sinks, &settings, control.clone());
        let session = session.unwrap();
        let seek = |to: i64| {
            assert!(control.seek(to));
            until(&control, |state| !state.seeks);
            assert_eq!(control.state().position_ns, to);
        };
        let step = |played| {
            control.step();
            until(&control, |state| state.played == played);
        };
        step(1);
        seek(i64::from(count / 2) * second - 1);
        step(2);
        seek(0);
        step(3);
        step(4);
        // Of requests that follow each other, the last one counts.
        assert!(control.seek(7) && control.seek(5 * second));
        until(&control, |state| !state.seeks);
        step(5);
        seek(i64::from(count - 2) * second);
        control.go_on();
        until(&control, |state| state.played == 6);
        assert!(control.set_rate(1e6) && !control.set_rate(0.0));
        let played = session.finish().unwrap();
        let last = [count / 2, 0, 1, 5, count - 2, count - 1];
        assert_eq!(numbers(&seen), [&[0][..], &last].concat());
        let items = played.items;
        assert_eq!((items.played, items.lost, items.not_played), (7, 0, 0));
        assert_eq!(items.read, items.played + items.skipped);
        assert!(!control.seek(0), "the replay has ended");
        assert!(played.failed.is_none() && !played.stopped);
    }
}

#[test]
fn a_source_that_fails_while_it_seeks_ends_the_replay() {
    let (source, _) = many(10, 1_000_000_000);
    let (catch, _) = Catch::new(0, 0);
    let control = Arc::new(Control::default());
    let mut settings = settings(Pace::Recorded(1.0));
    settings.is_seekable = true;
    let sinks = outputs(vec![Box::new(catch)], vec![0, 0]);
    let session = Session::start(Box::new(source), sinks, &settings, control.clone()).unwrap();
    until(&control, |state| state.played > 0);
    assert!(control.seek(0));
    let played = session.finish().unwrap();
    assert!(played.failed.unwrap().contains("only be read forward"));
}

#[test]
fn a_new_playback_rate_applies_from_the_current_position_on() {
    let (catch, seen) = Catch::new(0, 0);
    let control = Arc::new(Control::default());
    let sinks = outputs(vec![Box::new(catch)], vec![0]);
    let mut settings = settings(Pace::Recorded(1.0));
    settings.delay_ns = 2_000_000;
    let begin_ns = monotonic_ns();
    // Without the change, the last item would leave after eleven days.
    let source = numbered(1000, 1_000_000_000_000);
    let session = Session::start(source, sinks, &settings, control.clone()).unwrap();
    until(&control, |state| state.played == 1);
    assert_eq!(control.state().rate, Some(1.0));
    assert!(control.set_rate(1e6));
    until(&control, |state| state.rate == Some(1e6));
    let now_ns = monotonic_ns();
    let recorded = |at_ns| control.recorded_ns(at_ns).unwrap();
    let passed = recorded(now_ns + 1000) - recorded(now_ns);
    assert!((passed - 1_000_000_000).abs() < 1000, "{passed}");
    session.finish().unwrap();
    assert_eq!(numbers(&seen), (0..1000).collect::<Vec<_>>());
    let first_ns = seen.lock().unwrap().at_ns[0];
    assert!(first_ns >= begin_ns + 2_000_000, "the delay");
}

#[test]
fn only_a_consumer_that_gives_credit_can_pace_a_replay() {
    let (source, expected) = many(300, 1_000_000_000);
    let (catch, seen) = Catch::new(2, 0);
    let played = play(
        source,
        outputs(vec![Box::new(catch)], vec![0, 0]),
        &settings(Pace::Consumed),
    );
    assert!(
        seen.lock().unwrap().items == expected,
        "the replay should not wait for five minutes"
    );
    assert!(played.items.retries >= 299);
    let (source, _) = many(1, 0);
    let (deaf, _) = Catch::new(0, 0);
    let refused = Session::start(
        Box::new(source),
        outputs(vec![Box::new(deaf)], vec![0, 0]),
        &settings(Pace::Consumed),
        Arc::default(),
    );
    assert!(matches!(refused, Err(ReplayError::NoCredit(_))));
}

struct Sluggish {
    inner: Listed,
    given: u32,
    from: u32,
    nap_ns: u64,
}

impl Source for Sluggish {
    fn streams(&self) -> &[Stream] {
        self.inner.streams()
    }
    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        self.given += 1;
        if self.given > self.from {
            sleep_until(monotonic_ns() + self.nap_ns, 0);
        }
        self.inner.next(payload)
    }
    fn damage(&self) -> &[String] {
        &[]
    }
}

fn steady() -> Listed {
    let mut source = Listed::new(vec![stream("/a")]);
    for n in 0..3000 {
        source.push(n * 1_000_000, 0, &[7; 4000]);
    }
    source
}

fn sized(from: u32, nap_ns: u64) -> (Sizing, Played) {
    let curves = measure(&mut steady(), &mut |_| {});
    let wish = Wish {
        rate: 4.0,
        stall_ns: 200_000_000,
        memory_bytes: 64 << 20,
        by_hand: false,
    };
    let sizing = curves.sizing(&wish);
    let half_ns = sizing.stall_ns.unwrap() / 2;
    let mut settings = settings(Pace::Recorded(wish.rate));
    settings.buffer_bytes = sizing.buffer_bytes as usize;
    settings.largest_bytes = Some(sizing.largest_bytes as usize);
    settings.watched = sizing.watched.map(|curve| (curve, half_ns));
    let (catch, seen) = Catch::new(0, 0);
    let source = Sluggish {
        inner: steady(),
        given: 0,
        from,
        nap_ns,
    };
    let control = Arc::new(Control::default());
    let sinks = outputs(vec![Box::new(catch)], vec![0]);
    let session = Session::start(Box::new(source), sinks, &settings, control).unwrap();
    let played = session.finish().unwrap();
    assert_eq!(
        seen.lock().unwrap().items.len(),
        3000,
        "all items should be played, late or not"
    );
    (sizing, played)
}

#[test]
fn a_slow_loader_causes_a_warning_before_the_buffer_runs_empty() {
    let (sizing, played) = sized(u32::MAX, 0);
    assert!(!sizing.holds_all, "{sizing:?}");
    assert!(sizing.buffer_bytes < 8 << 20, "{sizing:?}");
    // This is half of the reserve of 200 ms. The test fails on a machine that keeps the loader from
    // its CPU for that long.
    assert_eq!(played.supply, Supply::default(), "{sizing:?}");
    // The loader has a third of the pace of playback.
    let (_, played) = sized(1000, 750_000);
    let supply = played.supply;
    let (warned, starved) = (supply.warned_after_ns, supply.starved_after_ns);
    let (warned, starved) = warned.zip(starved).expect("both happen");
    assert!(warned < starved, "{supply:?}");
    assert!(supply.behind_ns > 100_000_000, "{supply:?}");
    assert!(played.items.starved > 0 && played.items.lost == 0);
}

#[test]
fn a_buffer_that_is_too_small_is_detected_before_playing() {
    let curves = measure(&mut steady(), &mut |_| {});
    let by_hand = |memory_bytes, rate| {
        curves.sizing(&Wish {
            rate,
            stall_ns: 100_000_000,
            memory_bytes,
            by_hand: true,
        })
    };
    // 1000 items/s of 4 kB: 100 ms are 0.4 MB. No loader keeps up with a million times that pace,
    // and 12 MB hold everything.
    let enough = by_hand(4 << 20, 1.0);
    assert_eq!(enough.stall_ns, Some(100_000_000), "{enough:?}");
    let fast = by_hand(4 << 20, 1e6);
    assert_eq!((fast.stall_ns, fast.least_bytes), (None, None), "{fast:?}");
    let all = by_hand(40 << 20, 1e6);
    assert!(
        all.holds_all && all.stall_ns == Some(100_000_000),
        "{all:?}"
    );
    let less = by_hand(1 << 20, 10.0);
    assert!(less.stall_ns < Some(100_000_000), "{less:?}");
    let wanted = less.wanted_bytes.unwrap();
    assert!(wanted > 4 << 20, "{less:?}");
    // The size that the sizing asks for is enough, and not more than enough.
    assert_eq!(by_hand(wanted, 10.0).stall_ns, Some(100_000_000));
    assert!(by_hand(wanted - 1, 10.0).stall_ns < Some(100_000_000));
}
