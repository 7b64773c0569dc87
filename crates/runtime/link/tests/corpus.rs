//! Runs the fuzzers' checks on their corpus of network bytes, without the fuzzer.
#[path = "../../../../fuzz/checks_link.rs"]
mod checks;

fn replay(corpus: &str, check: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/");
    let folder = format!("{folder}{corpus}");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        check(&data);
        check(&data[..data.len() / 2]);
        inputs += 1;
    }
    assert!(inputs > 0, "nothing in {folder}");
}

#[test]
fn frames_of_the_corpus_cause_no_panic() {
    replay("link_frames", checks::frames);
}

#[test]
fn handshakes_of_the_corpus_cause_no_panic() {
    replay("link_handshake", checks::handshake);
}

#[test]
fn records_of_the_corpus_cause_no_panic() {
    replay("link_records", checks::records);
}

#[test]
fn pages_of_the_corpus_cause_no_panic() {
    replay("link_status", checks::status);
}
