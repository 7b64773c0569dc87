//! The bytes that a chunk over TCP needs on an Ethernet besides its content.

/// The size of the header of each frame, in bytes.
pub const HEAD_BYTES: usize = 24;
/// The bytes that Ethernet adds to a packet: header, check sum, preamble and gap.
const ETHERNET: usize = 14 + 4 + 8 + 12;
/// The bytes of the headers of IPv6 (longer than those of IPv4) and of TCP with time stamps.
const IP_AND_TCP: usize = 40 + 20 + 12;
/// The bytes that encryption adds to a record (length and tag), and the largest content of a record
/// in bytes.
const RECORD: (usize, usize) = (2 + 16, 65535 - 16);

/// Returns the largest number of bytes that a chunk needs on the wire besides its content: for the
/// frame's header, encryption, and the headers of all segments. Adds the headers of one more
/// segment, because a chunk may begin within a segment. The result is the value of
/// [`Port::overhead_bytes`](crate::bound::Port::overhead_bytes).
pub fn overhead_bytes(chunk_bytes: usize, mtu: usize, sealed: bool) -> usize {
    let frame = chunk_bytes + HEAD_BYTES;
    let seals = if sealed {
        frame.div_ceil(RECORD.1) * RECORD.0
    } else {
        0
    };
    let segments = (frame + seals).div_ceil(mtu.saturating_sub(IP_AND_TCP).max(1)) + 1;
    HEAD_BYTES + seals + segments * (IP_AND_TCP + ETHERNET)
}

#[cfg(test)]
mod tests {
    use super::overhead_bytes;

    #[test]
    fn the_overhead_of_a_chunk_includes_the_headers_of_all_layers() {
        // One segment would do, but the chunk may lie in two: 2 x (72 + 38), and the frame's
        // header.
        assert_eq!(overhead_bytes(1000, 1500, false), 24 + 2 * 110);
        assert_eq!(overhead_bytes(1000, 1500, true), 24 + 18 + 2 * 110);
        // 65536 + 24 bytes need two records and 46 segments of 1428 bytes. One more segment is
        // counted.
        assert_eq!(overhead_bytes(65536, 1500, true), 24 + 36 + 47 * 110);
        assert!(overhead_bytes(65536, 9000, true) < overhead_bytes(65536, 1500, true));
    }
}
