//! Replays the fuzzer's corpus of plan files, without a fuzzer.
#[path = "../../../fuzz/checks_plan.rs"]
mod checks;

#[test]
fn plans() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/plan");
    let mut accepted = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::plan(&data);
        checks::plan(&data[..data.len() / 2]);
        accepted += usize::from(onbeat_plan::file::read(&data).is_ok());
    }
    assert!(accepted > 0, "no plan in {dir}");
}
