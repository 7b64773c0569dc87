//! See `checks_ctf.rs`.
#![no_main]
#[path = "../checks_ctf.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::ctf(data);
});
