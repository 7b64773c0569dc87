//! Guarantees of a link's readers of network bytes. The fuzz targets and the test that replays
//! their corpus share this file.
use onbeat_link::interface::Sizes;
use onbeat_link::tcp::fuzzing;

/// Reads any bytes as the frames from a peer that has the key. Checks that this end of the link
/// receives no more messages than it has credits.
pub fn frames(data: &[u8]) {
    let sizes = Sizes {
        credits: 2,
        message_bytes: 64,
        value_bytes: 32,
    };
    assert!(fuzzing::frames(data, sizes, 16) <= 2);
}

/// Reads any bytes as the handshake of a stranger. Checks that nobody passes the handshake without
/// the key.
pub fn handshake(data: &[u8]) {
    assert!(
        !fuzzing::handshake(data, [7; 32]),
        "the handshake accepted an end that does not have the key"
    );
    assert!(
        fuzzing::hello(data),
        "a hello message changes when it is read and written again"
    );
}

/// Reads any bytes as the records that the ends of a link exchange: records of RDMA, and the offers
/// with which `Auto` chooses a backend. Checks that each valid record is written as the same bytes
/// again.
pub fn records(data: &[u8]) {
    assert!(
        onbeat_link::fuzzing::records(data),
        "a record of a link changes when it is read and written again"
    );
}

/// Checks that any content of another process's status page can be read without a panic.
pub fn status(data: &[u8]) {
    use onbeat_link::status::parse;
    assert!(parse(data).is_none_or(|_| data.len() == 4096));
    // A valid head makes the parser read the bytes after it.
    let mut page = vec![0; 4096];
    let length = data.len().min(4080);
    page[16..16 + length].copy_from_slice(&data[..length]);
    page[..8].copy_from_slice(b"onbeatLS");
    page[8] = 2;
    let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    let (backend, state) = (word(16), word(32));
    let status = parse(&page);
    assert_eq!(status.is_some(), backend < 3 && state < 4);
    if let Some(status) = status {
        assert!(status.name.chars().count() <= 254 && status.peer.chars().count() <= 254);
        assert!(status.steps.worst.len() <= 16 && status.steps.recent.len() <= 256);
        assert!(status.qos.is_none_or(|qos| qos.named().count() == 10));
    }
}
