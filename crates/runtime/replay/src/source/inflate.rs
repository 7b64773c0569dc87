//! Unpacks deflated bytes into memory, within a limit.

use flate2::{Decompress, FlushDecompress, Status};

/// The number of bytes of memory that are added at once if a stream is longer than expected.
const STEP: usize = 128 << 10;
/// A packed byte becomes at most this number of bytes.
const MOST_OF_BYTE: usize = 1032;
/// The free memory in bytes behind the expected end. Without it, the last bytes of a stream are
/// unpacked slowly.
const MARGIN: usize = 512;

/// Unpacks a zlib stream and appends its bytes to `plain`. Stops once it has appended more than
/// `most` bytes. Returns true if the stream is complete. If the stream has a fault, the bytes
/// before the fault are appended.
///
/// `expected` is the number of unpacked bytes that the file states. It decides only how much memory
/// is allocated at first: at most `most` bytes, and not more than `packed` can become.
pub fn inflate(
    inflater: &mut Decompress,
    packed: &[u8],
    plain: &mut Vec<u8>,
    expected: usize,
    most: usize,
) -> bool {
    inflater.reset(true);
    let possible = packed.len().saturating_mul(MOST_OF_BYTE);
    plain.reserve(expected.min(most).min(possible) + MARGIN);
    let most = plain.len() + most;
    loop {
        let used = inflater.total_in() as usize;
        let before = plain.len();
        if before > most {
            return false;
        }
        if plain.capacity() == before {
            plain.reserve(STEP);
        }
        let rest = packed.get(used..).unwrap_or_default();
        match inflater.decompress_vec(rest, plain, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) => return true,
            // The packed bytes end before the stream does.
            Ok(_) if rest.is_empty() && plain.len() == before => return false,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_stream_is_unpacked_up_to_the_limit() {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
        packer.write_all(&vec![7; 16 << 20]).expect("in memory");
        let packed = packer.finish().expect("in memory");
        let mut inflater = Decompress::new(true);
        let mut plain = vec![1, 2];
        assert!(!inflate(&mut inflater, &packed, &mut plain, 0, 1 << 20));
        assert!((1 << 20..2 << 20).contains(&plain.len()), "{}", plain.len());
        plain.clear();
        assert!(inflate(
            &mut inflater,
            &packed,
            &mut plain,
            16 << 20,
            16 << 20
        ));
        assert_eq!(plain.len(), 16 << 20);
    }
}
