use super::*;
use crate::source::can;
use crate::testing::{frame, frames, Item};
use std::io::Cursor;

fn items(text: &str) -> (Vec<Item>, Vec<String>) {
    let bytes = text.as_bytes().to_vec();
    assert!(begins(&bytes[..bytes.len().min(4096)]), "{text}");
    frames(read("log", Cursor::new(bytes), &mut Survey::default()).expect("a log"))
}

const HEAD: &str = "date Thu Apr 20 10:44:38.250 pm 2017\nbase hex  timestamps absolute\nno internal events logged\n";
const BEGIN: i64 = 1_492_728_278_250_000_000;

#[test]
fn every_form_of_a_frame_becomes_the_kernels_struct() {
    let log = format!(
        "{HEAD}// version 9.0.0\nBegin Triggerblock Thu Apr 20 10:44:40 pm 2017\n   \
         0.000000 Start of measurement\n   \
         0.015991 CAN 1 Status:chip status error passive - TxErr: 132 RxErr: 0\n   \
         0.015991 1  Statistic: D 0 R 0 XD 0 XR 0 E 0 O 0 B 0.00%\n   \
         2.501000 1  ErrorFrame\n   \
         3.098426 2  18EBFF00x       Rx   d 8 01 A0 0F A6 60 3B D1 40  Length = 273910 BitCount = 141 ID = 418119424x\n   \
         3.1 1  123             Tx   r 4  Length = 0\n   \
         3.2 1  7f              Rx   d 2 0A ff\n   \
         4.5 CANFD   1 Rx        300  a_name  1 0 9 12 01 02 03 04 05 06 07 08 09 0A 0B 0C   102203  133 303000 e0006659 46500250 4b140250 20011736 20010205\n   \
         4.6 CANFD   1 Tx        18FEx  0 1 2 2 01 02 102203 133 200000 0 0 0 0 0\n   \
         4.65 CANFD   1 Tx        50005x  0 1 5 0 140000 73 200050 7a60 46500250 460a0250 20011736 20010205\n   \
         4.7 J1939TP FEE3p 6 0 0 - Rx d 23 A0 0F\n   \
         4.8 1  EngineData      Rx   d 1 11\n   \
         4.9 1  124             TxRq d 1 11\n   \
         5.0 1  124             Rx   d 3 11 22\nEnd TriggerBlock\n"
    );
    let (items, damage) = items(&log);
    let fd = [12, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let data = [8, 0, 0, 0, 0x01, 0xa0, 0x0f, 0xa6, 0x60, 0x3b, 0xd1, 0x40];
    let wanted = [
        (2_501_000_000, "can1", frame(can::ERROR, &[8], 16)),
        (
            3_098_426_000,
            "can2",
            frame(0x18eb_ff00 | can::EXTENDED, &data, 16),
        ),
        (3_100_000_000, "can1", frame(0x123 | can::REMOTE, &[4], 16)),
        (
            3_200_000_000,
            "can1",
            frame(0x7f, &[2, 0, 0, 0, 0x0a, 0xff], 16),
        ),
        (4_500_000_000, "can1", frame(0x300, &fd, 72)),
        // Its flags say that it is a classic frame.
        (
            4_600_000_000,
            "can1",
            frame(0x18fe | can::EXTENDED, &[2, 0, 0, 0, 1, 2], 16),
        ),
        (
            4_650_000_000,
            "can1",
            frame(0x5_0005 | can::EXTENDED | can::REMOTE, &[5], 16),
        ),
    ];
    let wanted = wanted.map(|(ns, name, bytes)| (BEGIN + ns, name.to_string(), bytes));
    assert_eq!(items, wanted);
    assert_eq!(damage.len(), 4, "{damage:?}");
}

#[test]
fn relative_times_decimal_numbers_and_german_dates_of_an_asc_log_are_read() {
    let log = "date Die Mai 27 16:09:35 2014\nbase dec timestamps relative\n\
               0.5 1 291 Rx d 2 10 255\n0.25 1 Statistic: D 0\n0.25 1 2047 Rx d 0\n\
               0.25 1 1 Rx d 16 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n";
    let (items, damage) = items(log);
    let begin = 1_401_206_975_000_000_000;
    let fd = [&[16, 0, 0, 0][..], &(0..16).collect::<Vec<u8>>()].concat();
    let wanted = [
        (
            begin + 500_000_000,
            frame(0x123, &[2, 0, 0, 0, 10, 255], 16),
        ),
        (begin + 1_000_000_000, frame(0x7ff, &[0], 16)),
        // A form that only some writers use for CAN FD.
        (begin + 1_250_000_000, frame(1, &fd, 72)),
    ];
    let found: Vec<_> = items
        .into_iter()
        .map(|(ns, _, bytes)| (ns, bytes))
        .collect();
    assert_eq!(found, wanted);
    assert!(damage.is_empty(), "{damage:?}");
}

#[test]
fn a_log_without_frames_is_refused_with_the_reason() {
    let log = format!("{HEAD}1.0 1 Name Rx d 1 11\n");
    let error = read("log", Cursor::new(log.into_bytes()), &mut Survey::default()).err();
    let error = error.expect("no frame").to_string();
    assert!(error.contains("is a name"), "{error}");
}

#[test]
fn times_of_busmaster_count_from_midnight_or_from_the_begin_of_the_log() {
    let first = |head: &str, time: &str| {
        let log = format!("{head}// version 7.1.0\n{time} 1 122 Rx d 1 E3\n");
        items(&log).0[0].0 / 1_000_000
    };
    let busmaster = "date Mon Dec 6 11:21:13 am 2021\nbase hex  no internal events logged\n";
    let begin_ms = 1_638_789_673_000;
    assert_eq!(first(busmaster, "40874.808200"), begin_ms + 1_808);
    assert_eq!(first(busmaster, "0.250000"), begin_ms + 250);
    // Vector's tools count from the begin of the measurement, which may be long before the log.
    let vector = "date Mon Dec 6 11:21:13 am 2021\nbase hex  timestamps absolute\n\
                  no internal events logged\nBegin Triggerblock Mon Dec 6 11:21:13 am 2021\n";
    assert_eq!(first(vector, "40874.808200"), begin_ms + 40_874_808);
    assert_eq!(first(vector, "594680.004900"), begin_ms + 594_680_004);
}

#[test]
fn a_wrong_time_of_busmaster_does_not_move_the_times_after_it() {
    let head = "date Mon Dec 6 11:06:39 am 2021\nbase hex  no internal events logged\n";
    let times = [
        "40000.0", "863995.0", "40001.0", "5.0", "40002.0", "40003.0",
    ];
    let lines = times.map(|time| format!("{time} 1 122 Rx d 1 E3\n"));
    let items = items(&format!("{head}{}", lines.concat())).0;
    let midnight_s = 1_638_748_800;
    let found: Vec<i64> = items
        .iter()
        .map(|item| item.0 / 1_000_000_000 - midnight_s)
        .collect();
    assert_eq!(found, [40_000, 40_001, 40_002, 40_003, 86_405, 863_995]);
}

#[test]
fn times_of_busmaster_that_pass_midnight_go_on_to_the_next_day() {
    let head = "date Mon Dec 6 11:59:58 pm 2021\nbase hex  no internal events logged\n";
    let times = [
        "86399.5", "86399.9", "0.1", "86399.95", "0.2", "3600.0", "52200.0", "52199.0", "10.0",
    ];
    let lines = times.map(|time| format!("{time} 1 122 Rx d 1 E3\n"));
    let (items, damage) = items(&format!("{head}{}", lines.concat()));
    let found: Vec<i64> = items.iter().map(|item| item.0 / 1_000_000).collect();
    // Milliseconds since the midnight before the log. A frame from before midnight may come late.
    let wanted = [
        86_399_500,
        86_399_900,
        86_399_950,
        86_400_100,
        86_400_200,
        90_000_000,
        138_599_000,
        138_600_000,
        172_810_000,
    ];
    let midnight_ms = 1_638_748_800_000;
    assert_eq!(found, wanted.map(|ms: i64| midnight_ms + ms));
    assert!(damage.is_empty(), "{damage:?}");
}
