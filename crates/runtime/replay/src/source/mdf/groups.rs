//! Finds the groups of an MDF 4 file, and the fields of those with CAN frames.

use super::input::{place, Block, Input};
use super::layout::{Conversion, Event, Field, Layout, Number, Sizes, Span, Time};
use super::records::{DataBytes, Frames, Group, Records, Use};
use super::stream::{Content, Stream};
use crate::source::Bytes;
use std::io::Result;

const MOST_GROUPS: usize = 1 << 16;
const MOST_FRAME_GROUPS: usize = 256;
/// The size of the longest record of a CAN frame that onbeat reads, in bytes. Groups with longer
/// records are not replayed.
const LONGEST_RECORD: usize = 4096;

const VALUES: u16 = 1;
const NO_FRAMES: &str = "records without CAN frames (signals, LIN, Ethernet ...), not replayed";

/// Reads the descriptions of all groups in the file. `first` is the link to the first data group.
pub fn read<R: Bytes>(input: &mut Input<R>, first: u64) -> Result<Vec<Records>> {
    let mut all = Vec::new();
    let mut counts = Counts::default();
    let mut next = first;
    while let Some(block) = input.listed(next, b"DG")? {
        next = match all.len() < MOST_GROUPS {
            true => block.link(0),
            false => 0,
        };
        let groups = groups(input, &block, &mut counts)?;
        let has_frames = groups
            .iter()
            .any(|group| matches!(group.role, Use::Frames(_)));
        if has_frames || input.is_unfinished {
            let id_size = block.byte(0);
            if !matches!(id_size, 0 | 1 | 2 | 4 | 8) {
                input.damage.add(
                    "groups whose group numbers have an impossible size, left out",
                    || place(block.at),
                );
                continue;
            }
            let stream = Stream::new(Content::Records, block.link(2));
            all.push(Records::new(stream, id_size.into(), groups));
        } else {
            for group in &groups {
                if let (Use::Skipped(what), count @ 1..) = (&group.role, group.stated) {
                    input.damage.add_many(what, count, || group.shown());
                }
            }
        }
    }
    Ok(all)
}

#[derive(Default)]
struct Counts {
    groups: usize,
    frame_groups: usize,
}

fn groups<R: Bytes>(
    input: &mut Input<R>,
    block: &Block,
    counts: &mut Counts,
) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    let mut next = block.link(1);
    while let Some(block) = input.listed(next, b"CG")? {
        next = block.link(0);
        counts.groups += 1;
        if counts.groups > MOST_GROUPS {
            let what = "groups beyond the first 65536, left out";
            input.damage.add(what, || place(block.at));
            break;
        }
        let flags = block.short(16);
        let sizes = Sizes {
            data: block.number(24) as usize,
            invalid: block.number(28) as usize,
        };
        let channels = match flags & VALUES {
            0 => channels(input, block.link(1))?,
            _ => Channels::default(),
        };
        let mut name = input.text(block.link(2))?;
        if name.is_empty() {
            name = channels.first.clone();
        }
        let role = match (flags & VALUES, channels.event) {
            (0, None) => Use::Skipped(NO_FRAMES),
            (0, Some(event)) => match frames(input, channels, event, sizes)? {
                Ok(frames) if counts.frame_groups < MOST_FRAME_GROUPS => {
                    counts.frame_groups += 1;
                    Use::Frames(Box::new(frames))
                }
                Ok(_) => Use::Skipped("records of groups beyond the first 256, not replayed"),
                Err(what) => Use::Skipped(what),
            },
            _ => Use::Values(None),
        };
        groups.push(Group {
            at: block.at,
            id: block.long(0),
            name,
            stated: block.long(8),
            size: sizes.whole(),
            role,
        });
    }
    link_values(&mut groups);
    Ok(groups)
}

/// Sets the owner of each group of values. The owner is the group of frames whose data bytes these
/// values are.
fn link_values(groups: &mut [Group]) {
    let owners: Vec<(u64, usize)> = groups
        .iter()
        .enumerate()
        .filter_map(|(owner, group)| match &group.role {
            Use::Frames(frames) => match frames.data {
                DataBytes::Group { at, .. } => Some((at, owner)),
                _ => None,
            },
            _ => None,
        })
        .collect();
    for group in groups {
        if let Use::Values(owner) = &mut group.role {
            let found = owners.iter().find(|(at, _)| *at == group.at);
            *owner = found.map(|(_, owner)| *owner);
        }
    }
}

