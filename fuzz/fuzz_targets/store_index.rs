//! See `checks_store.rs`.
#![no_main]
#[path = "../checks_store.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::index(data));
