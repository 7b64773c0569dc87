//! Guarantees of the reader of a store's index, for any bytes. The fuzz target and the test that
//! replays its corpus share this file.

/// Reads any bytes as a part of a store's index. Checks that the reader returns a one-line error,
/// or rows that are the same after they are written and read again.
pub fn index(data: &[u8]) {
    match onbeat_store::decode(data) {
        Ok(mut rows) => {
            let bytes = onbeat_store::encode(&rows).expect("rows that were read can be written");
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
