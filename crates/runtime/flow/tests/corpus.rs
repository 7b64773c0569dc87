//! Replays the fuzzer's corpus of programs for channels, without the fuzzer.
#[path = "../../../../fuzz/checks_channel.rs"]
mod checks;

#[test]
fn every_channel_program_of_the_corpus_passes_its_checks() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/channel");
    let mut programs = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::channel(&data);
        checks::channel(&data[..data.len() / 2]);
        programs += 1;
    }
    assert!(programs > 0, "no program in {dir}");
}
