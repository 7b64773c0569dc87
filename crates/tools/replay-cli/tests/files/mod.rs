//! Recordings that the tests of several commands read.

use std::fs;
use std::path::Path;

/// Writes an MCAP file with `n` messages of `std_msgs/msg/Float64` on /x, 10 ms apart. Message `i`
/// has the value `value(i)`. If `value(i)` is `None`, message `i` is missing.
pub fn mcap(path: &Path, n: u64, begin_ns: u64, value: impl Fn(u64) -> Option<f64>) {
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let record =
        |kind: u8, body: &[u8]| [&[kind][..], &(body.len() as u64).to_le_bytes(), body].concat();
    let magic = b"\x89MCAP0\r\n";
    let schema = [
        &1u16.to_le_bytes()[..],
        &text("std_msgs/msg/Float64"),
        &text("ros2msg"),
        &text("float64 data\n"),
    ];
    let channel = [
        &0u16.to_le_bytes()[..],
        &1u16.to_le_bytes(),
        &text("/x"),
        &text("cdr"),
        &0u32.to_le_bytes(),
    ];
    let mut out = magic.to_vec();
    out.extend(record(1, &[text("ros2"), text("test")].concat()));
    out.extend(record(3, &schema.concat()));
    out.extend(record(4, &channel.concat()));
    for number in 0..n {
        let Some(value) = value(number) else { continue };
        let time = (begin_ns + number * 10_000_000).to_le_bytes();
        let head = [
            &0u16.to_le_bytes()[..],
            &(number as u32).to_le_bytes(),
            &time,
            &time,
        ]
        .concat();
        out.extend(record(
            5,
            &[&head[..], &[0, 1, 0, 0], &value.to_le_bytes()].concat(),
        ));
    }
    out.extend(record(15, &[0; 4]));
    out.extend(record(2, &[0; 20]));
    out.extend(magic);
    fs::write(path, out).expect("written");
}
