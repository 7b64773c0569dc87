//! Writes MDF 4 files in the layouts of different recorders.

use std::io::Write;

/// The place in which a test file stores the data bytes of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Fixed,
    MaximumLength,
    /// The data bytes are in a stream of values (an SD block).
    Stream,
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Plain,
    /// The data is in two linked lists of blocks. Blocks end in the middle of records.
    List,
    Packed,
    /// The data is in a list of packed blocks. Blocks of records are stored by columns instead of
    /// by rows.
    Transposed,
}

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub data: Data,
    pub packing: Packing,
    /// The size in bytes of the group number before each record. It is 0 in a sorted data group.
    pub id_size: usize,
    pub is_big: bool,
    pub unfinished: Option<u16>,
}

pub const PLAIN: Shape = Shape {
    data: Data::Fixed,
    packing: Packing::Plain,
    id_size: 0,
    is_big: false,
    unfinished: None,
};

#[derive(Clone)]
pub struct Sent {
    pub ms: u64,
    pub id: u32,
    pub code: u8,
    /// The frame's flags: bit 0 is EDL, bit 1 is BRS, bit 2 is ESI.
    pub flags: u8,
    pub data: Vec<u8>,
}

pub fn sent(ms: u64, id: u32, code: u8, flags: u8, data: &[u8]) -> Sent {
    Sent {
        ms,
        id,
        code,
        flags,
        data: data.to_vec(),
    }
}

pub struct File(pub Vec<u8>);

impl File {
    /// Begins a file with its identification, and with the header at byte 64.
    pub fn new(begin_ns: u64, unfinished: Option<u16>) -> File {
        let mut head = match unfinished {
            Some(_) => b"UnFinMF 4.10    onbeat".to_vec(),
            None => b"MDF     4.10    onbeat".to_vec(),
        };
        head.resize(28, 0);
        head.extend_from_slice(&410u16.to_le_bytes());
        head.resize(60, 0);
        head.extend_from_slice(&unfinished.unwrap_or(0).to_le_bytes());
        head.resize(64, 0);
        let mut file = File(head);
        let mut time = begin_ns.to_le_bytes().to_vec();
        time.resize(32, 0);
        file.block(b"HD", &[0; 6], &time);
        file
    }

