//! See `checks_plan.rs`.
#![no_main]
#[path = "../checks_plan.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::plan(data));
