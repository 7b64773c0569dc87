//! Decodes fields from the bits of a packet.

use crate::types::{Field, Integer, Label, Order, Shape, ShortHeader, Type};

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
        let fields = ty.fields();
        let is_simple = !self.remembers && !fields.is_empty();
        if let Some(bits) = ty.fixed_bits.filter(|_| is_simple) {
            return self.fixed(fields, bits, out);
        }
        for field in fields {
            let value = match field.ty.shape {
                // Most values are integers.
                Shape::Integer(integer) => {
                    self.values_left = self.values_left.checked_sub(1).ok_or(Damaged)?;
                    self.align(field.ty.align)?;
                    self.integer(&field.name, integer, &[])?
                }
                _ => self.value(&field.name, &field.ty)?,
            };
            out.push((&field.name, value));
        }
        Ok(())
    }

    /// Decodes the fields of a structure whose values have `bits` bits in every event. One check finds
    /// out whether the packet has all of them, and no integer needs an alignment.
    fn fixed(
        &mut self,
        fields: &'t [Field],
        bits: u64,
        out: &mut Vec<(&'t str, Value)>,
    ) -> Result<(), Damaged> {
        if self.end - self.at < bits {
            return Err(Damaged);
        }
        for field in fields {
            let value = match field.ty.shape {
                Shape::Integer(integer) => self.read(integer),
                _ => self.value(&field.name, &field.ty)?,
            };
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

    /// Decodes the header of an event, and returns its id. Returns `None` and stays where it is if
    /// more than a time follows the id, or if the header is damaged.
    pub(crate) fn short_header(&mut self, header: &ShortHeader) -> Option<u64> {
        let before = (self.at, self.clock);
        let id = self.short(header).ok().flatten();
        if id.is_none() {
            (self.at, self.clock) = before;
        }
        id
    }

    fn short(&mut self, header: &ShortHeader) -> Result<Option<u64>, Damaged> {
        self.align(header.align)?;
        let Value::Unsigned(id) = self.bounded(header.id)? else {
            return Ok(None);
        };
        if !(header.ids.0..=header.ids.1).contains(&i128::from(id)) {
            return Ok(None);
        }
        self.align(header.time_align)?;
        self.bounded(header.time)?;
        Ok(Some(id))
    }

    #[inline]
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
                    .find_map(|label| choices.iter().find(|c| label.chooses(&c.name)))
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

    #[inline]
    fn integer(
        &mut self,
        name: &'t str,
        integer: Integer,
        labels: &'t [Label],
    ) -> Result<Value, Damaged> {
        let value = self.bounded(integer)?;
        if self.remembers {
            let value = match value {
                Value::Signed(number) => i128::from(number),
                Value::Unsigned(number) => i128::from(number),
                Value::Bytes(..) | Value::Other => 0,
            };
            self.seen.push(Seen {
                name,
                value,
                labels,
            });
        }
        Ok(value)
    }

    #[inline(always)]
    fn bounded(&mut self, integer: Integer) -> Result<Value, Damaged> {
        match self.at + u64::from(integer.bits) <= self.end {
            true => Ok(self.read(integer)),
            false => Err(Damaged),
        }
    }

    /// Reads an integer. The caller must make sure that enough bits are left.
    #[inline(always)]
    fn read(&mut self, integer: Integer) -> Value {
        let bits = integer.bits;
        let raw = self.bits(bits, integer.order.unwrap_or(self.order));
        self.at += u64::from(bits);
        if integer.is_time {
            self.clock = advance(self.clock, raw, bits);
        }
        match integer.signed {
            true => Value::Signed((raw << (64 - bits)) as i64 >> (64 - bits)),
            false => Value::Unsigned(raw),
        }
    }

    /// Reads 1 to 64 bits at the current position. The caller must make sure that enough bits are
    /// left.
    #[inline]
    fn bits(&self, bits: u32, order: Order) -> u64 {
        let (first, shift) = ((self.at / 8) as usize, (self.at % 8) as u32);
        let next_word = self.bytes.get(first..).and_then(|rest| rest.first_chunk());
        if let Some(word) = next_word.filter(|_| bits + shift <= 64) {
            return match order {
                Order::Little => u64::from_le_bytes(*word) << (64 - bits - shift) >> (64 - bits),
                Order::Big => u64::from_be_bytes(*word) << shift >> (64 - bits),
            };
        }
        self.last_bits(bits, order)
    }

    /// Reads bits like [`Decoder::bits`], at the end of the content or across nine bytes.
    #[cold]
    fn last_bits(&self, bits: u32, order: Order) -> u64 {
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
    use crate::metadata::Metadata;

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

    const HEADERS: &str = r#"/* CTF 1.8 */
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
trace { major = 1; minor = 8; byte_order = ORDER; };
clock { name = monotonic; freq = 1000000000; offset = 0; };
typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := time27_t;
typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := time32_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := time64_t;
struct compact {
    enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
    variant <id> {
        struct { time27_t timestamp; } compact;
        struct { uint32_t id; time64_t timestamp; } extended;
    } v;
} align(8);
struct large {
    enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
    variant <id> {
        struct { time32_t timestamp; } compact;
        struct { uint32_t id; time64_t timestamp; } extended;
    } v;
} align(8);
stream { id = 0; event.header := struct HEADER; };
"#;

    #[test]
    fn the_short_form_of_a_header_has_the_id_and_the_time_of_the_whole_header() {
        let mut random = 1u64;
        for (order, header) in [
            ("le", "compact"),
            ("le", "large"),
            ("be", "compact"),
            ("be", "large"),
        ] {
            let text = HEADERS.replace("ORDER", order).replace("HEADER", header);
            let metadata = Metadata::read(text.as_bytes()).expect("metadata");
            let class = &metadata.streams[&0];
            let whole = class.event_header.as_deref().expect("a header");
            let short = class.short_header.expect("a short form");
            let mut found = [0; 2];
            for round in 0..2000u64 {
                let mut bytes = [0u8; 24];
                for byte in &mut bytes {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    // Every other header has the id that announces a longer form.
                    let is_extended = round % 2 == 1 && random >> 63 == 1;
                    *byte = if is_extended {
                        0xff
                    } else {
                        (random >> 40) as u8
                    };
                }
                let (at, end) = (round % 40, 192 - round % 150);
                let (mut seen, mut other) = (Vec::new(), Vec::new());
                let new =
                    |seen| Decoder::new(&bytes, metadata.order, (at, end), 0x1234_5678_9abc, seen);
                let (mut of_short, mut of_whole) = (new(&mut seen), new(&mut other));
                let id = of_short.short_header(&short);
                let decoded = of_whole.structure(whole, &mut Vec::new());
                found[usize::from(id.is_some())] += 1;
                match id {
                    Some(_) => {
                        assert_eq!(decoded, Ok(()));
                        assert_eq!(id, of_whole.number("id"));
                        assert_eq!((of_short.at, of_short.clock), (of_whole.at, of_whole.clock));
                    }
                    None => {
                        assert_eq!((of_short.at, of_short.clock), (at, 0x1234_5678_9abc));
                        let is_short =
                            decoded.is_ok() && of_whole.at <= (at.next_multiple_of(8) + 48);
                        assert!(!is_short, "{header}: {at} to {end}");
                    }
                }
            }
            assert!(found[0] > 50 && found[1] > 500, "{header}: {found:?}");
        }
    }

    const FIELDS: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := byte_t;
typealias integer { size = 16; align = ALIGN; signed = true; } := int16_t;
typealias integer { size = 24; align = 8; signed = false; byte_order = be; } := odd_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
trace { major = 1; minor = 8; byte_order = ORDER; };
clock { name = monotonic; freq = 1000000000; offset = 0; };
typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := time_t;
stream { id = 0; event.header := struct { byte_t id; }; };
event { id = 0; name = "all"; stream_id = 0; fields := struct {
    int16_t small; odd_t odd; byte_t name[5]; time_t time; int64_t large;
    struct { byte_t inner; } within; floating_point { exp_dig = 8; mant_dig = 24; align = 8; } real; byte_t last;
}; };
"#;

    #[test]
    fn a_structure_of_one_size_is_decoded_as_any_other_structure() {
        let mut random = 1u64;
        for (order, align) in [("le", 8), ("be", 8), ("le", 1), ("be", 1)] {
            let text = FIELDS.replace("ORDER", order);
            let metadata = Metadata::read(text.replace("ALIGN", &align.to_string()).as_bytes());
            let metadata = metadata.expect("metadata");
            let event = &metadata.streams[&0].events[&0];
            let ty = event.fields.as_deref().expect("fields");
            assert!(ty.fixed_bits.is_some());
            let mut found = [0; 2];
            for round in 0..2000 {
                let mut bytes = [0u8; 40];
                for byte in &mut bytes {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    *byte = (random >> 40) as u8;
                }
                let (at, end) = (round % 40, 320 - round % 130);
                let decode = |remembers| {
                    let (mut seen, mut values) = (Vec::new(), Vec::new());
                    let place = (at, end);
                    let mut decoder =
                        Decoder::new(&bytes, metadata.order, place, 0x1234_5678_9abc, &mut seen);
                    decoder.remembers = remembers;
                    let decoded = decoder.structure(ty, &mut values);
                    decoded.map(|()| (values, decoder.at, decoder.clock))
                };
                let (fixed, any) = (decode(false), decode(true));
                assert_eq!(fixed, any, "{order}: {at} to {end}");
                found[usize::from(fixed.is_ok())] += 1;
            }
            assert!(found[0] > 100 && found[1] > 500, "{order}: {found:?}");
        }
    }

    #[test]
    fn a_type_that_is_no_structure_takes_no_bits() {
        let bytes = [0; 4];
        let metadata = Metadata::read(
            FIELDS
                .replace("ALIGN", "8")
                .replace("ORDER", "le")
                .as_bytes(),
        );
        let metadata = metadata.expect("metadata");
        let event = &metadata.streams[&0].events[&0];
        let integer = &event.fields.as_deref().expect("fields").fields()[0].ty;
        assert!(integer.fixed_bits.is_some());
        for remembers in [false, true] {
            let (mut seen, mut values) = (Vec::new(), Vec::new());
            let mut decoder = Decoder::new(&bytes, Order::Little, (32, 32), 0, &mut seen);
            decoder.remembers = remembers;
            assert_eq!(decoder.structure(integer, &mut values), Ok(()));
            assert_eq!((decoder.at, values.len()), (32, 0));
        }
    }

    #[test]
    fn low_bits_of_a_clock_give_the_next_time_with_these_bits() {
        assert_eq!(advance(0x1_ffff_fff0, 0xffff_fff5, 32), 0x1_ffff_fff5);
        assert_eq!(advance(0x1_ffff_fff0, 3, 32), 0x2_0000_0003);
        assert_eq!(advance(7, 3, 64), 3);
    }
}
