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
fn whole_torn_and_changed_candump_inputs_cause_no_panic() {
    replay("candump", checks::candump);
}

#[test]
fn whole_torn_and_changed_asc_inputs_cause_no_panic() {
    replay("asc", checks::asc);
}

#[test]
fn whole_torn_and_changed_blf_inputs_cause_no_panic() {
    replay("blf", checks::blf);
}

#[test]
fn whole_torn_and_changed_mdf_inputs_cause_no_panic() {
    replay("mdf", checks::mdf);
}

#[test]
fn whole_torn_and_changed_dbc_inputs_cause_no_panic() {
    replay("dbc", checks::dbc);
}

#[test]
fn whole_torn_and_changed_trc_inputs_cause_no_panic() {
    replay("trc", checks::trc);
}

#[test]
fn whole_torn_and_changed_ros1_inputs_cause_no_panic() {
    replay("ros1", checks::ros1);
}

#[test]
fn whole_torn_and_changed_mcap_inputs_cause_no_panic() {
    replay("mcap", checks::mcap);
}

#[test]
fn whole_torn_and_changed_pcap_inputs_cause_no_panic() {
    replay("pcap", checks::pcap);
}

#[test]
fn whole_torn_and_changed_recording_inputs_cause_no_panic() {
    replay("recording", checks::recording);
}

#[test]
fn whole_torn_and_changed_remote_inputs_cause_no_panic() {
    replay("remote", checks::remote);
}

#[test]
fn whole_torn_and_changed_service_event_inputs_cause_no_panic() {
    replay("service_event", checks::service_event);
}
