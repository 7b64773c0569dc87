//! See `checks_replay.rs`.
#![no_main]
#[path = "../checks_replay.rs"]
#[allow(dead_code)]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::service_event(data);
});
