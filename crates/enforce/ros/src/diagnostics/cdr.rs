//! Serialises statuses as a `diagnostic_msgs/msg/DiagnosticArray`: plain CDR, little endian, as
//! every ROS 2 middleware accepts it (OMG, DDSI-RTPS 2.3, section 10.5). Pure.
//!
//! Texts come from plans and processes, which are untrusted. Control characters become spaces, and
//! all sizes are limited.

use super::DiagnosticStatus;

/// The greatest size of a serialised diagnostics message, in bytes.
pub const MOST_BYTES: usize = 24 << 10;
const MAX_STATUSES: usize = 32;
const MAX_VALUES: usize = 48;
const MAX_TEXT_BYTES: usize = 200;

/// The encapsulation header: CDR, little endian, no options.
const HEADER: [u8; 4] = [0, 1, 0, 0];

/// Serialises the statuses with a time stamp of CLOCK_REALTIME. Statuses that do not fit are left
/// out.
pub fn serialise(stamp_ns: u64, statuses: &[DiagnosticStatus]) -> Vec<u8> {
    array(stamp_ns, &statuses[..fitting(statuses)])
}

/// Returns how many of the statuses, from the first one on, fit into one message.
pub fn fitting(statuses: &[DiagnosticStatus]) -> usize {
    let mut count = statuses.len().min(MAX_STATUSES);
    // A single status always fits, as a test checks.
    while array(0, &statuses[..count]).len() > MOST_BYTES {
        count -= 1;
    }
    count
}

/// Serialises a `std_msgs/msg/Float64`.
pub(super) fn float64(value: f64) -> Vec<u8> {
    [HEADER.as_slice(), &value.to_le_bytes()].concat()
}

pub(super) fn stamp(message: &mut [u8], stamp_ns: u64) {
    if let Some(room) = message.get_mut(HEADER.len()..HEADER.len() + 8) {
        let [seconds, nanoseconds] = time(stamp_ns);
        room[..4].copy_from_slice(&seconds.to_le_bytes());
        room[4..].copy_from_slice(&nanoseconds.to_le_bytes());
    }
}

/// Converts a time to `builtin_interfaces/msg/Time`. The seconds are an i32, which overflows in
/// 2038.
fn time(ns: u64) -> [u32; 2] {
    let seconds = i32::try_from(ns / 1_000_000_000).unwrap_or(i32::MAX);
    [seconds as u32, (ns % 1_000_000_000) as u32]
}

fn array(stamp_ns: u64, statuses: &[DiagnosticStatus]) -> Vec<u8> {
    let mut cdr = Cdr(HEADER.to_vec());
    time(stamp_ns).into_iter().for_each(|word| cdr.word(word));
    // The frame_id of the header.
    cdr.text("");
    cdr.word(statuses.len() as u32);
    for status in statuses {
        cdr.0.push(status.level as u8);
        cdr.text(&status.name);
        cdr.text(&status.message);
        cdr.text(&status.hardware_id);
        let values = &status.values[..status.values.len().min(MAX_VALUES)];
        cdr.word(values.len() as u32);
        for (key, value) in values {
            cdr.text(key);
            cdr.text(value);
        }
    }
    cdr.0
}

struct Cdr(Vec<u8>);

impl Cdr {
    /// Appends a number, aligned to four bytes as CDR requires. The alignment counts from the end
    /// of the encapsulation header.
    fn word(&mut self, value: u32) {
        let length = (self.0.len() - HEADER.len()).next_multiple_of(4);
        self.0.resize(HEADER.len() + length, 0);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        let text = clean(text);
        self.word(text.len() as u32 + 1);
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }
}