/// The channels of a group that contain the components of a CAN frame, each with the name of its
/// component.
#[derive(Default)]
struct Channels {
    event: Option<Event>,
    master: Option<Block>,
    parts: Vec<(String, Block)>,
    /// The name of the group's first channel that is not a master channel.
    first: String,
}

/// The names of the components of a CAN frame that a replay needs.
const PARTS: [&str; 9] = [
    "BusChannel",
    "ID",
    "IDE",
    "DLC",
    "DataLength",
    "DataBytes",
    "EDL",
    "BRS",
    "ESI",
];

impl Channels {
    fn keep(&mut self, part: &str, channel: Block) {
        let is_known = self.parts.iter().any(|(known, _)| known == part);
        if PARTS.contains(&part) && !is_known {
            self.parts.push((part.to_owned(), channel));
        }
    }
}

fn channels<R: Bytes>(input: &mut Input<R>, first: u64) -> Result<Channels> {
    const MASTERS: [u8; 2] = [2, 3];
    const TIME: u8 = 1;
    let mut found = Channels::default();
    // The lists of channels to read. The second value is the kind of frame whose components the list has.
    let mut lists = vec![(first, None)];
    while let Some((link, of)) = lists.pop() {
        let Some(block) = input.listed(link, b"CN")? else {
            continue;
        };
        lists.push((block.link(0), of));
        let name = input.text(block.link(2))?;
        let name = name.split('\\').next().unwrap_or_default();
        let is_master = MASTERS.contains(&block.byte(0));
        let mut inner = None;
        if is_master && block.byte(1) == TIME {
            found.master.get_or_insert(block);
            continue;
        }
        if found.first.is_empty() && !is_master {
            name.clone_into(&mut found.first);
        }
        let (before, part) = name.rsplit_once('.').unwrap_or(("", name));
        let event_of_name = Event::named(part);
        let event_of_parent = Event::named(before.rsplit('.').next().unwrap_or_default()).or(of);
        if let Some(event) = event_of_name {
            found.event = found.event.or(Some(event));
            inner = Some(event);
        }
        let composed = block.link(1);
        if event_of_name.is_none() && event_of_parent.is_some() {
            found.event = found.event.or(event_of_parent);
            found.keep(part, block);
        }
        // A composition can also be an array. No component of a frame is an array.
        if composed != 0 && input.kind(composed)? == Some(*b"CN") {
            lists.push((composed, inner));
        }
    }
    Ok(found)
}

type Unusable = &'static str;

fn frames<R: Bytes>(
    input: &mut Input<R>,
    channels: Channels,
    event: Event,
    sizes: Sizes,
) -> Result<std::result::Result<Frames, Unusable>> {
    const UNKNOWN: Unusable = "records of CAN frames with a field in an unknown form, not replayed";
    if sizes.whole() > LONGEST_RECORD {
        return Ok(Err(
            "records of CAN frames of more than 4 KiB, not replayed",
        ));
    }
    let Some(time) = time(input, channels.master.as_ref(), sizes)? else {
        return Ok(Err(
            "records of CAN frames without a usable time, not replayed",
        ));
    };
    let mut layout = Layout::new(event, time);
    let mut data = DataBytes::None;
    for (name, channel) in &channels.parts {
        let place = match name.as_str() {
            "BusChannel" => &mut layout.channel,
            "ID" => &mut layout.id,
            "IDE" => &mut layout.is_extended,
            "DLC" => &mut layout.code,
            "DataLength" => &mut layout.length,
            "EDL" => &mut layout.is_fd,
            "BRS" => &mut layout.switches_rate,
            "ESI" => &mut layout.is_passive,
            "DataBytes" if event == Event::Data => {
                match data_bytes(input, channel, sizes)? {
                    Some(found) => data = found,
                    None => return Ok(Err(UNKNOWN)),
                }
                continue;
            }
            _ => continue,
        };
        if channel.number(12) & ALL_INVALID != 0 {
            continue;
        }
        match number(input, channel, sizes)? {
            Some(number) => *place = Some(number),
            None => return Ok(Err(UNKNOWN)),
        }
    }
    if layout.length.is_none() {
        let bytes = channels.parts.iter().find(|(name, _)| name == "DataBytes");
        if let Some((_, bytes)) = bytes.filter(|(_, bytes)| bytes.byte(0) == MAXIMUM_LENGTH) {
            layout.length = match input.block(bytes.link(5), b"CN")? {
                Some(size) => number(input, &size, sizes)?,
                None => None,
            };
        }
    }
    if event != Event::Error && layout.id.is_none() {
        return Ok(Err(
            "records of CAN frames without an identifier, not replayed",
        ));
    }
    Ok(Ok(Frames::new(layout, data)))
}

