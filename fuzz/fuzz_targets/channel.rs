//! See `checks_channel.rs`.
#![no_main]
#[path = "../checks_channel.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::channel(data));
