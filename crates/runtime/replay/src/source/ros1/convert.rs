//! Converts messages from ROS 1's bytes, which have no gaps, to CDR, in which numbers are aligned.

use super::layout::{Count, Layout, Member, Part};

const LITTLE_ENDIAN_CDR: [u8; 4] = [0, 1, 0, 0];

/// Clears `cdr` and fills it with the message in the layout of ROS 2. Returns `None` if the message
/// does not match its definition.
pub fn convert(layout: &Layout, message: &[u8], cdr: &mut Vec<u8>) -> Option<()> {
    cdr.clear();
    cdr.extend_from_slice(&LITTLE_ENDIAN_CDR);
    let mut rest = message;
    members(&layout.members, &mut rest, cdr)?;
    rest.is_empty().then_some(())
}

fn members(members: &[Member], rest: &mut &[u8], cdr: &mut Vec<u8>) -> Option<()> {
    if members.is_empty() {
        // C and C++ have no empty structs, so ROS 2 adds a byte.
        cdr.push(0);
    }
    for member in members {
        let count = match member.count {
            Count::One => 1,
            Count::Array(count) => count,
            Count::Sequence => {
                let count = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
                number(&count.to_le_bytes(), 4, cdr);
                count as usize
            }
        };
        // An element has at least one byte.
        if count > rest.len() && !matches!(member.count, Count::One) {
            return None;
        }
        parts(&member.part, count, rest, cdr)?;
    }
    Some(())
}

fn parts(part: &Part, count: usize, rest: &mut &[u8], cdr: &mut Vec<u8>) -> Option<()> {
    match part {
        Part::Sequence => drop(take(rest, 4)?),
        Part::Number(_) if count == 0 => {}
        Part::Number(size) => number(take(rest, count.checked_mul(*size)?)?, *size, cdr),
        Part::Text => {
            for _ in 0..count {
                let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
                let text = take(rest, length as usize)?;
                // A text of ROS 2 ends with a 0, which counts.
                number(&length.checked_add(1)?.to_le_bytes(), 4, cdr);
                cdr.extend_from_slice(text);
                cdr.push(0);
            }
        }
        Part::Message(inner) => {
            for _ in 0..count {
                members(inner, rest, cdr)?;
            }
        }
    }
    Some(())
}

fn take<'m>(rest: &mut &'m [u8], length: usize) -> Option<&'m [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn number(bytes: &[u8], size: usize, cdr: &mut Vec<u8>) {
    let at = cdr.len() - LITTLE_ENDIAN_CDR.len();
    cdr.resize(at.next_multiple_of(size) + LITTLE_ENDIAN_CDR.len(), 0);
    cdr.extend_from_slice(bytes);
}
