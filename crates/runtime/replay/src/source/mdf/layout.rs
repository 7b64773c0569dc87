//! Reads the time of a record, and the fields of its CAN frame.

use super::input::Block;
use crate::source::can;
pub use usual::{Usual, SEEN};

mod usual;

pub const NO_TIME: &str = "frames with an impossible time";
pub const NO_LENGTH: &str = "frames with an impossible length";
const NO_IDENTIFIER: &str = "frames with an impossible identifier";
const NO_CHANNEL: &str = "frames with an impossible channel number";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Little,
    Big,
    LittleFloat,
    BigFloat,
}

/// The place and the form of a number in a record.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    at: usize,
    size: usize,
    shift: u8,
    mask: u64,
    /// The eight bytes of the record that contain the number. `None` if the record is too short, or
    /// if the number extends over nine bytes.
    window: Option<Window>,
    is_signed: bool,
    form: Form,
    /// The index of the bit that marks the value as invalid, counted from the record's beginning.
    /// `None` if the record does not have such a bit.
    invalid: Option<usize>,
}

/// The place of eight bytes in a record, and the number of bits below the number in these bytes.
#[derive(Debug, Clone, Copy)]
struct Window {
    at: usize,
    shift: u8,
}

impl Window {
    fn of(span: Span, shift: u8, bits: u32, is_big: bool, record: usize) -> Option<Window> {
        let at = span.at.min(record.checked_sub(8)?);
        let below = match is_big {
            true => (at + 8).checked_sub(span.at + span.size)?,
            false => span.at - at,
        };
        let shift = u8::try_from(8 * below + usize::from(shift)).ok()?;
        (u32::from(shift) + bits <= 64).then_some(Window { at, shift })
    }
}

/// The place of a sequence of bytes in a record: its position and its length, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub at: usize,
    pub size: usize,
}

/// The sizes in bytes of the two parts of a record: the values, and the bits that mark values as
/// invalid.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub data: usize,
    pub invalid: usize,
}

impl Sizes {
    pub fn whole(self) -> usize {
        self.data + self.invalid
    }
}

impl Span {
    /// Returns where a channel's bytes are in the record. Returns `None` if they would be outside
    /// of the record.
    pub fn of(channel: &Block, sizes: Sizes) -> Option<Span> {
        let (at, bits) = (channel.number(4) as usize, channel.number(8) as usize);
        let size = (usize::from(channel.byte(3)) + bits).div_ceil(8);
        (at.checked_add(size)? <= sizes.data).then_some(Span { at, size })
    }
}

impl Field {
    /// Returns where and in which form the record contains the numeric value of a channel. Returns
    /// `None` if the value would be outside of the record, or if the channel's values are not
    /// numbers.
    pub fn of(channel: &Block, sizes: Sizes) -> Option<Field> {
        let form = match channel.byte(2) {
            0 | 2 => Form::Little,
            1 | 3 => Form::Big,
            4 => Form::LittleFloat,
            5 => Form::BigFloat,
            _ => return None,
        };
        Field::new(channel, sizes, form)
    }

    /// Returns where a channel's key is stored in the record. The key is a number that says where
    /// another block contains the channel's value.
    pub fn of_key(channel: &Block, sizes: Sizes) -> Option<Field> {
        Field::new(channel, sizes, Form::Little)
    }

    fn new(channel: &Block, sizes: Sizes, form: Form) -> Option<Field> {
        const INVALID_BIT: u32 = 2;
        let Span { at, size } = Span::of(channel, sizes)?;
        let (shift, bits) = (channel.byte(3), channel.number(8));
        let is_float = matches!(form, Form::LittleFloat | Form::BigFloat);
        let is_possible = match is_float {
            true => shift == 0 && matches!(bits, 32 | 64),
            false => shift < 8 && (1..=64).contains(&bits),
        };
        let flags = channel.number(12);
        if !is_possible {
            return None;
        }
        let invalid = match flags & INVALID_BIT {
            0 => None,
            _ => Some(sizes.data * 8 + channel.number(16) as usize),
        };
        if invalid.is_some_and(|bit| bit / 8 >= sizes.whole()) {
            return None;
        }
        Some(Field {
            at,
            size,
            shift,
            mask: u64::MAX >> (64 - bits),
            window: Window::of(
                Span { at, size },
                shift,
                bits,
                matches!(form, Form::Big | Form::BigFloat),
                sizes.whole(),
            ),
            is_signed: matches!(channel.byte(2), 2 | 3),
            form,
            invalid,
        })
    }

