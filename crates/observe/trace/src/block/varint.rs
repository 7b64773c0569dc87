//! Encodes numbers with variable length: 7 bits per byte, lowest first.
use super::{BlockError, SHORT};

/// Maps signed numbers to unsigned ones, so that numbers near zero stay small: 0, -1, 1, -2 become
/// 0, 1, 2, 3.
#[inline]
pub(super) fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

#[inline]
pub(super) fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Removes a number from the front of `bytes` and returns it. Fails if the number is cut off or too
/// long.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> Result<u64, BlockError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(SHORT)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(BlockError::Content("a number has too many bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_decoded_to_the_encoded_values() {
        for v in [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, v);
            let mut rest = bytes.as_slice();
            assert_eq!(take(&mut rest).expect("a number"), v);
            assert!(rest.is_empty());
            assert_eq!(zigzag(unzigzag(v)), v);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }

    #[test]
    fn a_varint_without_an_end_is_refused() {
        assert!(take(&mut [0xFF; 3].as_slice()).is_err());
        assert!(take(&mut [0xFF; 11].as_slice()).is_err());
    }
}
