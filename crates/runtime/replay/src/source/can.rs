//! Writes CAN frames in the layout of Linux: `struct can_frame` (16 bytes) and `struct canfd_frame`
//! (72 bytes).

pub const EXTENDED: u32 = 0x8000_0000;
pub const REMOTE: u32 = 0x4000_0000;
pub const ERROR: u32 = 0x2000_0000;
pub const DATA: usize = 8;
pub const FD_DATA: usize = 64;
/// The flag of a CAN FD frame whose data was sent with a higher bit rate.
pub const BRS: u8 = 1;
/// The flag of a CAN FD frame whose sender is error passive.
pub const ESI: u8 = 2;

/// Clears `payload` and fills it with a `struct can_frame`. `data` has at most [`DATA`] bytes.
/// `length` is the length that the recorded frame states. `raw_length` is the frame's length code
/// if it is above 8, otherwise 0.
#[inline]
pub fn classic(id: u32, data: &[u8], length: u8, raw_length: u8, payload: &mut Vec<u8>) {
    let frame: &mut [u8; 16] = sized(payload);
    frame[..4].copy_from_slice(&id.to_ne_bytes());
    frame[4..8].copy_from_slice(&[length, 0, 0, raw_length]);
    frame[8..].copy_from_slice(&first_bytes(data, DATA));
}

/// Returns the `N` bytes of `payload`, which may have any value. Does not write to `payload` if it
/// has the right size, as is usual if it contains the frame before.
#[inline(always)]
fn sized<const N: usize>(payload: &mut Vec<u8>) -> &mut [u8; N] {
    if payload.len() != N {
        payload.resize(N, 0);
    }
    payload.first_chunk_mut().expect("has this size")
}

/// Returns the first `count` bytes of `data`, followed by zeros. Does not need the call of `memcpy`
/// that a copy of unknown length needs.
#[inline]
pub fn first_bytes(data: &[u8], count: usize) -> [u8; DATA] {
    let count = count.min(data.len()).min(DATA);
    let all = match data.first_chunk() {
        Some(all) => u64::from_le_bytes(*all),
        None => (0..)
            .zip(data)
            .fold(0, |all, (at, byte)| all | u64::from(*byte) << (8 * at)),
    };
    let kept = match count {
        DATA => u64::MAX,
        count => (1 << (8 * count)) - 1,
    };
    (all & kept).to_le_bytes()
}

/// Clears `payload` and fills it with a `struct canfd_frame`. `data` has at most [`FD_DATA`] bytes.
/// The frame's length is the next valid length of CAN FD.
pub fn fd(id: u32, flags: u8, data: &[u8], payload: &mut Vec<u8>) {
    let count = data.len().min(FD_DATA);
    let mut whole = [0; FD_DATA];
    whole[..count].copy_from_slice(&data[..count]);
    padded(id, flags, &whole, count, count, payload);
}

/// Clears `payload` and fills it with a `struct canfd_frame` of at least `length` bytes, at most
/// [`FD_DATA`]. Its first bytes are the first `count` bytes of `data`, the others are 0.
#[inline(always)]
pub fn padded(
    id: u32,
    flags: u8,
    data: &[u8; FD_DATA],
    count: usize,
    length: usize,
    payload: &mut Vec<u8>,
) {
    let count = count.min(length).min(FD_DATA);
    let kept = &KEPT[FD_DATA - count..][..FD_DATA];
    let frame: &mut [u8; 72] = sized(payload);
    frame[..4].copy_from_slice(&id.to_ne_bytes());
    frame[4..8].copy_from_slice(&[NEXT_LENGTHS[length.min(FD_DATA)], flags, 0, 0]);
    // A copy of a length that is not known needs a call of `memcpy`.
    for (to, (byte, kept)) in frame[8..].iter_mut().zip(data.iter().zip(kept)) {
        *to = byte & kept;
    }
}

/// Masks of bytes: 64 that keep a byte, then 64 that clear it.
const KEPT: [u8; 2 * FD_DATA] = {
    let mut kept = [0; 2 * FD_DATA];
    let mut at = 0;
    while at < FD_DATA {
        kept[at] = 0xff;
        at += 1;
    }
    kept
};

pub const FD_LENGTHS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64];

/// The next valid length of CAN FD for each number of data bytes.
const NEXT_LENGTHS: [u8; FD_DATA + 1] = {
    let mut next = [0; FD_DATA + 1];
    let (mut bytes, mut code) = (0, 0);
    while bytes <= FD_DATA {
        if bytes > FD_LENGTHS[code] as usize {
            code += 1;
        }
        next[bytes] = FD_LENGTHS[code];
        bytes += 1;
    }
    next
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_bytes_and_the_next_valid_length() {
        let data: Vec<u8> = (1..=65).collect();
        let mut payload = Vec::new();
        for count in 0..=FD_DATA {
            fd(1, BRS, &data[..count], &mut payload);
            let next = FD_LENGTHS.into_iter().find(|l| usize::from(*l) >= count);
            assert_eq!(Some(payload[4]), next);
            let rest = vec![0; FD_DATA - count];
            assert_eq!(payload[8..], [&data[..count], &rest].concat());
        }
        for count in 0..=DATA {
            let rest = vec![0; DATA - count];
            let wanted = [&data[..count], &rest].concat();
            classic(1, &data[..count], 8, 0, &mut payload);
            assert_eq!(payload[8..], wanted);
            assert_eq!(first_bytes(&data, count)[..], wanted);
            assert_eq!(first_bytes(&data[..count], DATA)[..], wanted);
        }
    }
}
