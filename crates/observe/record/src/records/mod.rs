//! The records of the ring buffer, with the layout that `records.table` states.
//!
//! The build script generates the rest of this module from the table: the numbers of the records,
//! their fields, and the events that they become.

#[cfg(test)]
mod layout;
#[cfg(test)]
mod programs;

use onbeat_trace::{EndpointKind, EventKind, ExecuteKind, Name};

include!(concat!(env!("OUT_DIR"), "/records.rs"));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub time_ns: u64,
    pub pid: u32,
    pub tid: u32,
    pub kind: u16,
    pub cpu: u16,
    pub probe: u16,
}

impl Head {
    /// Reads the head of a record. Returns `None` if the record is shorter than a head.
    pub fn read(record: &[u8]) -> Option<Head> {
        let fields = Fields(record);
        (record.len() >= 22).then(|| Head {
            time_ns: fields.u64(0),
            pid: fields.u32(8),
            tid: fields.u32(12),
            kind: fields.u16(16),
            cpu: fields.u16(18),
            probe: fields.u16(20),
        })
    }
}

/// Reads a record's fields at their offsets. Missing bytes read as zero or as an empty text, so
/// that a short record cannot do harm.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..at + N);
        bytes.map_or([0; N], |b| b.try_into().expect("N bytes"))
    }

    fn u8(self, at: usize) -> u8 {
        self.bytes::<1>(at)[0]
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    fn i64(self, at: usize) -> i64 {
        i64::from_le_bytes(self.bytes(at))
    }

    fn flag(self, at: usize) -> bool {
        self.u16(at) != 0
    }

    fn gid(self, at: usize) -> [u8; 16] {
        self.bytes(at)
    }

    fn text(self, at: usize, size: usize) -> Name {
        let end = (at + size).min(self.0.len());
        let bytes = self.0.get(at..end).unwrap_or_default();
        let length = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into()
    }

    fn handles(self, at: usize) -> Vec<u64> {
        let count = usize::try_from(self.u64(at)).unwrap_or(usize::MAX);
        let handles = (1..=count.min(WAIT_SET_MAX)).map(|i| self.u64(at + i * 8));
        handles.filter(|&handle| handle != 0).collect()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Builds records field by field, as the BPF programs do.
    use super::layout::Table;

    pub fn table() -> Table {
        Table::parse(include_str!("records.table")).expect("the build script read it")
    }

    /// Returns a record with these fields, made at time 5000, in process 7, thread 8, on CPU 1, by
    /// probe 3.
    pub fn record(name: &str, fields: &[(&str, &[u8])]) -> Vec<u8> {
        let table = table();
        let layout = table.records.iter().find(|r| r.name == name);
        let layout = layout.unwrap_or_else(|| panic!("no record {name}"));
        let mut record = 5_000u64.to_le_bytes().to_vec();
        record.extend(7u32.to_le_bytes());
        record.extend(8u32.to_le_bytes());
        for half in [layout.number as u16, 1, 3] {
            record.extend(half.to_le_bytes());
        }
        record.resize(layout.size, 0);
        for (name, bytes) in fields {
            let field = layout.fields.iter().find(|f| f.name == *name);
            let at = field
                .and_then(|f| f.offset)
                .unwrap_or_else(|| panic!("no field {name}"));
            record[at..at + bytes.len()].copy_from_slice(bytes);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::layout::{Field, HEAD_BYTES};
    use super::*;

    fn sample(field: &Field, index: usize) -> (Vec<u8>, String) {
        let number = 40 + index as u64;
        let bytes = |size: usize| number.to_le_bytes()[..size].to_vec();
        match field.ty.as_str() {
            "u8" => (bytes(1), number.to_string()),
            "u16" => (bytes(2), number.to_string()),
            "u32" => (bytes(4), number.to_string()),
            "u64" | "i64" => (bytes(8), number.to_string()),
            "known_i64" => (bytes(8), format!("Some({number})")),
            "unknown" => (Vec::new(), "None".into()),
            "flag" => (vec![1, 0], "true".into()),
            "gid" => (vec![number as u8; 16], format!("{:?}", [number as u8; 16])),
            "text" | "comm" => (format!("t{number}").into_bytes(), format!("\"t{number}\"")),
            "endpoint" | "execute" => (vec![3, 0], "Client".into()),
            other => panic!("no sample for {other}"),
        }
    }

    #[test]
    fn every_record_field_reaches_the_event_field_of_the_same_name() {
        for layout in testing::table().records {
            if layout.event.is_none() {
                continue;
            }
            let samples: Vec<_> = layout
                .fields
                .iter()
                .enumerate()
                .map(|(i, f)| sample(f, i))
                .collect();
            let fields = layout
                .fields
                .iter()
                .zip(&samples)
                .filter(|(f, _)| f.offset.is_some());
            let fields: Vec<(&str, &[u8])> = fields
                .map(|(f, (bytes, _))| (f.name.as_str(), &bytes[..]))
                .collect();
            let record = testing::record(&layout.name, &fields);
            let event = event(layout.number as u16, Fields(&record)).expect("an event");
            let shown = format!("{event:?}");
            for (field, (_, value)) in layout.fields.iter().zip(&samples) {
                let expected = format!("{}: {value}", field.name);
                assert!(
                    shown.contains(&expected),
                    "{}: no '{expected}' in {shown}",
                    layout.name
                );
            }
        }
    }

    #[test]
    fn a_record_head_has_the_length_that_the_layout_says() {
        let record = testing::record("rcl_init", &[]);
        let head = Head::read(&record).expect("a head");
        assert_eq!(
            head,
            Head {
                time_ns: 5_000,
                pid: 7,
                tid: 8,
                kind: kind::RCL_INIT,
                cpu: 1,
                probe: 3
            }
        );
        assert!(Head::read(&record[..HEAD_BYTES]).is_some());
        assert!(Head::read(&record[..HEAD_BYTES - 1]).is_none());
    }

    #[test]
    fn record_names_come_from_the_table() {
        assert_eq!(name(kind::PUBLISH), "publish");
        assert_eq!(name(kind::PUBLISH_UNSTAMPED), "publish_unstamped");
        assert_eq!(name(u16::MAX), "unknown");
    }
}
