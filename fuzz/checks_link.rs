//! Guarantees of a link's readers of network bytes. The fuzz targets and the test that replays their
//! corpus share this file.
use onbeat_link::interface::Sizes;
use onbeat_link::tcp::fuzzing;

/// What a peer that has the key and lies can write is read without harm: no more messages than credits.
pub fn frames(data: &[u8]) {
    let sizes = Sizes {
        credits: 2,
        message_bytes: 64,
        value_bytes: 32,
    };
    assert!(fuzzing::frames(data, sizes, 16) <= 2);
}

/// Who does not have the key is nobody's peer, whatever it says.
pub fn handshake(data: &[u8]) {
    assert!(
        !fuzzing::handshake(data, [7; 32]),
        "a stranger was taken for the peer"
    );
    assert!(fuzzing::hello(data), "a hello changes when it is written");
}

/// What the ends of a link over RDMA tell each other, and what an end offers that takes the best way: whatever
/// is read is written as it came.
pub fn records(data: &[u8]) {
    assert!(
        onbeat_link::fuzzing::records(data),
        "a record changes when it is written"
    );
}
