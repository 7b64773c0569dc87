//! See `checks_redact.rs`.
#![no_main]
#[path = "../checks_redact.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::policy(data));
