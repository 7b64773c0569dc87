//! Simulates a week in which threads and processes come and go, and checks that memory does not
//! grow.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::tests::{nodes, options, plan, run, Harness, TALKER};
use super::*;
use crate::judge::Judgement;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn add(bytes: i64) {
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CYCLES_PER_START: u64 = 10;

fn start(harness: &mut Harness<'_>, number: u32) {
    let pid = 4_300_000 + number * 100;
    let of = |text: &str| text.replace(&format!("cpu0 {TALKER}/"), &format!("cpu0 {pid}/"));
    let at = harness.now_ms;
    harness.push(&of(
        &nodes(at - 1).replace(&format!("/{TALKER} "), &format!("/{pid} "))
    ));
    for cycle in 0..CYCLES_PER_START as u32 {
        let (tid, at) = (pid + 1 + cycle, harness.now_ms);
        harness.push(&of(&run("0x1", tid, at)));
        harness.push(&of(&run("0x2", pid, at + 50)));
        harness.push(&format!("{}ms cpu0 {pid}/{tid} exit\n", at + 60));
        harness.session.application.instances.refresh();
        harness.session.live();
        harness.take_log();
        harness.now_ms += 100;
    }
    let end = harness.now_ms - 10;
    harness.push(&format!("{end}ms cpu0 {pid}/{pid} exit\n"));
}

#[test]
fn memory_does_not_grow_when_the_application_restarts_every_hour_for_a_week() {
    let (plan, options) = (plan(), options(&[]));
    let mut report = |_: &Live| ();
    let mut harness = Harness::new(&plan, &options, &mut report);
    harness.cycles(13, 0);
    let exit = harness.now_ms - 1;
    harness.push(&format!("{exit}ms cpu0 {TALKER}/{TALKER} exit\n"));
    // The limit of kept judgements is not reached here, so their memory is subtracted.
    let held = |harness: &mut Harness<'_>| {
        let judgements = harness.session.live().executions as i64;
        LIVE_BYTES.get() - 2 * judgements * size_of::<Judgement>() as i64
    };
    for number in 0..84 {
        start(&mut harness, number);
    }
    let (middle, executions) = (held(&mut harness), harness.session.live().executions);
    for number in 84..2 * 84 {
        start(&mut harness, number);
    }
    assert!(harness.session.error.is_none());
    assert!(matches!(harness.session.stage, Stage::Shaping(_)));
    let all = harness.session.live().executions;
    assert!(
        all >= executions + 84 * CYCLES_PER_START / 2,
        "{executions}, then {all}"
    );
    // The model keeps a few records of names per start, and nothing per thread.
    let each = (held(&mut harness) - middle) / 84;
    assert!(
        each < 24 << 10,
        "each start of the application adds {each} bytes of memory that are not freed"
    );
}
