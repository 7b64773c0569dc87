//! Reads data frames in the layout that most recorders write: all parts are stored as they are, and
//! the data bytes are in the record.

use super::{identifier, raw, rounded, Arrival, Event, Field, Form, Layout, Number, Scale, Span};
use crate::source::can;

/// The number of bytes that [`Usual::read`] needs from the beginning of a record on. With bytes of
/// fixed number, the places of the parts need no checks.
pub const SEEN: usize = 256 + can::FD_DATA;

/// A layout in which all parts of a data frame begin in the first 256 bytes of the record, and no
/// part needs a conversion. [`Usual::read`] writes the same frames as [`Layout::frame`] and
/// [`super::Frame::write`], in about half of the time.
#[derive(Debug)]
pub struct Usual {
    time: Time,
    channel: Option<Place>,
    id: Place,
    is_extended: Option<Place>,
    code: Place,
    length: Place,
    is_fd: Option<Place>,
    switches_rate: Option<Place>,
    is_passive: Option<Place>,
    data_at: u8,
    data_size: usize,
}

/// The place of a whole number in a record.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u8,
    shift: u8,
    mask: u64,
}

impl Place {
    fn of(number: &Number) -> Option<Place> {
        let (window, mask) = number.plain?;
        Some(Place {
            at: u8::try_from(window.at).ok()?,
            shift: window.shift,
            mask,
        })
    }

    fn of_field(field: &Field) -> Option<Place> {
        let window = field.window.filter(|_| field.invalid.is_none())?;
        Some(Place {
            at: u8::try_from(window.at).ok()?,
            shift: window.shift,
            mask: field.mask,
        })
    }

    #[inline(always)]
    fn value(self, record: &[u8; SEEN]) -> u64 {
        let bytes = &record[usize::from(self.at)..][..8];
        let eight = u64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        eight >> self.shift & self.mask
    }

    #[inline(always)]
    fn is_set(self, record: &[u8; SEEN]) -> bool {
        self.value(record) != 0
    }
}

/// The rule for the time of a record.
#[derive(Debug, Clone, Copy)]
enum Time {
    /// A number without a sign, and its factor and offset in ns.
    Whole(Place, i64, i64),
    /// A number of 64 bits with a fraction, and its factor and offset in seconds.
    Seconds(Place, f64, f64),
}

