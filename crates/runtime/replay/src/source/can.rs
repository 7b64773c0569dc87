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
pub fn classic(id: u32, data: &[u8], length: u8, raw_length: u8, payload: &mut Vec<u8>) {
    let mut frame = [0; 16];
    frame[..4].copy_from_slice(&id.to_ne_bytes());
    (frame[4], frame[7]) = (length, raw_length);
    let there = data.len().min(DATA);
    frame[8..8 + there].copy_from_slice(&data[..there]);
    payload.clear();
    payload.extend_from_slice(&frame);
}

/// Clears `payload` and fills it with a `struct canfd_frame`. `data` has at most [`FD_DATA`] bytes.
/// The frame's length is the next valid length of CAN FD.
pub fn fd(id: u32, flags: u8, data: &[u8], payload: &mut Vec<u8>) {
    let data = &data[..data.len().min(FD_DATA)];
    let length = FD_LENGTHS
        .into_iter()
        .find(|&length| usize::from(length) >= data.len());
    let mut frame = [0; 72];
    frame[..4].copy_from_slice(&id.to_ne_bytes());
    (frame[4], frame[5]) = (length.unwrap_or(64), flags);
    frame[8..8 + data.len()].copy_from_slice(data);
    payload.clear();
    payload.extend_from_slice(&frame);
}

pub const FD_LENGTHS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64];
