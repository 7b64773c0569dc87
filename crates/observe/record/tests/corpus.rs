//! Runs the fuzzer's checks on its corpus, without a fuzzer.
#[path = "../../../../fuzz/checks_record.rs"]
mod checks;

fn replay(target: &str, check: impl Fn(&[u8])) {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus");
    let dir = std::path::Path::new(dir).join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        check(&data);
        check(&data[..data.len() / 2]);
        check(&data[data.len() / 3..]);
        count += 1;
    }
    assert!(count > 0, "{} is empty", dir.display());
}

#[test]
fn elf_checks_hold_for_the_fuzz_corpus() {
    replay("elf", checks::elf);
}

#[test]
fn ring_checks_hold_for_the_fuzz_corpus() {
    replay("rings", checks::rings);
}
