//! Decodes fields from the bits of a packet.

use crate::types::{Field, Integer, Label, Order, Shape, Type};

/// The error that the bits of an event do not fit the types that the metadata declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// The largest number of values in one event. An array of bytes counts as one value. Real events
/// have some dozens.
const MAX_VALUES: u32 = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    /// A text without its final zero byte, or an array of bytes: the position of its first byte, and
    /// the position after its last byte.
    Bytes(usize, usize),
    Other,
}

/// An integer that the decoder has read earlier in the same event. It can choose the field of a
/// later variant, or be the length of a later sequence.
#[derive(Debug)]
pub(crate) struct Seen<'t> {
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
    seen: &'a mut Vec<Seen<'t>>,
    /// The decoder puts integers into `seen`. If no type needs an earlier integer, this is false.
    pub(crate) remembers: bool,
    values_left: u32,
}

impl<'a, 't> Decoder<'a, 't> {
    /// Returns a decoder of the bits from `at` to `end`. Clears `seen`. If the caller gives the same
    /// list for each event, events need no new memory.
    pub(crate) fn new(
        bytes: &'a [u8],
        order: Order,
        (at, end): (u64, u64),
        clock: u64,
        seen: &'a mut Vec<Seen<'t>>,
    ) -> Self {
        seen.clear();
        Decoder {
            bytes,
            order,
            at,
            end: end.min(bytes.len() as u64 * 8),
            clock,
            seen,
            remembers: true,
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
        out: &mut Vec<(&'t str, Value)>,
    ) -> Result<(), Damaged> {
        self.align(ty.align)?;
        for field in ty.fields() {
            let value = self.value(&field.name, &field.ty)?;
            out.push((&field.name, value));
        }
        Ok(())
    }

    /// Goes to the end of a structure without decoding its values, if all values of its type have the
    /// same size. Otherwise decodes it.
    pub(crate) fn skip(
        &mut self,
        ty: &'t Type,
        out: &mut Vec<(&'t str, Value)>,
    ) -> Result<(), Damaged> {
        let bits = ty.fixed_bits.filter(|_| !ty.fields().is_empty());
        let Some(bits) = bits else {
            return self.structure(ty, out);
        };
        self.align(ty.align)?;
        self.at = self.at.checked_add(bits).ok_or(Damaged)?;
        self.align(1)
    }

    fn align(&mut self, align: u32) -> Result<(), Damaged> {
        // The alignment is a power of two.
        let below = u64::from(align) - 1;
        self.at = (self.at + below) & !below;
        match self.at <= self.end {
            true => Ok(()),
            false => Err(Damaged),
        }
    }

    fn value(&mut self, name: &'t str, ty: &'t Type) -> Result<Value, Damaged> {
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

    fn array(&mut self, name: &'t str, element: &'t Type, length: u64) -> Result<Value, Damaged> {
        if element.integer().is_some_and(|i| i.is_byte()) {
            let start = self.at / 8;
            let end = start.checked_add(length).ok_or(Damaged)?;
            if end > self.end / 8 {
                return Err(Damaged);
            }
            self.at = end * 8;
            return Ok(Value::Bytes(start as usize, end as usize));
        }
        // `values_left` ends the loop even if an element has no bits.
        for _ in 0..length {
            self.value(name, element)?;
        }
        Ok(Value::Other)
    }

    fn text(&mut self) -> Result<Value, Damaged> {
        let (start, end) = ((self.at / 8) as usize, (self.end / 8) as usize);
        let rest = self.bytes.get(start..end).ok_or(Damaged)?;
        let length = rest.iter().position(|b| *b == 0).ok_or(Damaged)?;
        self.at += (length as u64 + 1) * 8;
        Ok(Value::Bytes(start, start + length))
    }

    fn integer(
        &mut self,
        name: &'t str,
        integer: Integer,
        labels: &'t [Label],
    ) -> Result<Value, Damaged> {
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
        let value = match integer.signed {
            true => Value::Signed(signed),
            false => Value::Unsigned(raw),
        };
        if self.remembers {
            let value = match integer.signed {
                true => i128::from(signed),
                false => i128::from(raw),
            };
            self.seen.push(Seen {
                name,
                value,
                labels,
            });
        }
        Ok(value)
    }

    /// Reads 1 to 64 bits at the current position. The caller must make sure that enough bits are
    /// left.
    fn bits(&self, bits: u32, order: Order) -> u64 {
        let (first, shift) = ((self.at / 8) as usize, (self.at % 8) as u32);
        let next_word = self.bytes.get(first..).and_then(|rest| rest.first_chunk());
        if let Some(word) = next_word.filter(|_| bits + shift <= 64) {
            return match order {
                Order::Little => u64::from_le_bytes(*word) << (64 - bits - shift) >> (64 - bits),
                Order::Big => u64::from_be_bytes(*word) << shift >> (64 - bits),
            };
        }
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
        assert_eq!(bits_of(&bytes, 0, 5, Order::Little), 0b0_0110);
        assert_eq!(bits_of(&bytes, 5, 11, Order::Little), 0b010_1110_1101);
        assert_eq!(bits_of(&bytes, 0, 5, Order::Big), 0b1_0100);
        assert_eq!(bits_of(&bytes, 5, 11, Order::Big), 0b110_0101_1101);
    }

    #[test]
    fn a_bit_field_has_the_same_value_at_the_end_of_a_packet_and_before_other_bytes() {
        let bytes = [0x9e, 0x37, 0x79, 0xb9, 0x7f, 0x4a, 0x7c, 0x15, 0xf3];
        for order in [Order::Little, Order::Big] {
            for (at, bits) in (0..72).flat_map(|at| (1..=64).map(move |bits| (at, bits))) {
                if at + u64::from(bits) > 72 {
                    continue;
                }
                let padded = [&bytes[..], &[0xff; 8]].concat();
                let (alone, before) = (
                    bits_of(&bytes, at, bits, order),
                    bits_of(&padded, at, bits, order),
                );
                assert_eq!(alone, before, "{bits} bits at {at}, {order:?}");
            }
        }
    }

    fn bits_of(bytes: &[u8], at: u64, bits: u32, order: Order) -> u64 {
        let (end, mut seen) = (bytes.len() as u64 * 8, Vec::new());
        Decoder::new(bytes, order, (at, end), 0, &mut seen).bits(bits, order)
    }

    #[test]
    fn low_bits_of_a_clock_give_the_next_time_with_these_bits() {
        assert_eq!(advance(0x1_ffff_fff0, 0xffff_fff5, 32), 0x1_ffff_fff5);
        assert_eq!(advance(0x1_ffff_fff0, 3, 32), 0x2_0000_0003);
        assert_eq!(advance(7, 3, 64), 3);
    }
}
