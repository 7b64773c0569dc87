//! The bytes that a chunk over TCP needs on an Ethernet besides its content.

/// The size of the header of each frame.
pub const HEAD_BYTES: usize = 24;
/// Ethernet's header, check sum, preamble and gap.
const ETHERNET: usize = 14 + 4 + 8 + 12;
/// Headers of IPv6 (longer than IPv4's) and of TCP with time stamps.
const IP_AND_TCP: usize = 40 + 20 + 12;
/// Length and tag of a sealed record, and its largest content.
const RECORD: (usize, usize) = (2 + 16, 65535 - 16);

/// Returns the most bytes that a chunk needs on the wire besides its content, for
/// [`Port::overhead_bytes`](crate::bound::Port::overhead_bytes): the frame's header, seals, and the
/// headers of its segments. A chunk need not begin at the start of a segment, so one segment more
/// is counted.
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
    fn the_headers_of_all_layers_count() {
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