impl Time {
    fn of(time: &super::Time) -> Option<Time> {
        let field = time.field?;
        let place = Place::of_field(&field)?;
        match (field.form, time.scale) {
            (Form::Little, Scale::Whole(factor_ns, offset_ns)) if !field.is_signed => {
                let factor_ns = i64::try_from(factor_ns).ok()?;
                Some(Time::Whole(place, factor_ns, offset_ns.try_into().ok()?))
            }
            (Form::LittleFloat, Scale::Seconds(factor, offset)) if field.size == 8 => {
                Some(Time::Seconds(place, factor, offset))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn since_ns(self, record: &[u8; SEEN]) -> Option<i64> {
        match self {
            Time::Whole(place, factor_ns, offset_ns) => {
                let count = i64::try_from(place.value(record)).ok()?;
                count.checked_mul(factor_ns)?.checked_add(offset_ns)
            }
            Time::Seconds(place, factor, offset) => {
                let value = f64::from_bits(place.value(record));
                let ns = (value * factor + offset) * 1e9;
                (ns.abs() < 9e18).then(|| rounded(ns))
            }
        }
    }
}

impl Usual {
    /// Returns the layout if it is a usual one. `data` is the place of the data bytes.
    pub fn of(layout: &Layout, data: Span) -> Option<Usual> {
        // Returns `None` if the number exists, but is not stored as it is.
        let optional = |number: &Option<Number>| match number {
            Some(number) => Place::of(number).map(Some),
            None => Some(None),
        };
        if layout.event != Event::Data {
            return None;
        }
        Some(Usual {
            time: Time::of(&layout.time)?,
            channel: optional(&layout.channel)?,
            id: Place::of(layout.id.as_ref()?)?,
            is_extended: optional(&layout.is_extended)?,
            code: Place::of(layout.code.as_ref()?)?,
            length: Place::of(layout.length.as_ref()?)?,
            is_fd: optional(&layout.is_fd)?,
            switches_rate: optional(&layout.switches_rate)?,
            is_passive: optional(&layout.is_passive)?,
            data_at: u8::try_from(data.at).ok()?,
            data_size: data.size,
        })
    }

    /// Reads the frame in the record at the beginning of `record`. Clears `payload` and writes the
    /// frame in the layout of Linux. Returns `None` if the frame is faulty. `payload` is then
    /// unchanged.
    #[inline(always)]
    pub fn read(&self, record: &[u8; SEEN], payload: &mut Vec<u8>) -> Option<Arrival> {
        let since_ns = self.time.since_ns(record)?;
        let channel = match self.channel {
            Some(place) => u16::try_from(place.value(record)).ok()?,
            None => 1,
        };
        let is_extended = self.is_extended.map(|place| place.is_set(record));
        let id = identifier(self.id.value(record), is_extended).ok()?;
        let code = u8::try_from(self.code.value(record)).ok()?;
        let stated = self.length.value(record) as usize;
        let is_fd = match self.is_fd {
            Some(place) => place.is_set(record),
            None => stated > can::DATA,
        };
        let data: &[u8; can::FD_DATA] = record[usize::from(self.data_at)..].first_chunk()?;
        let count = stated.min(self.data_size);
        if is_fd {
            let coded = usize::from(*can::FD_LENGTHS.get(usize::from(code))?);
            let length = coded.max(stated);
            if length > can::FD_DATA {
                return None;
            }
            let is_set = |place: &Option<Place>| place.is_some_and(|place| place.is_set(record));
            let flags = (u8::from(is_set(&self.switches_rate)) * can::BRS)
                | (u8::from(is_set(&self.is_passive)) * can::ESI);
            can::padded(id, flags, data, count, length, payload);
        } else {
            let length = usize::from(code).min(can::DATA).max(stated);
            if length > can::DATA {
                return None;
            }
            let data = can::first_bytes(data, count);
            can::classic(id, &data, length as u8, raw(code).ok()?, payload);
        }
        Some(Arrival { since_ns, channel })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Conversion, Window};
    use super::*;
    use proptest::prelude::*;

    fn field(at: usize, bits: u32, form: Form) -> Field {
        Field {
            at,
            size: (bits as usize).div_ceil(8),
            shift: 0,
            mask: u64::MAX >> (64 - bits),
            window: Some(Window { at, shift: 0 }),
            is_signed: false,
            form,
            invalid: None,
        }
    }

    fn number(at: usize, bits: u32) -> Option<Number> {
        Some(Number::new(
            Some(field(at, bits, Form::Little)),
            Conversion::Same,
        ))
    }

    /// Reads the frame in the way of all layouts.
    fn frame(layout: &Layout, record: &[u8], data: Span) -> Option<(i64, u16, Vec<u8>)> {
        let frame = layout.frame(record, 0).ok()?;
        let bytes = match frame.needs_data() {
            true => &record[data.at..][..data.size.min(can::FD_DATA)],
            false => &[],
        };
        let mut payload = vec![1; 3];
        frame.write(bytes, &mut payload).ok()?;
        let Arrival { since_ns, channel } = frame.arrival();
        Some((since_ns, channel, payload))
    }

    proptest! {
        #[test]
        fn a_usual_layout_gives_the_same_frames_as_all_layouts_do(
            bytes in prop::collection::vec(prop_oneof![0..=16u8, 0..=64u8, any::<u8>()], SEEN),
            seconds in prop::option::of(-1e10..1e10),
            (is_standard, has_channel, has_ide, has_fd, has_rate, has_state) in any::<(bool, bool, bool, bool, bool, bool)>(),
            size in 0..=80usize,
        ) {
            let mut record: [u8; SEEN] = bytes.try_into().expect("the number of bytes");
            let time = match seconds {
                Some(seconds) => {
                    record[..8].copy_from_slice(&f64::to_le_bytes(seconds));
                    super::super::Time::new(Some(field(0, 64, Form::LittleFloat)), &Conversion::Same)
                }
                None => {
                    let conversion = Conversion::Linear { factor: 1e-6, offset: 3.0 };
                    super::super::Time::new(Some(field(0, 40, Form::Little)), &conversion)
                }
            };
            let mut layout = Layout::new(Event::Data, time.expect("a linear time"));
            let data = Span { at: 40, size };
            layout.id = number(12, if is_standard { 11 } else { 32 });
            layout.code = number(17, 5);
            layout.length = number(18, 8);
            layout.channel = number(9, 17).filter(|_| has_channel);
            layout.is_extended = number(16, 1).filter(|_| has_ide);
            layout.is_fd = number(19, 1).filter(|_| has_fd);
            layout.switches_rate = number(20, 1).filter(|_| has_rate);
            layout.is_passive = number(21, 1).filter(|_| has_state);
            let usual = Usual::of(&layout, data).expect("a usual layout");
            let mut payload = vec![2; 72];
            let found = usual.read(&record, &mut payload);
            let found = found.map(|Arrival { since_ns, channel }| (since_ns, channel, payload));
            prop_assert_eq!(found, frame(&layout, &record, data));
        }
    }
}
