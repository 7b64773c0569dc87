//! Unpacks deflated bytes into memory, within a limit.

use flate2::{Decompress, FlushDecompress, Status};

/// Appends the bytes of a zlib stream to `plain`, at most `most` bytes. Returns true if the stream is whole.
/// The bytes before a fault were appended.
pub fn inflate(inflater: &mut Decompress, packed: &[u8], plain: &mut Vec<u8>, most: usize) -> bool {
    const STEP: usize = 128 << 10;
    inflater.reset(true);
    let most = plain.len() + most;
    loop {
        let used = inflater.total_in() as usize;
        let before = plain.len();
        if before >= most {
            return false;
        }
        plain.reserve(STEP);
        let rest = packed.get(used..).unwrap_or_default();
        match inflater.decompress_vec(rest, plain, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return true,
            // The packed bytes end before the stream does.
            Ok(_) if rest.is_empty() && plain.len() == before => return false,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
