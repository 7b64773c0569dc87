//! Finds the groups of an MDF 4 file, and the fields of those with CAN frames.

use super::input::{place, Block, Input};
use super::layout::{Event, Field, Layout, Sizes, Span, Time};
use super::records::{DataBytes, Frames, Group, Records, Use};
use super::stream::{Content, Stream};
use crate::source::Bytes;
use std::io::Result;

/// The largest number of groups with CAN frames.
const MOST_GROUPS: usize = 256;
/// The longest record of a CAN frame.
const LONGEST_RECORD: usize = 4096;

const VALUES: u16 = 1;
const NO_FRAMES: &str = "records without CAN frames (signals, LIN, Ethernet ...), not replayed";

/// Reads the descriptions of all groups. `first` links to the first data group.
pub fn read<R: Bytes>(input: &mut Input<R>, first: u64) -> Result<Vec<Records>> {
    let mut all = Vec::new();
    let mut frame_groups = 0;
    let mut next = first;
    while let Some(block) = input.listed(next, b"DG")? {
        next = block.link(0);
        let groups = groups(input, &block, &mut frame_groups)?;
        let has_frames = groups
            .iter()
            .any(|group| matches!(group.role, Use::Frames(_)));
        if has_frames || input.is_unfinished {
            let id_size = block.byte(0);
            if !matches!(id_size, 0 | 1 | 2 | 4 | 8) {
                input.damage.add(
                    "groups with an impossible size of numbers, left out",
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

fn groups<R: Bytes>(
    input: &mut Input<R>,
    block: &Block,
    frame_groups: &mut usize,
) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    let mut next = block.link(1);
    while let Some(block) = input.listed(next, b"CG")? {
        next = block.link(0);
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
                Ok(frames) if *frame_groups < MOST_GROUPS => {
                    *frame_groups += 1;
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

/// Gives each group of values to the group whose data bytes it has.
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

/// The channels of a group that belong to a CAN frame, each with the name of its component.
#[derive(Default)]
struct Channels {
    event: Option<Event>,
    master: Option<Block>,
    parts: Vec<(String, Block)>,
    /// The name of the first channel.
    first: String,
}

fn channels<R: Bytes>(input: &mut Input<R>, first: u64) -> Result<Channels> {
    const MASTERS: [u8; 2] = [2, 3];
    const TIME: u8 = 1;
    let mut found = Channels::default();
    // Lists to be read, each with the frame whose components it has.
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
            found.parts.push((part.to_owned(), block));
        }
        // A composition can be an array instead, which no component of a frame is.
        if composed != 0 && input.kind(composed)? == Some(*b"CN") {
            lists.push((composed, inner));
        }
    }
    Ok(found)
}

fn frames<R: Bytes>(
    input: &mut Input<R>,
    channels: Channels,
    event: Event,
    sizes: Sizes,
) -> Result<std::result::Result<Frames, &'static str>> {
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
    let block = |name: &str| {
        let part = channels.parts.iter().find(|(part, _)| part == name);
        part.map(|(_, block)| block)
    };
    let field = |name: &str| Field::of(block(name)?, sizes);
    let mut layout = Layout {
        event,
        time,
        channel: field("BusChannel"),
        id: field("ID"),
        is_extended: field("IDE"),
        code: field("DLC"),
        length: field("DataLength"),
        is_fd: field("EDL"),
        switches_rate: field("BRS"),
        is_passive: field("ESI"),
    };
    let mut data = DataBytes::None;
    if let Some(block) = block("DataBytes").filter(|_| event == Event::Data) {
        match data_bytes(input, block, sizes)? {
            Some(found) => data = found,
            None => {
                return Ok(Err(
                    "records of CAN frames with data bytes in an unknown form, not replayed",
                ))
            }
        }
        if block.byte(0) == MAXIMUM_LENGTH && layout.length.is_none() {
            layout.length = match input.block(block.link(5), b"CN")? {
                Some(size) => Field::of(&size, sizes),
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

const MAXIMUM_LENGTH: u8 = 5;

/// Returns where the data bytes of frames are. `None` if the format is unknown.
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

/// Returns the time of a group's records. `None` if it has none that can be read.
fn time<R: Bytes>(
    input: &mut Input<R>,
    master: Option<&Block>,
    sizes: Sizes,
) -> Result<Option<Time>> {
    const VIRTUAL: u8 = 3;
    const NONE: u8 = 0;
    const LINEAR: u8 = 1;
    let Some(master) = master else {
        return Ok(None);
    };
    let field = match master.byte(0) {
        VIRTUAL => None,
        _ => match Field::of(master, sizes) {
            None => return Ok(None),
            field => field,
        },
    };
    let (mut factor, mut offset) = (1.0, 0.0);
    if master.link(4) != 0 {
        let Some(conversion) = input.block(master.link(4), b"CC")? else {
            return Ok(None);
        };
        match conversion.byte(0) {
            NONE => {}
            LINEAR => {
                offset = f64::from_bits(conversion.long(24));
                factor = f64::from_bits(conversion.long(32));
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(Time::new(field, factor, offset)))
}
