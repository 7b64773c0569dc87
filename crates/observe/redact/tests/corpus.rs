//! Replays the fuzzer's corpus of policies, without a fuzzer.
#[path = "../../../../fuzz/checks_redact.rs"]
mod checks;

#[test]
fn policies_of_the_fuzz_corpus_are_read_without_a_panic() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/policy");
    let mut accepted = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::policy(&data);
        checks::policy(&data[..data.len() / 2]);
        accepted += usize::from(onbeat_redact::read(&data).is_ok());
    }
    assert!(accepted > 0, "no policy in {dir}");
}