    /// Returns the bits of the number, without sign extension. Returns `None` if the record marks
    /// the value as invalid.
    #[inline]
    pub fn bits(&self, record: &[u8]) -> Option<u64> {
        if let Some(bit) = self.invalid {
            if record[bit / 8] >> (bit % 8) & 1 != 0 {
                return None;
            }
        }
        let is_big = matches!(self.form, Form::Big | Form::BigFloat);
        let eight = |window: Window| record.get(window.at..)?.first_chunk::<8>();
        if let Some((window, bytes)) = self.window.and_then(|at| Some((at, eight(at)?))) {
            let wide = match is_big {
                true => u64::from_be_bytes(*bytes),
                false => u64::from_le_bytes(*bytes),
            };
            return Some(wide >> window.shift & self.mask);
        }
        Some(self.wide_bits(record, is_big))
    }

    /// Returns the bits of a number that has no window.
    #[inline(never)]
    fn wide_bits(&self, record: &[u8], is_big: bool) -> u64 {
        let mut wide = [0; 16];
        wide[..self.size].copy_from_slice(&record[self.at..self.at + self.size]);
        if is_big {
            wide[..self.size].reverse();
        }
        (u128::from_le_bytes(wide) >> self.shift) as u64 & self.mask
    }

    fn is_float(&self) -> bool {
        matches!(self.form, Form::LittleFloat | Form::BigFloat)
    }

    fn float(&self, record: &[u8]) -> Option<f64> {
        let bits = self.bits(record)?;
        Some(match self.size {
            4 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        })
    }

    fn signed(&self, record: &[u8]) -> Option<i128> {
        let bits = self.bits(record)?;
        let sign = self.mask - (self.mask >> 1);
        Some(match self.is_signed && bits & sign != 0 {
            true => i128::from(bits) - i128::from(self.mask) - 1,
            false => i128::from(bits),
        })
    }
}

/// The conversion from a stored value to the real value.
#[derive(Debug, Clone)]
pub enum Conversion {
    Same,
    Linear {
        factor: f64,
        offset: f64,
    },
    /// A table of pairs: a stored value and its real value.
    Table(Vec<(f64, f64)>),
}

/// A whole number of a record. It is stored in a field, is constant, or follows from the record's
/// number.
#[derive(Debug, Clone)]
pub struct Number {
    /// The place of a number that is stored as it is, which is the usual case.
    plain: Option<(Window, u64)>,
    /// The field with the stored value. `None` if the record's number in its group is the stored
    /// value.
    pub field: Option<Field>,
    pub conversion: Conversion,
}

impl Number {
    pub fn new(field: Option<Field>, conversion: Conversion) -> Number {
        let is_same = matches!(conversion, Conversion::Same);
        let plain = field.filter(|field| {
            is_same && field.invalid.is_none() && matches!(field.form, Form::Little)
        });
        Number {
            plain: plain.and_then(|field| Some((field.window?, field.mask))),
            field,
            conversion,
        }
    }

    /// Returns the real value of the number in a record. Returns `None` if the record marks the
    /// number as invalid, if the conversion's table does not contain the stored value, or if the
    /// converted value needs more than 32 bits.
    #[inline(always)]
    fn value(&self, record: &[u8], number: u64) -> Option<u64> {
        if let Some((window, mask)) = self.plain {
            let bytes = record.get(window.at..)?.first_chunk()?;
            return Some(u64::from_le_bytes(*bytes) >> window.shift & mask);
        }
        self.computed(record, number)
    }

    #[inline(never)]
    fn computed(&self, record: &[u8], number: u64) -> Option<u64> {
        let stored = match self.field {
            Some(field) => field.bits(record)?,
            None => number,
        };
        let value = match &self.conversion {
            Conversion::Same => return Some(stored),
            Conversion::Linear { factor, offset } => stored as f64 * factor + offset,
            Conversion::Table(pairs) => {
                let pair = pairs.iter().find(|(from, _)| *from == stored as f64);
                pair?.1
            }
        };
        (0.0..=u32::MAX.into())
            .contains(&value)
            .then_some(value.round() as u64)
    }
}

/// The rule that computes the time of a record: the value of a field or the record's number, times
/// a factor, plus an offset.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// The field with the stored time. `None` if the record's number in its group is the stored
    /// value.
    pub field: Option<Field>,
    scale: Scale,
}

#[derive(Debug, Clone, Copy)]
enum Scale {
    /// The factor and the offset in ns, for a factor that is a whole number of ns.
    Whole(i128, i128),
    /// The factor and the offset in seconds, for any other factor.
    Seconds(f64, f64),
}