    pub fn block(&mut self, kind: &[u8; 2], links: &[u64], data: &[u8]) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let at = self.0.len() as u64;
        self.0.extend_from_slice(b"##");
        self.0.extend_from_slice(kind);
        self.0.extend_from_slice(&[0; 4]);
        let length = (24 + links.len() * 8 + data.len()) as u64;
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0
            .extend_from_slice(&(links.len() as u64).to_le_bytes());
        for link in links {
            self.0.extend_from_slice(&link.to_le_bytes());
        }
        self.0.extend_from_slice(data);
        at
    }

    pub fn link(&mut self, block: u64, number: usize, to: u64) {
        let at = block as usize + 24 + 8 * number;
        self.0[at..at + 8].copy_from_slice(&to.to_le_bytes());
    }

    pub fn text(&mut self, text: &str) -> u64 {
        self.block(b"TX", &[], &[text.as_bytes(), &[0]].concat())
    }

    /// Writes a channel. `links` are: next channel, composition, conversion, data. `kinds` are:
    /// kind, synchronisation, form. `at` is the byte and the bit in the record.
    pub fn channel(
        &mut self,
        name: &str,
        links: [u64; 4],
        kinds: [u8; 3],
        at: (u32, u8),
        bits: u32,
    ) -> u64 {
        let name = self.text(name);
        let [next, inner, conversion, data] = links;
        let [kind, sync, form] = kinds;
        let mut about = vec![kind, sync, form, at.1];
        about.extend_from_slice(&at.0.to_le_bytes());
        about.extend_from_slice(&bits.to_le_bytes());
        about.resize(72, 0);
        let links = [next, inner, name, 0, conversion, data, 0, 0];
        self.block(b"CN", &links, &about)
    }

    /// Writes the time channel, which is the first eight bytes of each record.
    pub fn time(&mut self, next: u64, form: u8, factor: f64) -> u64 {
        let mut about = vec![1, 0, 0, 0, 0, 0, 2, 0];
        about.resize(24, 0);
        about.extend_from_slice(&0f64.to_le_bytes());
        about.extend_from_slice(&factor.to_le_bytes());
        let conversion = self.block(b"CC", &[0; 4], &about);
        self.channel("t", [next, 0, conversion, 0], [2, 1, form], (0, 0), 64)
    }

    /// Writes a channel group. `of` is: number, count of records, flags.
    pub fn group(
        &mut self,
        next: u64,
        channel: u64,
        name: &str,
        of: (u64, u64, u16),
        size: u32,
    ) -> u64 {
        let name = self.text(name);
        let mut about = of.0.to_le_bytes().to_vec();
        about.extend_from_slice(&of.1.to_le_bytes());
        about.extend_from_slice(&of.2.to_le_bytes());
        about.resize(24, 0);
        about.extend_from_slice(&size.to_le_bytes());
        about.extend_from_slice(&[0; 4]);
        self.block(b"CG", &[next, channel, name, 0, 0, 0], &about)
    }

    /// Writes a data group in front of the other data groups.
    pub fn data_group(&mut self, group: u64, id_size: u8) -> u64 {
        let mut next = [0; 8];
        next.copy_from_slice(&self.0[88..96]);
        let links = [u64::from_le_bytes(next), group, 0, 0];
        let at = self.block(b"DG", &links, &[id_size, 0, 0, 0, 0, 0, 0, 0]);
        self.link(64, 0, at);
        at
    }

    /// Writes a data block of the kind `DT` or `SD`, and returns the link to it.
    pub fn data(&mut self, kind: &[u8; 2], packing: Packing, columns: usize, data: &[u8]) -> u64 {
        let third = (data.len() / 3).max(1);
        match packing {
            Packing::Plain => self.block(kind, &[], data),
            Packing::Packed => self.packed(kind, 0, 0, data),
            Packing::List => {
                let (first, second) = data.split_at(third);
                let parts: Vec<_> = second.chunks(third).collect();
                let parts = parts.into_iter().map(|part| self.block(kind, &[], part));
                let links: Vec<_> = [0, 0].into_iter().chain(parts).collect();
                let list = self.block(b"DL", &links, &[0; 8]);
                let first = self.block(kind, &[], first);
                self.block(b"DL", &[list, first], &[0; 8])
            }
            Packing::Transposed => {
                let method = u8::from(kind == b"DT");
                let parts = data.chunks(third);
                let parts: Vec<_> = parts
                    .map(|part| self.packed(kind, method, columns, part))
                    .collect();
                let links: Vec<_> = [0].into_iter().chain(parts).collect();
                let list = self.block(b"DL", &links, &[0; 8]);
                self.block(b"HL", &[list], &[0; 8])
            }
        }
    }

    fn packed(&mut self, kind: &[u8; 2], method: u8, columns: usize, data: &[u8]) -> u64 {
        let mut table = data.to_vec();
        if method == 1 {
            let rows = data.len() / columns;
            for (at, byte) in data[..rows * columns].iter().enumerate() {
                table[at % columns * rows + at / columns] = *byte;
            }
        }
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
        packer.write_all(&table).expect("in memory");
        self.zipped(
            kind,
            method,
            columns,
            data.len(),
            &packer.finish().expect("in memory"),
        )
    }

    pub fn zipped(
        &mut self,
        kind: &[u8; 2],
        method: u8,
        columns: usize,
        plain: usize,
        packed: &[u8],
    ) -> u64 {
        let mut about = kind.to_vec();
        about.extend_from_slice(&[method, 0]);
        about.extend_from_slice(&(columns as u32).to_le_bytes());
        about.extend_from_slice(&(plain as u64).to_le_bytes());
        about.extend_from_slice(&(packed.len() as u64).to_le_bytes());
        about.extend_from_slice(packed);
        self.block(b"DZ", &[], &about)
    }
}

/// The size in bytes of a record without the data bytes of its frame.
const FIELDS: u32 = 15;

