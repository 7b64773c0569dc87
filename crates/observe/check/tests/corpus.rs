//! Replays the fuzzer's corpus of requirements files, without a fuzzer.
#[path = "../../../../fuzz/checks_check.rs"]
mod checks;

#[test]
fn fuzzed_requirements_files_do_not_panic() {
    let dir = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fuzz/corpus/requirements"
    );
    let mut accepted = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::requirements(&data);
        checks::requirements(&data[..data.len() / 2]);
        accepted += usize::from(onbeat_check::read(&data).is_ok());
    }
    assert!(accepted > 0, "no requirements in {dir}");
}
