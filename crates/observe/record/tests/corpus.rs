//! Replays the fuzzer's corpus, without a fuzzer.
#[path = "../../../../fuzz/checks_record.rs"]
mod checks;

#[test]
fn libraries() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/elf");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::elf(&data);
        checks::elf(&data[..data.len() / 2]);
        checks::elf(&data[data.len() / 3..]);
        count += 1;
    }
    assert!(count > 0, "{dir} is empty");
}
