//! Runs the fuzz target's checks on the stored parts of an index, without a fuzzer.
#[path = "../../../../fuzz/checks_store.rs"]
mod checks;

#[test]
fn damaged_index_parts_are_decoded_without_panics() {
    let dir = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fuzz/corpus/store_index"
    );
    let mut accepted = 0;
    for entry in std::fs::read_dir(dir).expect("the corpus") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("read");
        // Each part is also cut at every place, and changed in every byte.
        for at in 0..data.len() {
            checks::index(&data[..at]);
            let mut changed = data.clone();
            changed[at] ^= 0x41;
            checks::index(&changed);
        }
        checks::index(&data);
        accepted += usize::from(onbeat_store::decode(&data).is_ok());
    }
    assert!(accepted > 0, "no part in {dir}");
}
