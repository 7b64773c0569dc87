//! The types of fields, as the metadata of a trace declares them.

use std::rc::Rc;

/// The greatest depth of nested types. It bounds the recursion of the parser and of the decoder.
pub(crate) const MAX_DEPTH: u16 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    #[default]
    Little,
    Big,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Integer {
    /// The size in bits, 1 to 64.
    pub(crate) bits: u32,
    /// The alignment in bits, a power of two.
    pub(crate) align: u32,
    pub(crate) signed: bool,
    /// The byte order of the integer. `None` means the byte order of the trace.
    pub(crate) order: Option<Order>,
    pub(crate) is_time: bool,
}

impl Integer {
    pub(crate) fn is_byte(&self) -> bool {
        self.bits == 8 && self.align.is_multiple_of(8)
    }
}

#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) from: i128,
    pub(crate) to: i128,
    pub(crate) name: Box<str>,
}

impl Label {
    /// Returns whether this label chooses the field `choice` of a variant. The name of the field may
    /// lack the leading underscore of the label.
    pub(crate) fn chooses(&self, choice: &str) -> bool {
        *choice == *self.name || self.name.strip_prefix('_') == Some(choice)
    }
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Box<str>,
    pub(crate) ty: Rc<Type>,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Integer(Integer),
    Enumeration(Integer, Vec<Label>),
    /// A floating-point number of this many bits. No event that onbeat reads has one.
    Float(u32),
    /// A text: bytes up to a zero byte.
    Text,
    Array(Rc<Type>, u64),
    /// A sequence of values of one type. The second field is the name of an earlier integer of the
    /// event, which contains the number of values.
    Sequence(Rc<Type>, Box<str>),
    Structure(Vec<Field>),
    /// One of the fields in the list. The first value is the name of an earlier enumeration of the
    /// event. The enumeration's value has a label, and the event has the field with this name.
    Variant(Option<Box<str>>, Vec<Field>),
}

/// The usual header of an event of LTTng: an enumeration `id` and, for most ids, only a time after
/// it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortHeader {
    /// The alignment of the whole header in bits.
    pub(crate) align: u32,
    pub(crate) id: Integer,
    /// The first and the last id after which only a time follows.
    pub(crate) ids: (i128, i128),
    pub(crate) time: Integer,
    /// The alignment of the time in bits.
    pub(crate) time_align: u32,
}

impl ShortHeader {
    /// Returns the short form of a header, or `None` if it has none.
    pub(crate) fn of(header: &Type) -> Option<ShortHeader> {
        let [id, variant] = header.fields() else {
            return None;
        };
        let Shape::Enumeration(of_id, labels) = &id.ty.shape else {
            return None;
        };
        let Shape::Variant(Some(tag), choices) = &variant.ty.shape else {
            return None;
        };
        // If several labels have the id, the first one decides.
        let label = labels.first()?;
        let chosen = choices.iter().find(|choice| label.chooses(&choice.name))?;
        let [time] = chosen.ty.fields() else {
            return None;
        };
        let Shape::Integer(of_time) = time.ty.shape else {
            return None;
        };
        let aligns = [variant.ty.align, chosen.ty.align, time.ty.align];
        let is_short = &*id.name == "id" && **tag == *id.name && !of_id.signed && of_time.is_time;
        is_short.then(|| ShortHeader {
            align: header.align.max(id.ty.align),
            id: *of_id,
            ids: (label.from, label.to),
            time: of_time,
            time_align: aligns.into_iter().max().unwrap_or(1),
        })
    }
}

/// The largest structure that is skipped as a whole, in bits.
const MAX_FIXED_BITS: u64 = 1 << 16;

impl Shape {
    fn fixed_bits(&self) -> Option<u64> {
        let bits = match self {
            Shape::Integer(integer) | Shape::Enumeration(integer, _) => u64::from(integer.bits),
            Shape::Float(bits) => u64::from(*bits),
            Shape::Array(element, length) if element.integer()?.is_byte() => {
                length.checked_mul(8)?
            }
            Shape::Structure(fields) => fields
                .iter()
                .try_fold(0u64, |sum, field| sum.checked_add(field.ty.fixed_bits?))?,
            Shape::Text | Shape::Array(..) | Shape::Sequence(..) | Shape::Variant(..) => {
                return None
            }
        };
        // Each value has at least eight bits, so that the limits for values hold without counting them.
        let is_small = (1..=MAX_FIXED_BITS).contains(&bits);
        (bits.is_multiple_of(8) && is_small).then_some(bits)
    }
}

#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) shape: Shape,
    pub(crate) align: u32,
    pub(crate) depth: u16,
    /// A variant or a sequence is in this type. Decoding it needs integers that come before it.
    pub(crate) needs_earlier: bool,
    /// The number of bits of all values of this type, if it is a multiple of 8 and no alignment
    /// changes it.
    pub(crate) fixed_bits: Option<u64>,
}

impl Type {
    /// Returns a type, or `None` if it is nested too deeply. `align` is the least alignment in
    /// bits.
    pub(crate) fn new(shape: Shape, align: u32) -> Option<Rc<Type>> {
        let (of_shape, below) = match &shape {
            Shape::Integer(i) | Shape::Enumeration(i, _) => (i.align, 0),
            Shape::Float(_) => (1, 0),
            Shape::Text => (8, 0),
            Shape::Array(element, _) | Shape::Sequence(element, _) => {
                (element.align, element.depth)
            }
            Shape::Structure(fields) => (
                fields.iter().map(|f| f.ty.align).max().unwrap_or(1),
                deepest(fields),
            ),
            // The field that is chosen has its own alignment.
            Shape::Variant(_, choices) => (1, deepest(choices)),
        };
        let depth = below + 1;
        let needs_earlier = match &shape {
            Shape::Integer(_) | Shape::Enumeration(..) | Shape::Float(_) | Shape::Text => false,
            Shape::Array(element, _) => element.needs_earlier,
            Shape::Structure(fields) => fields.iter().any(|f| f.ty.needs_earlier),
            Shape::Sequence(..) | Shape::Variant(..) => true,
        };
        let align = align.max(of_shape);
        let fixed_bits = shape.fixed_bits().filter(|_| align <= 8);
        (depth <= MAX_DEPTH).then(|| {
            Rc::new(Type {
                shape,
                align,
                depth,
                needs_earlier,
                fixed_bits,
            })
        })
    }

    pub(crate) fn integer(&self) -> Option<Integer> {
        match self.shape {
            Shape::Integer(i) | Shape::Enumeration(i, _) => Some(i),
            _ => None,
        }
    }

    pub(crate) fn fields(&self) -> &[Field] {
        match &self.shape {
            Shape::Structure(fields) => fields,
            _ => &[],
        }
    }
}

fn deepest(fields: &[Field]) -> u16 {
    fields.iter().map(|f| f.ty.depth).max().unwrap_or(0)
}
