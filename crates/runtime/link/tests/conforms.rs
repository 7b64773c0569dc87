//! Runs flow's conformance suite in shared memory. Each side has its own mapping.

#[path = "../../flow/tests/conformance/mod.rs"]
mod conformance;

use onbeat_link::Machine;
use std::sync::atomic::{AtomicU64, Ordering};

fn machine() -> Machine {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Machine::new(&format!("conforms-{}-{number}", std::process::id()))
}

conformance::conforms!(machine());
