//! Runs the fuzz target's check on its stored corpus, without a fuzzer.
#[path = "../../../../fuzz/checks_ctf.rs"]
mod checks;

#[test]
fn complete_truncated_and_changed_lttng_sessions_cause_no_panic() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/ctf");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        checks::ctf(&data);
        for part in 1..8 {
            checks::ctf(&data[..data.len() * part / 8]);
        }
        for at in (2..data.len()).step_by(37) {
            let mut changed = data.clone();
            changed[at] ^= 1 << (at % 8);
            checks::ctf(&changed);
        }
        count += 1;
    }
    assert!(count > 0, "{dir} is empty");
}
