//! Writes sessions as LTTng does: packets of events, with compact and large headers.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

pub const BOOT: &str = "9988b677-c630-4a21-a4ee-7b1b22fee300";
/// The time at which the clock of the test's sessions was 0, in ns since 1970.
pub const OFFSET: u64 = 1_700_000_000_000_000_000;

pub enum F {
    Pointer(&'static str, u64),
    Int(&'static str, i64),
    Tid(&'static str, u32),
    Text(&'static str, &'static str),
    Bytes(&'static str, &'static [u8]),
    /// A sequence and its length, as LTTng writes both.
    Sequence(&'static str, &'static [u16]),
}

impl F {
    fn declare(&self) -> String {
        let integer = |bits, signed, base| {
            format!("integer {{ size = {bits}; align = 8; signed = {signed}; encoding = none; base = {base}; }}")
        };
        match self {
            F::Pointer(name, _) => format!("{} _{name};", integer(64, 0, 16)),
            F::Int(name, _) => format!("{} _{name};", integer(64, 1, 10)),
            F::Tid(name, _) => format!("{} _{name};", integer(32, 1, 10)),
            F::Text(name, _) => format!("string _{name};"),
            F::Bytes(name, bytes) => format!("{} _{name}[{}];", integer(8, 0, 10), bytes.len()),
            F::Sequence(name, _) => format!(
                "{} __{name}_length; {} _{name}[ __{name}_length ];",
                integer(32, 0, 10),
                integer(16, 0, 10)
            ),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            F::Pointer(_, value) => out.extend(value.to_le_bytes()),
            F::Int(_, value) => out.extend(value.to_le_bytes()),
            F::Tid(_, value) => out.extend(value.to_le_bytes()),
            F::Text(_, text) => out.extend(text.bytes().chain([0])),
            F::Bytes(_, bytes) => out.extend(*bytes),
            F::Sequence(_, words) => {
                out.extend((words.len() as u32).to_le_bytes());
                out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            }
        }
    }
}

pub struct E {
    pub time: u64,
    pub name: &'static str,
    /// The process and the thread. Only events of `Domain::User` have them.
    pub who: (u32, u32),
    pub fields: Vec<F>,
}

pub fn ust(time: u64, tid: u32, name: &'static str, fields: Vec<F>) -> E {
    let who = (10, tid);
    E {
        time,
        name,
        who,
        fields,
    }
}

pub fn kernel(time: u64, name: &'static str, fields: Vec<F>) -> E {
    ust(time, 0, name, fields)
}

pub fn switch(time: u64, prev: u32, state: i64, next: u32) -> E {
    let comm: &[u8] = b"some_thread\0\0\0\0\0";
    let fields = vec![
        F::Bytes("prev_comm", comm),
        F::Tid("prev_tid", prev),
        F::Int("prev_prio", 20),
        F::Int("prev_state", state),
        F::Bytes("next_comm", comm),
        F::Tid("next_tid", next),
        F::Int("next_prio", 20),
    ];
    kernel(time, "sched_switch", fields)
}

#[derive(Clone, Copy, PartialEq)]
pub enum Domain {
    Kernel,
    User,
}

pub struct Packets {
    pub events: Vec<Vec<E>>,
    /// The counter of lost events at the end of each packet.
    pub discarded: Vec<u64>,
    pub cpu: u32,
}

pub fn packets(cpu: u32, events: Vec<Vec<E>>) -> Packets {
    Packets {
        discarded: vec![0; events.len()],
        events,
        cpu,
    }
}

const HEAD: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; } := unsigned long;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 27; align = 1; signed = false; } := uint27_t;
trace {
  major = 1; minor = 8; uuid = "445a340a-01b8-412c-afd1-08f60aa4934a"; byte_order = le;
  packet.header := struct {
    uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id;
  };
};
"#;

const TYPES: &str = r#"
typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := uint27_clock_monotonic_t;
typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := uint32_clock_monotonic_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := uint64_clock_monotonic_t;
struct packet_context {
  uint64_clock_monotonic_t timestamp_begin; uint64_clock_monotonic_t timestamp_end;
  uint64_t content_size; uint64_t packet_size; uint64_t packet_seq_num;
  unsigned long events_discarded; uint32_t cpu_id;
};
struct event_header_compact {
  enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
  variant <id> {
    struct { uint27_clock_monotonic_t timestamp; } compact;
    struct { uint32_t id; uint64_clock_monotonic_t timestamp; } extended;
  } v;
} align(8);
struct event_header_large {
  enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
  variant <id> {
    struct { uint32_clock_monotonic_t timestamp; } compact;
    struct { uint32_t id; uint64_clock_monotonic_t timestamp; } extended;
  } v;
} align(8);
"#;

pub fn write(dir: &Path, domain: Domain, files: &[Packets]) {
    std::fs::create_dir_all(dir.join("index")).unwrap();
    std::fs::write(dir.join("index/channel0_0.idx"), "not events").unwrap();
    let mut ids = BTreeMap::new();
    let mut text = String::from(HEAD);
    let name = if domain == Domain::User {
        "ust"
    } else {
        "kernel"
    };
    let _ =
        write!(
        text,
        "env {{ domain = \"{name}\"; tracer_major = 2; tracer_minor = 13; hostname = \"vm\"; }};
clock {{ name = \"monotonic\"; uuid = \"{BOOT}\"; freq = 1000000000; offset = {OFFSET}; }};{TYPES}
stream {{ id = 0; event.header := struct event_header_{}; packet.context := struct packet_context;",
        if domain == Domain::User { "large" } else { "compact" }
    );
    if domain == Domain::User {
        let who = [F::Tid("vpid", 0), F::Tid("vtid", 0)]
            .map(|f| f.declare())
            .concat();
        let comm = "integer { size = 8; align = 8; signed = 1; encoding = UTF8; base = 10; } _procname[17];";
        let _ = write!(text, "event.context := struct {{ {who} {comm} }};");
    }
    text.push_str("};\n");
    for (number, file) in files.iter().enumerate() {
        let mut bytes = Vec::new();
        for (sequence, events) in file.events.iter().enumerate() {
            for event in events {
                let next = ids.len();
                ids.entry(event.name).or_insert_with(|| {
                    let fields: String = event.fields.iter().map(F::declare).collect();
                    let _ = writeln!(
                        text,
                        "event {{ name = \"{}\"; id = {next}; stream_id = 0; loglevel = 13; fields := struct {{ {fields} }}; }};",
                        event.name
                    );
                    next
                });
            }
            bytes.extend(packet(domain, file, sequence, events, &ids));
        }
        std::fs::write(dir.join(format!("channel0_{number}")), bytes).unwrap();
    }
    std::fs::write(dir.join("metadata"), text).unwrap();
}

fn packet(
    domain: Domain,
    file: &Packets,
    sequence: usize,
    events: &[E],
    ids: &BTreeMap<&str, usize>,
) -> Vec<u8> {
    let mut content = Vec::new();
    let begin = events.first().map_or(0, |e| e.time);
    let end = events.last().map_or(0, |e| e.time);
    let mut before = begin;
    for event in events {
        let id = ids[event.name] as u32;
        let (few, bits) = if domain == Domain::User {
            (65535, 32)
        } else {
            (31, 27)
        };
        // Some events have the long header without need, as LTTng writes it after a pause.
        let long = id >= few || event.time - before >= 1 << bits || event.time % 7 == 0;
        match (domain, long) {
            (Domain::User, false) => {
                content.extend((id as u16).to_le_bytes());
                content.extend((event.time as u32).to_le_bytes());
            }
            (Domain::Kernel, false) => {
                content.extend((id | (event.time as u32) << 5).to_le_bytes());
            }
            (_, true) => {
                let first: &[u8] = if few == 31 { &[31] } else { &[255, 255] };
                content.extend(first);
                content.extend(id.to_le_bytes());
                content.extend(event.time.to_le_bytes());
            }
        }
        before = event.time;
        if domain == Domain::User {
            content.extend(event.who.0.to_le_bytes());
            content.extend(event.who.1.to_le_bytes());
            content.extend(b"robot\0\0\0\0\0\0\0\0\0\0\0\0");
        }
        event.fields.iter().for_each(|f| f.put(&mut content));
    }
    let head = 32 + 6 * 8 + 4;
    let size = (head + content.len()).next_multiple_of(64) as u64 * 8;
    let mut packet = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
    packet.extend([0; 16 + 4 + 8]);
    let filled = (head + content.len()) as u64 * 8;
    let discarded = file.discarded[sequence];
    for word in [begin, end, filled, size, sequence as u64, discarded] {
        packet.extend(word.to_le_bytes());
    }
    packet.extend(file.cpu.to_le_bytes());
    packet.extend(content);
    packet.resize((size / 8) as usize, 0xee);
    packet
}
