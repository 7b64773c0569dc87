//! See `checks_check.rs`.
#![no_main]
#[path = "../checks_check.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::requirements(data));
