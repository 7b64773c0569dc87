//! See `checks_model.rs`.
#![no_main]
#[path = "../checks_model.rs"]
mod checks;
libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::model_json(data));
