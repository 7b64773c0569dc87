//! Guarantees of the readers of traces, for any bytes. The fuzz targets and the test that replays
//! their corpus share this file.
use onbeat_trace::block::{BlockHeader, Decoder, Encoder};
use onbeat_trace::{reader, text};

/// Reads any bytes as a segment file. Checks that the reader counts the events that it returns, and
/// does not skip more bytes than the file has.
pub fn segment(data: &[u8]) {
    let mut events = 0;
    let stats = reader::read_bytes(data, |_| events += 1);
    assert_eq!(events, stats.events);
    assert!(stats.skipped_bytes <= data.len() as u64);
}

/// Reads any bytes as the body of a block with a valid header. Checks that decoded events can be
/// encoded again.
pub fn block(data: &[u8]) {
    let Some((count, body)) = data.split_first_chunk::<2>() else {
        return;
    };
    let header = BlockHeader {
        body_len: body.len() as u32,
        body_crc: crc32fast::hash(body),
        events: u32::from(u16::from_le_bytes(*count)),
        sequence: 0,
        first_ns: 1 << 40,
        last_ns: 1 << 41,
    };
    let mut events = Vec::new();
    if Decoder::new().decode(&header, body, &mut events).is_err() {
        assert!(events.is_empty());
        return;
    }
    assert_eq!(events.len(), usize::from(u16::from_le_bytes(*count)));
    let mut bytes = Vec::new();
    Encoder::new(1).encode(&events, 0, &mut bytes);
    let mut again = Vec::new();
    let stats = reader::read_bytes(&[&[0; 44], bytes.as_slice()].concat(), |e| again.push(e));
    assert_eq!((stats.blocks, stats.damaged_blocks), (1, 0));
    assert_eq!(events, again);
}

/// Reads any bytes as a manifest. Checks that an accepted manifest can be written, and is accepted
/// again.
pub fn manifest(data: &[u8]) {
    if let Ok(manifest) = reader::parse_manifest(data) {
        let text = serde_json::to_vec(&manifest).expect("a manifest can be written");
        assert_eq!(reader::parse_manifest(&text), Ok(manifest));
    }
}

/// Parses any text as events. Checks that parsed events can be printed and parsed again, and that
/// an error is one line.
pub fn events_text(data: &[u8]) {
    let Ok(input) = std::str::from_utf8(data) else {
        return;
    };
    match text::parse(input) {
        Ok(events) => {
            let printed: Vec<String> = events.iter().map(text::print).collect();
            assert_eq!(text::parse(&printed.join("\n")), Ok(events));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}
