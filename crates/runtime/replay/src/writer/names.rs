//! Gives streams the names and numbers that a target allows.

use super::{Plan, Target, ETHERNET};
use crate::item::Kind;

/// The longest name of an interface in a candump log, in bytes.
const LONGEST: usize = 21;
const MOST_CHANNELS: usize = 255;

/// Sets the names and the channel numbers of the streams that are written. Adds changed names to
/// the losses. If the target has no channel left for a stream, the stream is left out.
pub fn give(plan: &mut Plan) {
    match plan.target {
        Target::Candump => candump(plan),
        Target::Asc => channels(plan, &[(Kind::Can, "can")]),
        Target::Blf => {
            let link_type = ETHERNET;
            channels(
                plan,
                &[(Kind::Can, "can"), (Kind::Packets { link_type }, "eth")],
            );
        }
        Target::Mcap | Target::Rosbag2 => {
            let is_bare = |stream: &&super::StreamPlan| {
                plan.target.holds(&stream.stream.kind) && stream.definition.is_none()
            };
            let bare = plan.streams.iter().filter(is_bare).count() as u64;
            if bare > 0 {
                plan.losses.add(
                    "topics whose type has no definition, neither in the recording nor in the ROS 2 installation",
                    bare,
                );
            }
        }
        Target::Pcapng => {}
    }
    let joined = joined(plan);
    if joined > 0 {
        let what = "streams joined with an earlier stream of the same name";
        plan.losses.add(what, joined);
    }
}

fn joined(plan: &Plan) -> u64 {
    let written = plan.streams.iter().filter(|stream| stream.items > 0);
    let mut seen = std::collections::HashSet::new();
    let keys = written.map(|stream| {
        let kind = match &stream.stream.kind {
            Kind::Ros { type_name, .. } => type_name.clone(),
            Kind::Packets { link_type } => link_type.to_string(),
            _ => String::new(),
        };
        (stream.stream.name.clone(), kind)
    });
    keys.filter(|key| !seen.insert(key.clone())).count() as u64
}

fn candump(plan: &mut Plan) {
    let is_valid = |name: &str| {
        let is_bad = |c: char| c.is_whitespace() || c.is_control();
        !name.is_empty() && name.len() <= LONGEST && !name.contains(is_bad)
    };
    let mut changed = Vec::new();
    let mut number = 0;
    for at in 0..plan.streams.len() {
        let name = plan.streams[at].stream.name.clone();
        if plan.streams[at].items == 0 || is_valid(&name) {
            continue;
        }
        let written = |plan: &Plan, name: &str| {
            let mut streams = plan.streams.iter();
            streams.any(|stream| stream.written_as == name)
        };
        while written(plan, &format!("can{number}")) {
            number += 1;
        }
        plan.streams[at].written_as = format!("can{number}");
        changed.push((name, format!("can{number}")));
    }
    renamed(plan, &changed);
}

/// Gives a channel number to each stream of these kinds. If all names have the form `can3`, the
/// streams keep the numbers in their names.
fn channels(plan: &mut Plan, kinds: &[(Kind, &str)]) {
    let mut changed = Vec::new();
    for (kind, prefix) in kinds {
        let mut names: Vec<String> = Vec::new();
        for stream in &plan.streams {
            let is_new = !names.contains(&stream.stream.name);
            if stream.stream.kind == *kind && stream.items > 0 && is_new {
                names.push(stream.stream.name.clone());
            }
        }
        let own: Option<Vec<u8>> = names.iter().map(|name| number(name, prefix)).collect();
        let mut left_out = 0;
        for stream in &mut plan.streams {
            if stream.stream.kind != *kind || stream.items == 0 {
                continue;
            }
            let at = names.iter().position(|name| *name == stream.stream.name);
            let at = at.unwrap_or(0);
            if at >= MOST_CHANNELS {
                left_out += stream.items;
                stream.items = 0;
                continue;
            }
            let channel = own.as_ref().map_or(at + 1, |own| own[at].into());
            stream.written_as = channel.to_string();
            let back = format!("{prefix}{channel}");
            if back != stream.stream.name {
                changed.push((stream.stream.name.clone(), back));
            }
        }
        plan.items -= left_out;
        if left_out > 0 {
            let what = "items left out, because they are of streams beyond the first 255";
            plan.losses.add(what, left_out);
        }
    }
    renamed(plan, &changed);
}

fn renamed(plan: &mut Plan, changed: &[(String, String)]) {
    const SHOWN: usize = 8;
    if changed.is_empty() {
        return;
    }
    let shown = changed.iter().take(SHOWN);
    let shown: Vec<String> = shown.map(|(old, new)| format!("{old} is {new}")).collect();
    let more = match changed.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!(
        "names of streams changed, because the format cannot store them ({}{more})",
        crate::source::damage::printable(&shown.join(", "))
    );
    plan.losses.add(&what, changed.len() as u64);
}

/// Returns the number in a name such as `can3`, if it is from 1 to 255.
fn number(name: &str, prefix: &str) -> Option<u8> {
    let digits = name.strip_prefix(prefix)?;
    let number: u8 = digits.parse().ok().filter(|&number| number > 0)?;
    (number.to_string() == digits).then_some(number)
}
