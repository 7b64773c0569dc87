//! See `checks_trace.rs`.
#![no_main]
#[allow(dead_code)]
#[path = "../checks_trace.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::manifest(data));