const ALL_INVALID: u32 = 1;
/// The kind of a master channel that has no bytes in the record. Its value follows from the
/// record's number.
const VIRTUAL_MASTER: u8 = 3;
/// The kind of a channel, other than a master channel, that has no bytes in the record. Its value
/// follows from the record's number.
const VIRTUAL_DATA: u8 = 6;

/// Returns where the record contains the numeric value of a channel, and the conversion to the real
/// value. Returns `None` if the form or the conversion of the value is unknown.
fn number<R: Bytes>(input: &mut Input<R>, channel: &Block, sizes: Sizes) -> Result<Option<Number>> {
    let field = match channel.byte(0) {
        VIRTUAL_MASTER | VIRTUAL_DATA => None,
        _ => match Field::of(channel, sizes) {
            None => return Ok(None),
            field => field,
        },
    };
    let conversion = conversion(input, channel.link(4))?;
    Ok(conversion.map(|conversion| Number::new(field, conversion)))
}

/// Returns the conversion that the block at `at` describes. Returns `None` if the block is damaged,
/// or if its kind of conversion is unknown. A conversion to text does not change the number.
fn conversion<R: Bytes>(input: &mut Input<R>, at: u64) -> Result<Option<Conversion>> {
    const LINEAR: u8 = 1;
    const VALUES: usize = 24;
    if at == 0 {
        return Ok(Some(Conversion::Same));
    }
    let Some(block) = input.block(at, b"CC")? else {
        return Ok(None);
    };
    let value = |number: usize| f64::from_bits(block.long(VALUES + 8 * number));
    Ok(match block.byte(0) {
        0 | 7..=10 => Some(Conversion::Same),
        LINEAR => Some(Conversion::Linear {
            factor: value(1),
            offset: value(0),
        }),
        4 | 5 => {
            let values = block.data().len().saturating_sub(VALUES) / 8;
            let pairs = (values / 2).min(usize::from(block.short(6)) / 2);
            let pairs = (0..pairs).map(|pair| (value(2 * pair), value(2 * pair + 1)));
            Some(Conversion::Table(pairs.collect()))
        }
        _ => None,
    })
}

const MAXIMUM_LENGTH: u8 = 5;

/// Returns where the data bytes of a group's frames are. Returns `None` if their form is unknown.
fn data_bytes<R: Bytes>(
    input: &mut Input<R>,
    channel: &Block,
    sizes: Sizes,
) -> Result<Option<DataBytes>> {
    const FIXED: u8 = 0;
    const VARIABLE: u8 = 1;
    let target = channel.link(5);
    Ok(match channel.byte(0) {
        FIXED | MAXIMUM_LENGTH => Span::of(channel, sizes).map(DataBytes::Inside),
        VARIABLE => {
            let Some(key) = Field::of_key(channel, sizes) else {
                return Ok(None);
            };
            match input.kind(target)? {
                _ if target == 0 => Some(DataBytes::None),
                Some(kind) if kind == *b"CG" => Some(DataBytes::Group { at: target, key }),
                _ => {
                    let stream = Box::new(Stream::new(Content::Values, target));
                    Some(DataBytes::Stream { stream, key })
                }
            }
        }
        _ => None,
    })
}

/// Returns how the records of a group store their time. Returns `None` if onbeat cannot read the
/// group's time.
fn time<R: Bytes>(
    input: &mut Input<R>,
    master: Option<&Block>,
    sizes: Sizes,
) -> Result<Option<Time>> {
    let Some(master) = master else {
        return Ok(None);
    };
    let number = number(input, master, sizes)?;
    Ok(number.and_then(|number| Time::new(number.field, &number.conversion)))
}
