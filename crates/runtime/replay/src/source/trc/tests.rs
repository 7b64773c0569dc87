use super::*;
use crate::source::can;
use crate::testing::{frame, frames, Item};
use std::io::Cursor;

fn items(text: &str) -> (Vec<Item>, Vec<String>) {
    let bytes = text.replace('\n', "\r\n").into_bytes();
    assert!(begins(&bytes[..bytes.len().min(4096)]), "{text}");
    frames(read("log", Cursor::new(bytes), &mut Survey::default()).expect("a log"))
}

/// The time 2021-12-18 14:28:07.062 UTC in ns since 1970, rounded as in the log's header.
const BEGIN: i64 = 1_639_837_687_062_000_960;
const HEAD_1: &str =
    "\n;$STARTTIME=44548.6028595139\n;\n;   Start time: 18.12.2021 14:28:07.062.0\n;\n";

#[test]
fn frames_that_the_recorders_host_sent_are_recognised() {
    let of = |columns: &[u8], line: &[u8]| frame::is_sent(line, columns);
    assert!(of(b"NOTILD", b"1) 1.0 Tx 0300 1 00"));
    assert!(!of(b"NOTILD", b"1) 1.0 Rx 0300 1 00"));
    assert!(of(b"NOTIdlD", b"1 1.0 DT 0300 Tx 1 00"));
    assert!(!of(b"NOTIdlD", b"1 1.0 DT 0300 Rx 1 Tx"));
}

fn data_frame() -> Vec<u8> {
    frame(0x300, &[7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0xff], 16)
}

fn error_frame() -> Vec<u8> {
    frame(can::ERROR, &[8], 16)
}

#[test]
fn the_same_frames_are_read_from_every_text_form_of_trc_version_1() {
    let form = |version: &str, between: &str, reserved: &str| {
        let rows = [
            ("1059.9", "Rx   ", "    0300", "7", "00 00 00 00 04 00 FF"),
            ("1298.945", "Tx   ", "18EFC034", "2", "01 02"),
            ("1346.8", "Warng", "FFFFFFFF", "4", "00 00 00 04  BUSLIGHT"),
            ("1349.2", "Error", "    0008", "4", "00 19 08 08"),
            ("1352.7", "Rx   ", "    0100", "3", "RTR"),
        ];
        let rows = rows
            .iter()
            .enumerate()
            .map(|(n, (time, kind, id, length, data))| {
                format!(
                    "  {})  {time} {between} {kind} {id} {reserved} {length}  {data} \n",
                    n + 1
                )
            });
        format!(
            ";$FILEVERSION={version}{HEAD_1}{}",
            rows.collect::<String>()
        )
    };
    for (text, name) in [
        (form("1.1", "", ""), "can1"),
        (form("1.2", "2", ""), "can2"),
        (form("1.3", "3", "-"), "can3"),
    ] {
        let (found, damage) = items(&text);
        let wanted = [
            (1_059_900_000, data_frame()),
            (
                1_298_945_000,
                frame(0x18ef_c034 | can::EXTENDED, &[2, 0, 0, 0, 1, 2], 16),
            ),
            (1_349_200_000, error_frame()),
            (1_352_700_000, frame(0x100 | can::REMOTE, &[3], 16)),
        ];
        let wanted = wanted.map(|(ns, bytes)| (BEGIN + ns, name.to_string(), bytes));
        assert_eq!(found, wanted);
        assert!(damage.is_empty(), "{damage:?}");
    }
}

#[test]
fn trc_version_1_0_is_recognised_by_its_lines_and_begins_at_the_time_in_its_comment() {
    let head = ";#####\n;   C:\\TraceFile.trc\n;\n;    Start time: 11.09.2002 16:00:20.682\n;\n";
    let (found, damage) = items(&format!(
        "{head}     1)      1841      0300  7  00 00 00 00 04 00 FF \n     \
         2)      1842      0008  4  ERROR 00 19 08 08 \n     \
         3)      1843  FFFFFFFF  4  00 00 00 04 -- -- -- --  BUSLIGHT \n     \
         4)      1844  00000100  3  RTR \n"
    ));
    let begin = 1_031_760_020_682_000_000;
    let wanted = [
        (1841, data_frame()),
        (1842, error_frame()),
        (1844, frame(0x100 | can::EXTENDED | can::REMOTE, &[3], 16)),
    ];
    let wanted = wanted.map(|(ms, bytes)| (begin + ms * 1_000_000, "can1".to_string(), bytes));
    assert_eq!(found, wanted);
    assert!(damage.is_empty(), "{damage:?}");
    assert!(!begins(b"; a comment\n1) no log\n"));
    assert!(!begins(b"1) 1 0300 1 00\n"));
}

