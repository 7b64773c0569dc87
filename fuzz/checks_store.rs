//! What must hold for any bytes given as a part of a store's index: shared by the fuzz target and the test that
//! replays its corpus.

/// A part of any bytes: refused in one line, or rows that are the same once they were written again.
pub fn index(data: &[u8]) {
    match onbeat_store::decode(data) {
        Ok(mut rows) => {
            let bytes = onbeat_store::encode(&rows).expect("rows that were read");
            rows.sort();
            rows.dedup();
            assert_eq!(onbeat_store::decode(&bytes), Ok(rows));
        }
        Err(error) => {
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(!error.chars().any(char::is_control), "{error:?}");
        }
    }
}
