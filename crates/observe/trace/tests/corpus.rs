//! Runs the fuzz targets' checks on their stored corpus, without a fuzzer.
#[path = "../../../../fuzz/checks_trace.rs"]
mod checks;

fn replay(target: &str, check: fn(&[u8])) {
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
fn segments_of_the_fuzz_corpus_are_read_without_a_panic() {
    replay("segment", checks::segment);
}

#[test]
fn blocks_of_the_fuzz_corpus_are_decoded_without_a_panic() {
    replay("block", checks::block);
}

#[test]
fn manifests_of_the_fuzz_corpus_are_parsed_without_a_panic() {
    replay("manifest", checks::manifest);
}

#[test]
fn event_texts_of_the_fuzz_corpus_are_parsed_without_a_panic() {
    replay("text", checks::events_text);
}
