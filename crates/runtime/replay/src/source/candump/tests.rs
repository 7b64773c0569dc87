use super::*;
use crate::testing::{frame, frames, Item};
use std::io::Cursor;

fn items(text: &str) -> (Vec<Item>, Vec<String>) {
    frames(read("log", Cursor::new(text.as_bytes().to_vec())).expect("a log"))
}

#[test]
fn every_form_of_a_candump_frame_becomes_the_kernels_struct() {
    let log = "(1436509052.249713) vcan0 044#2A366C2BBA\n\
               (1436509052.249714) vcan1 12345678#11.22 R\n\
               (1436509052.249715001) vcan0 7FF#R8_C\n\
               (1436509052.249716) vcan0 123##1AABBCCDDEEFF00112233\r\n\
               (1436509052.249717) vcan0 20000080#0000000000000000\n\
               (1436509052.249718) vcan0 123#1122334455667788_F\n\
               (1436509052.249719) vcan0 5AA#";
    let (items, damage) = items(log);
    assert!(damage.is_empty(), "{damage:?}");
    let bytes: Vec<_> = items.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    let fd = [&[
        12, 1, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0, 0x11, 0x22, 0x33,
    ][..]]
    .concat();
    assert_eq!(
        bytes,
        [
            frame(0x44, &[5, 0, 0, 0, 0x2a, 0x36, 0x6c, 0x2b, 0xba], 16),
            frame(0x1234_5678 | 0x8000_0000, &[2, 0, 0, 0, 0x11, 0x22], 16),
            frame(0x7ff | 0x4000_0000, &[8, 0, 0, 12], 16),
            frame(0x123, &fd, 72),
            frame(0x2000_0080, &[8], 16),
            frame(
                0x123,
                &[8, 0, 0, 15, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
                16
            ),
            frame(0x5aa, &[0], 16),
        ]
    );
    assert_eq!(items[0].0, 1_436_509_052_249_713_000);
    assert_eq!(items[2].0, 1_436_509_052_249_715_001);
    assert_eq!(
        (items[0].1.as_str(), items[1].1.as_str()),
        ("vcan0", "vcan1")
    );
}

#[test]
fn frames_that_candump_printed_are_read() {
    let log = " (1436509052.249713)  vcan0  044   [5]  2A 36 6C 2B BA\n \
               (1436509052.249714)  vcan1  12345678   [2]  11 22   '.\"'\n \
               (1436509052.249715)  vcan0  7FF   [8]  remote request\n \
               (1436509052.249716)  vcan0  RX B -  123  [12]  AA BB CC DD EE FF 00 11 22 33 44 55\n \
               (1436509052.249717)  vcan0  20000080   [8]  00 00 00 00 00 00 00 00   ERRORFRAME\n \
               (2015-07-10 06:17:32.249718)  vcan0  5AA   [0]\n \
               (1436509052.249719)  vcan0  TX - E  124  [00]\n \
               (1436509052.249720)  vcan0  TX B E  125  [01]  77\n \
               (1436509052.249721)  vcan0  RX - -  126   [1]  88\n \
               (1436509052.249722)  vcan0  RX\n \
               (1436509052.249719)  vcan0  123   [3]  11 22\n  vcan0  123   [2]  11 22\n";
    let (items, damage) = items(log);
    let fd = [
        12, 1, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0, 0x11, 0x22, 0x33, 0x44, 0x55,
    ];
    let wanted = [
        frame(0x44, &[5, 0, 0, 0, 0x2a, 0x36, 0x6c, 0x2b, 0xba], 16),
        frame(0x1234_5678 | 0x8000_0000, &[2, 0, 0, 0, 0x11, 0x22], 16),
        frame(0x7ff | 0x4000_0000, &[8], 16),
        frame(0x123, &fd, 72),
        frame(0x2000_0080, &[8], 16),
        frame(0x5aa, &[0], 16),
        frame(0x124, &[0, 2], 72),
        frame(0x125, &[1, 3, 0, 0, 0x77], 72),
        frame(0x126, &[1, 0, 0, 0, 0x88], 16),
    ];
    for (i, (item, wanted)) in items.iter().zip(&wanted).enumerate() {
        let time_ns = 1_436_509_052_249_713_000 + 1000 * i as i64;
        assert_eq!((item.0, &item.2), (time_ns, wanted), "line {}", i + 1);
    }
    assert_eq!((items.len(), items[1].1.as_str()), (9, "vcan1"));
    assert_eq!(damage.len(), 3, "{damage:?}");
}

#[test]
fn times_in_a_printed_candump_log_are_instants_or_distances() {
    let log = |times: &[&str]| {
        let lines = times
            .iter()
            .map(|t| format!(" ({t})  can0  123   [1]  11\n"));
        items(&lines.collect::<String>())
            .0
            .iter()
            .map(|i| i.0 / 1000)
            .collect::<Vec<_>>()
    };
    let since_first = [
        "000.000000",
        "000.010000",
        "000.020000",
        "000.029999",
        "000.040000",
    ];
    assert_eq!(log(&since_first), [0, 10_000, 20_000, 29_999, 40_000]);
    let distances = [
        "000.000000",
        "000.010000",
        "000.009990",
        "000.010020",
        "000.009999",
    ];
    assert_eq!(log(&distances), [0, 10_000, 19_990, 30_010, 40_009]);
    let error = read("log", Cursor::new(b"  can0  123   [1]  11\n".to_vec())).err();
    let error = error.expect("no times").to_string();
    assert!(error.contains("candump -l"), "{error}");
}

#[test]
fn damaged_lines_of_a_log_are_counted_and_the_other_lines_are_read() {
    let log =
        "torn 044#2A\n(1.0) can0 044#2\n(1.1) can0 044#22\n(1.2) can0 12345#81:00:11223344#AA\n\
               (x) can0 1#2\n(1.3) can0 044#R9\n";
    let (items, damage) = items(&format!("{log}{}\n(1.4) can0 1", "x".repeat(9000)));
    assert_eq!(items.len(), 1);
    assert_eq!(
        damage,
        [
            "lines not of the form (SECONDS.FRACTION) INTERFACE ID#DATA: 3 (the first: line 1)",
            "lines without a frame of the form ID#DATA, ID##FLAGSDATA or ID#R, or ID [LENGTH] DATA: 2 (the first: line 2)",
            "CAN XL frames, which onbeat does not support: 1 (the first: line 4)",
            "lines too long for a frame: 1 (the first: line 7)",
        ]
    );
}

#[test]
fn lines_are_sorted_by_time_and_equal_times_keep_their_order() {
    let log = "(2.0) a 001#\n(1.0) b 002#\n(3.0) a 003#\n(2.0) a 004#\n(2.5) b 005#\n";
    let ids: Vec<u8> = items(log).0.iter().map(|(_, _, bytes)| bytes[0]).collect();
    assert_eq!(ids, [2, 1, 4, 5, 3]);
}