/// Replaces control characters (zero bytes end a string in C), and limits the text to
/// [`MAX_TEXT_BYTES`] bytes.
fn clean(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if out.len() + c.len_utf8() > MAX_TEXT_BYTES {
            // The ellipsis has three bytes. Removing characters always makes room for it.
            while out.len() + '…'.len_utf8() > MAX_TEXT_BYTES {
                out.pop();
            }
            out.push('…');
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use proptest::prelude::*;

    fn status(level: Level, texts: [&str; 3], values: &[(&str, &str)]) -> DiagnosticStatus {
        let [name, message, hardware_id] = texts.map(String::from);
        let pair = |(key, value): &(&str, &str)| (String::from(*key), String::from(*value));
        DiagnosticStatus {
            level,
            name,
            message,
            hardware_id,
            values: values.iter().map(pair).collect(),
        }
    }

    /// Compares with the bytes that `serialize_message` in rclpy of ROS 2 Kilted (Fast DDS) returns
    /// for the same message.
    #[test]
    fn serialised_diagnostics_equal_the_bytes_of_rclpy() {
        let statuses = [
            status(Level::Ok, ["onbeat: a", "ok", "robot"], &[]),
            status(
                Level::Error,
                ["onbeat: /é", "", ""],
                &[("k", "v"), ("late outputs", "12"), ("", "abc")],
            ),
            status(Level::Stale, ["xxxxxxx", "yy", "z"], &[("p", "")]),
        ];
        let bytes = serialise(1_700_000_000_123_456_789, &statuses);
        let expected = "0001000000f1536515cd5b07010000000000000003000000000000000a0000006f6e62\
            6561743a2061000000030000006f6b000006000000726f626f7400000000000000020000000c000000\
            6f6e626561743a202fc3a9000100000000000000010000000000000003000000020000006b00000002\
            000000760000000d0000006c617465206f757470757473000000000300000031320000010000000000\
            00000400000061626300030000000800000078787878787878000300000079790000020000007a0000\
            000100000002000000700000000100000000";
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, expected);
        let mut again = serialise(5, &statuses);
        stamp(&mut again, 1_700_000_000_123_456_789);
        assert_eq!(again, bytes);
        stamp(&mut [0; 5], 1);
    }

    /// Compares with the bytes that `serialize_message` in rclpy of ROS 2 Kilted (Fast DDS) returns
    /// for the same message.
    #[test]
    fn a_serialised_number_equals_the_bytes_of_rclpy() {
        let hex: String = float64(61.25).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "000100000000000000a04e40");
    }

    type Read = (u8, [String; 3], Vec<(String, String)>);

    struct Reader<'b>(&'b [u8], usize);

    impl Reader<'_> {
        fn word(&mut self) -> u32 {
            self.1 = self.1.next_multiple_of(4);
            let bytes = self.0[self.1..self.1 + 4].try_into().expect("four bytes");
            self.1 += 4;
            u32::from_le_bytes(bytes)
        }

        fn text(&mut self) -> String {
            let length = self.word() as usize;
            let bytes = &self.0[self.1..self.1 + length];
            self.1 += length;
            let (end, text) = bytes.split_last().expect("a zero byte");
            assert!(*end == 0 && !text.contains(&0));
            String::from_utf8(text.to_vec()).expect("UTF-8")
        }

        fn status(&mut self) -> Read {
            let level = self.0[self.1];
            self.1 += 1;
            let texts = [self.text(), self.text(), self.text()];
            let values = (0..self.word()).map(|_| (self.text(), self.text()));
            (level, texts, values.collect())
        }
    }

    fn read(bytes: &[u8]) -> Vec<Read> {
        assert_eq!(bytes[..4], HEADER);
        let mut reader = Reader(&bytes[4..], 8);
        assert_eq!(reader.text(), "");
        let found = (0..reader.word()).map(|_| reader.status()).collect();
        assert_eq!(reader.1, bytes.len() - 4, "all is read");
        found
    }

    #[test]
    fn the_largest_status_fits_into_one_message() {
        let long = "é".repeat(10_000);
        let texts = [long.as_str(); 3];
        let values = vec![(long.as_str(), long.as_str()); 1000];
        let largest = status(Level::Warn, texts, &values);
        let bytes = serialise(0, &[largest.clone(), largest.clone(), largest]);
        let found = read(&bytes);
        assert!(bytes.len() <= MOST_BYTES && found.len() == 1);
        assert_eq!(found[0].2.len(), MAX_VALUES);
        assert!(found[0].1[0].ends_with('…') && found[0].1[0].len() <= MAX_TEXT_BYTES);
    }

    proptest! {
        #[test]
        fn serialised_statuses_can_be_parsed(
            texts in proptest::collection::vec("\\PC{0,300}|[\\x00-\\x1f]{0,9}", 0..60),
        ) {
            let of = |text: &String| status(Level::Warn, [text, "", text], &[(text, text)]);
            let statuses: Vec<_> = texts.iter().map(of).collect();
            let bytes = serialise(1, &statuses);
            prop_assert!(bytes.len() <= MOST_BYTES);
            let found = read(&bytes);
            prop_assert!(found.len() <= statuses.len().min(MAX_STATUSES));
            for ((level, read, _), text) in found.iter().zip(&texts) {
                prop_assert_eq!(*level, 1);
                prop_assert_eq!(&read[0], &clean(text));
            }
        }
    }
}
