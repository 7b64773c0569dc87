//! Unpacks deflated bytes into memory, within a limit.

use flate2::{Decompress, FlushDecompress, Status};

/// Unpacks a zlib stream and appends its bytes to `plain`. Stops once it has appended more than
/// `most` bytes. Returns true if the stream is complete. If the stream has a fault, the bytes
/// before the fault are appended.
pub fn inflate(inflater: &mut Decompress, packed: &[u8], plain: &mut Vec<u8>, most: usize) -> bool {
    const STEP: usize = 128 << 10;
    inflater.reset(true);
    let most = plain.len() + most;
    loop {
        let used = inflater.total_in() as usize;
        let before = plain.len();
        if before > most {
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
        assert!(!inflate(&mut inflater, &packed, &mut plain, 1 << 20));
        assert!((1 << 20..2 << 20).contains(&plain.len()), "{}", plain.len());
        plain.clear();
        assert!(inflate(&mut inflater, &packed, &mut plain, 16 << 20));
        assert_eq!(plain.len(), 16 << 20);
    }
}
