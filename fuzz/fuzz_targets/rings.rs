//! See `checks_record.rs`.
#![no_main]
#[path = "../checks_record.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::rings(data));
