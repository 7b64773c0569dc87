//! See `checks_link.rs`.
#![no_main]
#[allow(dead_code)]
#[path = "../checks_link.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::status(data));
