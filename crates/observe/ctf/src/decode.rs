//! Decodes fields from the bits of a packet.

use crate::types::{Field, Integer, Label, Order, Shape, Type};

/// The error that the bits of an event do not fit the types that the metadata declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// The largest number of values in one event. An array of bytes counts as one value. Real events
/// have some dozens.
const MAX_VALUES: u32 = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    /// A text without its final zero byte, or an array of bytes.
    Bytes(&'a [u8]),
    Other,
}

/// An integer that the decoder has read earlier in the same event. It can choose the field of a
/// later variant, or be the length of a later sequence.
struct Seen<'t> {
    name: &'t str,
    value: i128,
    labels: &'t [Label],
}

pub(crate) struct Decoder<'a, 't> {
    bytes: &'a [u8],
    order: Order,
    /// The position of the next bit, in bits from the beginning of `bytes`.
    pub(crate) at: u64,
    /// The position at which the content of `bytes` ends, in bits.
    end: u64,
    /// The latest value of the trace's clock. Each integer that is a time of this clock advances
    /// it.
    pub(crate) clock: u64,
    seen: Vec<Seen<'t>>,
    values_left: u32,
}

impl<'a, 't> Decoder<'a, 't> {
    pub(crate) fn new(bytes: &'a [u8], order: Order, (at, end): (u64, u64), clock: u64) -> Self {
        Decoder {
            bytes,
            order,
            at,
            end: end.min(bytes.len() as u64 * 8),
            clock,
            seen: Vec::new(),
            values_left: MAX_VALUES,
        }
    }

    /// Returns the latest value of the integer `name` that the decoder has read. Returns `None` if
    /// the decoder has read none, or if the value is negative.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let found = self.seen.iter().rev().find(|seen| seen.name == name)?;
        u64::try_from(found.value).ok()
    }

    pub(crate) fn structure(
        &mut self,
        ty: &'t Type,
        out: &mut Vec<(&'t str, Value<'a>)>,
    ) -> Result<(), Damaged> {
        self.align(ty.align)?;
        for field in ty.fields() {
            let value = self.value(&field.name, &field.ty)?;
            out.push((&field.name, value));
        }
        Ok(())
    }

    fn align(&mut self, align: u32) -> Result<(), Damaged> {
        self.at = self.at.next_multiple_of(u64::from(align));
        match self.at <= self.end {
            true => Ok(()),
            false => Err(Damaged),
        }
    }

    fn value(&mut self, name: &'t str, ty: &'t Type) -> Result<Value<'a>, Damaged> {
        self.values_left = self.values_left.checked_sub(1).ok_or(Damaged)?;
        self.align(ty.align)?;
        match &ty.shape {
            Shape::Integer(integer) => self.integer(name, *integer, &[]),
            Shape::Enumeration(integer, labels) => self.integer(name, *integer, labels),
            Shape::Float(bits) => {
                self.at += u64::from(*bits);
                self.align(1)?;
                Ok(Value::Other)
            }
            Shape::Text => self.text(),
            Shape::Array(element, length) => self.array(name, element, *length),
            Shape::Sequence(element, length) => {
                let length = self.number(length).ok_or(Damaged)?;
                self.array(name, element, length)
            }
            Shape::Structure(fields) => {
                for Field { name, ty } in fields {
                    self.value(name, ty)?;
                }
                Ok(Value::Other)
            }
            Shape::Variant(tag, choices) => {
                let tag = tag.as_deref().ok_or(Damaged)?;
                let seen = self.seen.iter().rev().find(|seen| seen.name == tag);
                let &Seen { value, labels, .. } = seen.ok_or(Damaged)?;
                let mut fitting = labels
                    .iter()
                    .filter(|label| (label.from..=label.to).contains(&value));
                let chosen = fitting
                    .find_map(|label| choices.iter().find(|c| same(&c.name, &label.name)))
                    .ok_or(Damaged)?;
                self.value(&chosen.name, &chosen.ty)
            }
        }
    }

    fn array(
        &mut self,
        name: &'t str,
        element: &'t Type,
        length: u64,
    ) -> Result<Value<'a>, Damaged> {
        if element.integer().is_some_and(|i| i.is_byte()) {
            let start = self.at / 8;
            let end = start.checked_add(length).ok_or(Damaged)?;
            if end > self.end / 8 {
                return Err(Damaged);
            }
            self.at = end * 8;
            return Ok(Value::Bytes(&self.bytes[start as usize..end as usize]));
        }
        // `values_left` ends the loop even if an element has no bits.
        for _ in 0..length {
            self.value(name, element)?;
        }
        Ok(Value::Other)
    }

    fn text(&mut self) -> Result<Value<'a>, Damaged> {
        let (start, end) = ((self.at / 8) as usize, (self.end / 8) as usize);
        let rest = self.bytes.get(start..end).ok_or(Damaged)?;
        let length = rest.iter().position(|b| *b == 0).ok_or(Damaged)?;
        self.at += (length as u64 + 1) * 8;
        Ok(Value::Bytes(&rest[..length]))
    }

    fn integer(
        &mut self,
        name: &'t str,
        integer: Integer,
        labels: &'t [Label],
    ) -> Result<Value<'a>, Damaged> {
        let bits = integer.bits;
        if self.at + u64::from(bits) > self.end {
            return Err(Damaged);
        }
        let raw = self.bits(bits, integer.order.unwrap_or(self.order));
        self.at += u64::from(bits);
        if integer.is_time {
            self.clock = advance(self.clock, raw, bits);
        }
        let signed = (raw << (64 - bits)) as i64 >> (64 - bits);
        let (value, number) = match integer.signed {
            true => (Value::Signed(signed), i128::from(signed)),
            false => (Value::Unsigned(raw), i128::from(raw)),
        };
        self.seen.push(Seen {
            name,
            value: number,
            labels,
        });
        Ok(value)
    }

    /// Reads 1 to 64 bits at the current position. The caller must make sure that enough bits are
    /// left.
    fn bits(&self, bits: u32, order: Order) -> u64 {
        let (first, shift) = ((self.at / 8) as usize, (self.at % 8) as u32);
        let last = ((self.at + u64::from(bits) - 1) / 8) as usize;
        let bytes = &self.bytes[first..=last];
        // 64 bits lie in at most nine bytes, which fit into a `u128`.
        let joined = match order {
            Order::Little => {
                let fold = |sum, b: &u8| sum << 8 | u128::from(*b);
                bytes.iter().rev().fold(0u128, fold) >> shift
            }
            Order::Big => {
                let all = bytes.iter().fold(0u128, |sum, b| sum << 8 | u128::from(*b));
                all >> (bytes.len() as u32 * 8 - shift - bits)
            }
        };
        joined as u64 & (u64::MAX >> (64 - bits))
    }
}

