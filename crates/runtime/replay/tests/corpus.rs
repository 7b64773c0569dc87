//! Replays the fuzzer's corpus of recordings without a fuzzer: whole, torn at every tenth, and with
//! changed bytes.
#[path = "../../../../fuzz/checks_replay.rs"]
mod checks;

fn replay(target: &str, check: fn(&[u8]) -> u64) {
    let dir = format!(
        "{}/../../../fuzz/corpus/{target}",
        env!("CARGO_MANIFEST_DIR")
    );
    for entry in std::fs::read_dir(&dir).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let mut data = std::fs::read(&path).expect("read");
        assert!(check(&data) > 0, "nothing in {}", path.display());
        for tenth in 0..10 {
            check(&data[..data.len() * tenth / 10]);
        }
        let step = (data.len() / 200).max(1);
        for at in (0..data.len()).step_by(step) {
            data[at] ^= 0xff;
            check(&data);
            data[at] ^= 0xff;
        }
    }
}

#[test]
fn candump() {
    replay("candump", checks::candump);
}

#[test]
fn mcap() {
    replay("mcap", checks::mcap);
}

#[test]
fn pcap() {
    replay("pcap", checks::pcap);
}

#[test]
fn recording() {
    replay("recording", checks::recording);
}

#[test]
fn remote() {
    replay("remote", checks::remote);
}