#[test]
fn columns_and_can_fd_flags_of_trc_version_2_are_read() {
    let long = (0..12).map(|n| format!("{n:02x} ")).collect::<String>();
    let (found, damage) = items(&format!(
        ";$FILEVERSION=2.1{HEAD_1};$COLUMNS=N,O,T,B,I,d,R,L,D\n\
         1 1059.900 DT 1 0300 Rx -  7    00 00 00 00 04 00 FF\n\
         2 1334.416 FD 1 0500 Tx -  9    {long}\n\
         3 1334.417 FB 2 0500 Tx -  1    0A\n\
         4 1334.418 FE 2 0500 Tx -  1    0A\n\
         5 1334.419 BI 2 0500 Tx -  1    0A\n\
         6 1334.522 ER 2 - Rx -  5    04 00 02 00 00\n\
         7 1334.524 EV 1  User-defined event for bus 1\n\
         8 1334.525 EV -  User-defined event for all busses\n\
         9 1334.531 ST 1 - Rx -  4    00 00 00 08\n\
         10 1334.643 EC 1 - Rx -  2    02 02\n\
         11 1336.543 RR 1 0100 Rx -  3\n\
         12 1337 DT 1 0100 Rx - 9 01 02 03 04 05 06 07 08\n"
    ));
    let fd = |flags: u8| frame(0x500, &[1, flags, 0, 0, 10], 72);
    let wanted = [
        (1_059_900_000, "can1", data_frame()),
        (
            1_334_416_000,
            "can1",
            frame(
                0x500,
                &[12, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
                72,
            ),
        ),
        (1_334_417_000, "can2", fd(1)),
        (1_334_418_000, "can2", fd(2)),
        (1_334_419_000, "can2", fd(3)),
        (1_334_522_000, "can2", error_frame()),
        (1_336_543_000, "can1", frame(0x100 | can::REMOTE, &[3], 16)),
        (
            1_337_000_000,
            "can1",
            frame(0x100, &[8, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8], 16),
        ),
    ];
    let wanted = wanted.map(|(ns, name, bytes)| (BEGIN + ns, name.to_string(), bytes));
    assert_eq!(found, wanted);
    assert!(damage.is_empty(), "{damage:?}");

    // Version 2.0 has no bus, lengths in bytes, and blank columns behind the kind of a status.
    let (found, damage) = items(&format!(
        ";$FILEVERSION=2.0\n;$STARTTIME=x\n;   Start time: 12/18/2021 2:28:07.062.5 PM\n\
         ;$COLUMNS=N,O,T,I,d,l,D\n\
         1 1059.900 DT     0300 Rx 7  00 00 00 00 04 00 FF\n\
         2 1334.416 FD     0500 Tx 12 {long}\n\
         3 1334.522 ER          Rx    04 00 02 00 00\n\
         4 1334.531 ST          Rx    00 00 00 08\n"
    ));
    let bytes: Vec<_> = found
        .into_iter()
        .map(|(ns, _, bytes)| (ns, bytes))
        .collect();
    let begin = 1_639_837_687_062_500_000;
    let wanted = [
        (begin + 1_059_900_000, data_frame()),
        (
            begin + 1_334_416_000,
            frame(
                0x500,
                &[12, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
                72,
            ),
        ),
        (begin + 1_334_522_000, error_frame()),
    ];
    assert_eq!(bytes, wanted);
    assert!(damage.is_empty(), "{damage:?}");
}

#[test]
fn damaged_and_foreign_lines_are_skipped_and_counted() {
    let (found, damage) = items(&format!(
        ";$FILEVERSION=2.1{HEAD_1};$COLUMNS=N,O,T,B,I,d,R,L,D\n\
         1 1 DT 1 0300 Rx - 1 FF\n\
         2 2 DT 1 0300 Rx - 2 FF\n\
         3 3 DT 1 0800 Rx - 1 FF\n\
         4 4 FD 1 0300 Rx - 16 FF\n\
         5 x DT 1 0300 Rx - 1 FF\n\
         6 6 DT 1 0300\n\
         7 7 XX 1 0300 Rx - 1 FF\n\
         8 8 DT 1 18FF0000 Rx - 23 00 00\n\
         9 9 DT 256 0300 Rx - 1 FF\n"
    ));
    assert_eq!(found.len(), 1);
    let wanted = [
        "lines with an incomplete frame: 6 (the first: line 8)",
        "lines of other kinds or protocols, not replayed: 1 (the first: line 13)",
        "J1939 messages of more than 8 bytes, not replayed: 1 (the first: line 14)",
    ];
    assert_eq!(damage, wanted);

    let log = format!(";$FILEVERSION=1.1{HEAD_1}1) 756186 Sub 02 2 -- -- 00 EH\n");
    let error = read("log", Cursor::new(log.into_bytes()), &mut Survey::default()).err();
    let error = error.expect("no frame").to_string();
    assert!(
        error.contains("no CAN frame. lines of other kinds"),
        "{error}"
    );
}
