//! Writes events in the Common Trace Format 1.8 (LTTng's format), which the peers' readers
//! understand: babeltrace2, and tracetools_read on top of it.

use crate::frame::{LabError, Result};
use onbeat_trace::event::Name;
use onbeat_trace::table::{self, FieldSink, FieldType};
use onbeat_trace::Event;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

const MAGIC: u32 = 0xc1fc_1fc1;
/// The size of a packet's header in bytes: magic, begin and end time, content size and packet size.
const HEADER_BYTES: u64 = 4 + 4 * 8;

pub fn write_ctf(dir: &Path, events: impl Iterator<Item = Event>) -> Result<()> {
    let wrong = |e| LabError::file("writing", dir)(e);
    std::fs::create_dir_all(dir).map_err(wrong)?;
    std::fs::write(dir.join("metadata"), metadata()).map_err(wrong)?;
    let mut out = BufWriter::new(File::create(dir.join("stream")).map_err(wrong)?);
    out.write_all(&[0; HEADER_BYTES as usize]).map_err(wrong)?;
    let (mut begin, mut end, mut bytes) = (None, 0, HEADER_BYTES);
    let mut record = Record(Vec::new());
    for event in events {
        record.0.clear();
        record.0.push(table::code(&event.kind));
        record.0.extend(event.time_ns.to_le_bytes());
        record.0.extend(event.cpu.to_le_bytes());
        record.0.extend(event.pid.to_le_bytes());
        record.0.extend(event.tid.to_le_bytes());
        table::put(&event.kind, &mut record);
        out.write_all(&record.0).map_err(wrong)?;
        bytes += record.0.len() as u64;
        begin.get_or_insert(event.time_ns);
        end = event.time_ns;
    }
    let bits = bytes * 8;
    out.seek(SeekFrom::Start(0)).map_err(wrong)?;
    out.write_all(&MAGIC.to_le_bytes()).map_err(wrong)?;
    for value in [begin.unwrap_or(0), end, bits, bits] {
        out.write_all(&value.to_le_bytes()).map_err(wrong)?;
    }
    out.flush().map_err(wrong)
}

fn metadata() -> String {
    let mut text = String::from(
        r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; }; };
clock { name = monotonic; freq = 1000000000; offset = 0; };
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := stamp_t;
stream {
  packet.context := struct {
    stamp_t timestamp_begin; stamp_t timestamp_end; uint64_t content_size; uint64_t packet_size;
  };
  event.header := struct { uint8_t id; stamp_t timestamp; };
  event.context := struct { uint16_t _cpu; uint32_t _vpid; uint32_t _vtid; };
};
"#,
    );
    for kind in table::KINDS {
        let _ = write!(
            text,
            "event {{ name = \"onbeat:{}\"; id = {}; fields := struct {{",
            kind.name, kind.code
        );
        for field in kind.fields {
            let (ty, array) = match field.ty {
                FieldType::Handle | FieldType::Message | FieldType::Uint | FieldType::Mask => {
                    ("uint64_t", "")
                }
                FieldType::Tid => ("uint32_t", ""),
                FieldType::Byte | FieldType::Word => ("uint16_t", ""),
                FieldType::Int | FieldType::Stamp | FieldType::OptStamp => ("int64_t", ""),
                FieldType::Gid => ("uint8_t", "[16]"),
                FieldType::Flag | FieldType::Endpoint | FieldType::Execute | FieldType::Call => {
                    ("uint8_t", "")
                }
                FieldType::Text => ("string", ""),
            };
            // A leading underscore avoids reserved words. Readers remove it.
            let _ = write!(text, " {ty} _{}{array};", field.name);
        }
        text.push_str(" }; };\n");
    }
    text
}

struct Record(Vec<u8>);

impl FieldSink for Record {
    fn handle(&mut self, _: &'static str, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    fn message(&mut self, _: &'static str, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    fn tid(&mut self, _: &'static str, value: u32) {
        self.0.extend(value.to_le_bytes());
    }
    fn small(&mut self, _: &'static str, value: u16) {
        self.0.extend(value.to_le_bytes());
    }
    fn int(&mut self, _: &'static str, value: i64) {
        self.0.extend(value.to_le_bytes());
    }
    fn uint(&mut self, _: &'static str, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    fn mask(&mut self, _: &'static str, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    fn gid(&mut self, _: &'static str, value: &[u8; 16]) {
        self.0.extend(value);
    }
    fn stamp(&mut self, _: &'static str, value: Option<i64>) {
        self.0.extend(value.unwrap_or(i64::MIN).to_le_bytes());
    }
    fn flag(&mut self, _: &'static str, value: bool) {
        self.0.push(u8::from(value));
    }
    fn name(&mut self, _: &'static str, value: &Name) {
        // A CTF string ends at its first zero.
        self.0.extend(value.bytes().filter(|&b| b != 0));
        self.0.push(0);
    }
    fn choice(&mut self, _: &'static str, _: &'static [&'static str], value: u8) {
        self.0.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::EventKind;

    #[test]
    fn a_ctf_packet_holds_its_events_and_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let event = |time_ns, kind| Event {
            time_ns,
            cpu: 1,
            pid: 2,
            tid: 3,
            kind,
        };
        let timer = EventKind::TimerInit {
            timer: 0x55,
            period_ns: -7,
        };
        let exec = EventKind::Exec {
            comm: "a\0b".into(),
        };
        let events = [event(10, timer.clone()), event(20, exec)];
        write_ctf(dir.path(), events.into_iter()).unwrap();
        let bytes = std::fs::read(dir.path().join("stream")).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(bytes[..4], MAGIC.to_le_bytes());
        assert_eq!(
            [word(4), word(12), word(20)],
            [10, 20, bytes.len() as u64 * 8]
        );
        assert_eq!(bytes.len(), 36 + (1 + 8 + 10 + 16) + (1 + 8 + 10 + 3));
        assert_eq!(bytes[36], table::code(&timer));
        assert!(bytes.ends_with(b"ab\0"));
    }
}
