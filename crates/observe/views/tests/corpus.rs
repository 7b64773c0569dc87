//! Replays the fuzzer's corpus of model files, without a fuzzer.
#[path = "../../../../fuzz/checks_model.rs"]
mod checks;

#[test]
fn reports_and_exports_of_fuzzed_models_do_not_panic() {
    let dir = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fuzz/corpus/model_json"
    );
    let mut accepted = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::model_json(&data);
        checks::model_json(&data[..data.len() / 2]);
        accepted += usize::from(onbeat_document::file::read(&data).is_ok());
    }
    assert!(accepted > 0, "no model in {dir}");
}