impl Time {
    /// Returns the rule for a time with this field and this conversion, or `None` if the conversion
    /// is not linear.
    pub fn new(field: Option<Field>, conversion: &Conversion) -> Option<Time> {
        const MOST: f64 = 1e18;
        let (factor, offset) = match *conversion {
            Conversion::Same => (1.0, 0.0),
            Conversion::Linear { factor, offset } => (factor, offset),
            Conversion::Table(_) => return None,
        };
        let (factor_ns, offset_ns) = (factor * 1e9, (offset * 1e9).round());
        let nearest = factor_ns.round();
        let is_whole = (factor_ns - nearest).abs() <= nearest.abs() * 1e-12
            && nearest.abs() >= 1.0
            && nearest.abs() <= MOST
            && offset_ns.abs() <= MOST;
        let is_float = field.is_some_and(|field| field.is_float());
        let scale = match is_whole && !is_float {
            true => Scale::Whole(nearest as i128, offset_ns as i128),
            false => Scale::Seconds(factor, offset),
        };
        Some(Time { field, scale })
    }

    /// Returns the time of a record since the beginning of the log, in ns. Returns `None` if the
    /// record marks the time as invalid, or if the time is too large.
    fn since_ns(&self, record: &[u8], number: u64) -> Option<i64> {
        match (self.scale, self.field) {
            (Scale::Whole(factor_ns, offset_ns), field) => {
                let count = match field {
                    Some(field) => field.signed(record)?,
                    None => number.into(),
                };
                // The count is below 2^64 and the factor at most 10^18, so this cannot overflow.
                i64::try_from(count * factor_ns + offset_ns).ok()
            }
            (Scale::Seconds(factor, offset), field) => {
                let value = match field {
                    Some(field) if field.is_float() => field.float(record)?,
                    Some(field) => field.signed(record)? as f64,
                    None => number as f64,
                };
                let ns = (value * factor + offset) * 1e9;
                (ns.abs() < 9e18).then(|| rounded(ns))
            }
        }
    }
}

/// Rounds like [`f64::round`], without a call of the mathematical library for each record. The
/// absolute value of `value` is below 2^63.
fn rounded(value: f64) -> i64 {
    let whole = value as i64;
    let rest = value - whole as f64;
    whole + i64::from(rest >= 0.5) - i64::from(rest <= -0.5)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Data,
    Remote,
    Error,
}

impl Event {
    pub fn named(name: &str) -> Option<Event> {
        match name {
            "CAN_DataFrame" => Some(Event::Data),
            "CAN_RemoteFrame" => Some(Event::Remote),
            "CAN_ErrorFrame" => Some(Event::Error),
            _ => None,
        }
    }
}

/// The places in a record that contain the parts of a CAN frame, except for its data bytes.
#[derive(Debug)]
pub struct Layout {
    pub event: Event,
    pub time: Time,
    pub channel: Option<Number>,
    pub id: Option<Number>,
    pub is_extended: Option<Number>,
    pub code: Option<Number>,
    pub length: Option<Number>,
    pub is_fd: Option<Number>,
    pub switches_rate: Option<Number>,
    pub is_passive: Option<Number>,
}

/// The time and the channel of a CAN frame.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The time since the beginning of the log.
    pub since_ns: i64,
    pub channel: u16,
}

/// A CAN frame without its data bytes.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    arrival: Arrival,
    event: Event,
    id: u32,
    /// True for a CAN FD frame. `None` if the log does not state whether the frame is a CAN FD
    /// frame.
    is_fd: Option<bool>,
    flags: u8,
    code: Option<u8>,
    /// The number of data bytes. It is cut off at 65535, which is more than a frame can have.
    stated: Option<u16>,
}

impl Layout {
    pub fn new(event: Event, time: Time) -> Layout {
        Layout {
            event,
            time,
            channel: None,
            id: None,
            is_extended: None,
            code: None,
            length: None,
            is_fd: None,
            switches_rate: None,
            is_passive: None,
        }
    }

    /// Reads the frame in a record, without its data bytes. `number` is the record's number in its
    /// group.
    ///
    /// # Errors
    /// Returns a text for the kind of fault.
    pub fn frame(&self, record: &[u8], number: u64) -> Result<Frame, &'static str> {
        let value = |field: &Option<Number>| field.as_ref()?.value(record, number);
        let is_set = |field: &Option<Number>| value(field).map(|value| value != 0);
        let since_ns = self.time.since_ns(record, number).ok_or(NO_TIME)?;
        // The log of a single bus may have no channel number.
        let channel = value(&self.channel).unwrap_or(1);
        let mut frame = Frame {
            arrival: Arrival {
                since_ns,
                channel: u16::try_from(channel).map_err(|_| NO_CHANNEL)?,
            },
            event: self.event,
            id: can::ERROR,
            is_fd: is_set(&self.is_fd),
            flags: 0,
            code: None,
            stated: None,
        };
        if self.event == Event::Error {
            return Ok(frame);
        }
        let id = value(&self.id).ok_or(NO_IDENTIFIER)?;
        frame.id = identifier(id, is_set(&self.is_extended))?;
        let flag = |field, bit| if is_set(field) == Some(true) { bit } else { 0 };
        frame.flags = flag(&self.switches_rate, 1) | flag(&self.is_passive, 2);
        let code = value(&self.code).map(u8::try_from);
        frame.code = code.transpose().map_err(|_| NO_LENGTH)?;
        let stated = value(&self.length);
        frame.stated = stated.map(|stated| stated.min(u16::MAX.into()) as u16);
        Ok(frame)
    }
}