/// Returns whether `choice`, the name of a field of a variant, stands for `label`, a label of an
/// enumeration. The name may lack the leading underscore of the label.
fn same(choice: &str, label: &str) -> bool {
    choice == label || label.strip_prefix('_') == Some(choice)
}

/// Returns the first value of the clock, from `before` on, whose lowest `bits` bits are `low`.
fn advance(before: u64, low: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return low;
    }
    let mask = (1u64 << bits) - 1;
    let time = before & !mask | low;
    match low < before & mask {
        true => time.wrapping_add(1 << bits),
        false => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_fields_are_read_in_little_and_big_byte_order() {
        let bytes = [0b1010_0110, 0b0101_1101];
        let at = |at, bits, order| {
            let mut decoder = Decoder::new(&bytes, order, (0, 16), 0);
            decoder.at = at;
            decoder.bits(bits, order)
        };
        assert_eq!(at(0, 5, Order::Little), 0b0_0110);
        assert_eq!(at(5, 11, Order::Little), 0b010_1110_1101);
        assert_eq!(at(0, 5, Order::Big), 0b1_0100);
        assert_eq!(at(5, 11, Order::Big), 0b110_0101_1101);
    }

    #[test]
    fn low_bits_of_a_clock_give_the_next_time_with_these_bits() {
        assert_eq!(advance(0x1_ffff_fff0, 0xffff_fff5, 32), 0x1_ffff_fff5);
        assert_eq!(advance(0x1_ffff_fff0, 3, 32), 0x2_0000_0003);
        assert_eq!(advance(7, 3, 64), 3);
    }
}