/// Writes the channels of a frame's record, and returns the link to the first channel. `data` is
/// the link to the data bytes.
pub fn frame_channels(file: &mut File, shape: Shape, event: &str, data: u64) -> u64 {
    let form = u8::from(shape.is_big);
    let name = |part: &str| format!("CAN_{event}Frame.{part}");
    let length = file.channel(&name("DataLength"), [0; 4], [0, 0, 0], (14, 0), 8);
    let (kind, bits, to) = match shape.data {
        Data::Fixed => (0, 512, 0),
        Data::MaximumLength => (5, 512, length),
        Data::Stream | Data::Group => (1, 64, data),
    };
    let mut next = file.channel(
        &name("DataBytes"),
        [length, 0, 0, to],
        [kind, 0, 10],
        (FIELDS, 0),
        bits,
    );
    for (part, at, bits) in [
        ("ESI", (13, 6), 1),
        ("BRS", (13, 5), 1),
        ("EDL", (13, 4), 1),
        ("DLC", (13, 0), 4),
        ("IDE", (if shape.is_big { 9 } else { 12 }, 7), 1),
        ("BusChannel", (8, 0), 8),
    ] {
        next = file.channel(&name(part), [next, 0, 0, 0], [0, 0, form], at, bits);
    }
    let id = file.channel(&name("ID"), [next, 0, 0, 0], [0, 0, form], (9, 0), 29);
    let event = file.channel(
        &format!("CAN_{event}Frame"),
        [0, id, 0, 0],
        [0, 0, 10],
        (8, 0),
        56,
    );
    file.time(event, 0, 1e-6)
}

fn record(shape: Shape, frame: &Sent, position: u64) -> Vec<u8> {
    let mut record = (frame.ms * 1000).to_le_bytes().to_vec();
    record.push(frame.id as u8 % 3 + 1);
    match shape.is_big {
        true => record.extend_from_slice(&frame.id.to_be_bytes()),
        false => record.extend_from_slice(&frame.id.to_le_bytes()),
    }
    record.extend_from_slice(&[frame.code | frame.flags << 4, frame.data.len() as u8]);
    match shape.data {
        Data::Fixed | Data::MaximumLength => {
            record.extend_from_slice(&frame.data);
            record.resize(FIELDS as usize + 64, 0xee);
        }
        Data::Stream | Data::Group => record.extend_from_slice(&position.to_le_bytes()),
    }
    record
}

pub fn size(shape: Shape) -> u32 {
    FIELDS
        + match shape.data {
            Data::Fixed | Data::MaximumLength => 64,
            Data::Stream | Data::Group => 8,
        }
}

/// Returns a file with one data group of frames. As in files of recorders, the data is at the end.
pub fn whole(shape: Shape, begin_ns: u64, frames: &[Sent]) -> File {
    let mut file = File::new(begin_ns, shape.unfinished);
    add(&mut file, shape, "Data", frames);
    file
}

pub fn add(file: &mut File, shape: Shape, event: &str, frames: &[Sent]) {
    const FRAMES: u64 = 0x41;
    const VALUES: u64 = 0x42;
    const SIGNALS: u64 = 0x43;
    let mut data = Vec::new();
    let mut values = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        let is_numbered =
            shape.data == Data::Group && shape.unfinished.is_some_and(|flags| flags & 0x40 != 0);
        let position = if is_numbered { 0 } else { values.len() as u64 };
        let mut value = (frame.data.len() as u32).to_le_bytes().to_vec();
        value.extend_from_slice(&frame.data);
        let id = |id: u64| id.to_le_bytes()[..shape.id_size].to_vec();
        let value_first = [id(VALUES), value.clone()].concat();
        let is_first = shape.data == Data::Group && number % 3 == 0;
        if is_first {
            data.extend_from_slice(&value_first);
        }
        data.extend_from_slice(&id(FRAMES));
        data.extend_from_slice(&record(shape, frame, position));
        if shape.data == Data::Group && !is_first {
            data.extend_from_slice(&value_first);
        }
        if shape.id_size > 0 {
            data.extend_from_slice(&[&id(SIGNALS)[..], &[1, 2, 3]].concat());
        }
        values.extend_from_slice(&value);
    }
    let values_at = match shape.data {
        Data::Group => file.group(0, 0, "", (VALUES, 0, 1), 0),
        Data::Stream => file.data(b"SD", shape.packing, 0, &values),
        Data::Fixed | Data::MaximumLength => 0,
    };
    let mut next = if shape.data == Data::Group {
        values_at
    } else {
        0
    };
    if shape.id_size > 0 {
        next = file.group(next, 0, "engine", (SIGNALS, 0, 0), 3);
    }
    let channel = frame_channels(file, shape, event, values_at);
    let count = if shape.unfinished.is_some() {
        0
    } else {
        frames.len() as u64
    };
    let group = file.group(next, channel, "", (FRAMES, count, 6), size(shape));
    let at = file.data_group(group, shape.id_size as u8);
    let link = file.data(b"DT", shape.packing, size(shape) as usize, &data);
    file.link(at, 2, link);
}