/// Returns the identifier in the form of Linux. The frame is extended if bit 31 of `id` is set or
/// `is_extended` is true. If `is_extended` is `None`, identifiers above 0x7ff are extended, too.
#[inline(always)]
fn identifier(id: u64, is_extended: Option<bool>) -> Result<u32, &'static str> {
    let marked = id & u64::from(can::EXTENDED) != 0;
    let id = id & !u64::from(can::EXTENDED);
    let is_extended = match is_extended {
        Some(is_extended) => is_extended | marked,
        None => marked | (id > 0x7ff),
    };
    // A branch would be slow, because a processor cannot guess the order of standard and extended
    // frames.
    let most = 0x7ff | (u64::from(is_extended) * 0x1fff_ffff);
    let flag = u32::from(is_extended) * can::EXTENDED;
    match id <= most {
        true => Ok(id as u32 | flag),
        false => Err(NO_IDENTIFIER),
    }
}

impl Frame {
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Returns true if [`Frame::write`] needs the frame's data bytes.
    pub fn needs_data(&self) -> bool {
        self.event == Event::Data && self.stated != Some(0)
    }

    /// Clears `payload` and writes the frame in the layout of Linux. Data bytes that the log does
    /// not contain are 0.
    ///
    /// # Errors
    /// Returns a text for the kind of fault.
    pub fn write(&self, data: &[u8], payload: &mut Vec<u8>) -> Result<(), &'static str> {
        match self.event {
            Event::Error => can::classic(can::ERROR, &[0; can::DATA], can::DATA as u8, 0, payload),
            Event::Remote => {
                let stated = self.stated.and_then(|stated| u8::try_from(stated).ok());
                let code = self.code.or(stated).unwrap_or(0);
                let length = code.min(can::DATA as u8);
                let id = self.id | can::REMOTE;
                can::classic(id, &[], length, raw(code)?, payload);
            }
            Event::Data => self.write_data(data, payload)?,
        }
        Ok(())
    }

    fn write_data(&self, data: &[u8], payload: &mut Vec<u8>) -> Result<(), &'static str> {
        let stated = match (self.stated, self.code) {
            (Some(stated), _) => Some(usize::from(stated)),
            (None, Some(_)) => None,
            (None, None) => Some(data.len()),
        };
        let is_fd = self.is_fd.unwrap_or(match (stated, self.code) {
            (Some(stated), _) => stated > can::DATA,
            (None, Some(code)) => code > 8 && data.len() > can::DATA,
            (None, None) => false,
        });
        let coded = match (self.code, is_fd) {
            (Some(code), true) => *can::FD_LENGTHS.get(usize::from(code)).ok_or(NO_LENGTH)?,
            (Some(code), false) => code.min(can::DATA as u8),
            (None, _) => 0,
        };
        let length = usize::from(coded).max(stated.unwrap_or(0));
        let most = if is_fd { can::FD_DATA } else { can::DATA };
        if length > most {
            return Err(NO_LENGTH);
        }
        let there = data.len().min(stated.unwrap_or(length)).min(length);
        match is_fd {
            true if there == length => can::fd(self.id, self.flags, &data[..there], payload),
            true => {
                let mut whole = [0; can::FD_DATA];
                whole[..there].copy_from_slice(&data[..there]);
                can::fd(self.id, self.flags, &whole[..length], payload);
            }
            false => {
                let raw = raw(self.code.unwrap_or(0))?;
                let data = can::first_bytes(data, there);
                can::classic(self.id, &data, length as u8, raw, payload);
            }
        }
        Ok(())
    }
}

/// Returns the length code of a classic frame if it is 9 to 15, otherwise 0. The codes 9 to 15 all
/// mean 8 bytes.
fn raw(code: u8) -> Result<u8, &'static str> {
    match code {
        0..=8 => Ok(0),
        9..=15 => Ok(code),
        _ => Err(NO_LENGTH),
    }
}
