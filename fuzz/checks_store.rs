//! Guarantees of the reader of a store's index, for any bytes. The fuzz target and the test that
//! replays its corpus share this file.

/// Checks a part of any bytes. It is refused in one line, or its rows stay equal when they are written
/// and read.
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
