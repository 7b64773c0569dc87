//! Walks serialised messages by their layout: a digest of one message, the differences of two.

use super::cdr::Cursor;
use super::layout::{Kind, Layout, Node, Scalar};
use super::tolerance::Rule;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::Hasher;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest {
    pub stamp_ns: Option<i64>,
    pub hash: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Integer(i128),
    Float32(f32),
    Float64(f64),
    Text(String),
    Time(i64),
}

const LONGEST_TEXT: usize = 60;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(n) => write!(f, "{n}"),
            Value::Float32(n) => write!(f, "{n}"),
            Value::Float64(n) => write!(f, "{n}"),
            Value::Text(text) => write!(f, "'{text}'"),
            Value::Time(ns) => write!(
                f,
                "{}.{:09}",
                ns.div_euclid(1_000_000_000),
                ns.rem_euclid(1_000_000_000)
            ),
        }
    }
}

impl Value {
    fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(n) => Some(*n as f64),
            Value::Float32(n) => Some(f64::from(*n)),
            Value::Float64(n) => Some(*n),
            Value::Time(ns) => Some(*ns as f64 / 1e9),
            Value::Text(_) => None,
        }
    }

    fn text(bytes: &[u8]) -> Value {
        let text = String::from_utf8_lossy(bytes);
        let shown: String = text.chars().take(LONGEST_TEXT).collect();
        Value::Text(shown.escape_debug().to_string())
    }
}

fn number(scalar: Scalar, bytes: &[u8], little_endian: bool) -> Value {
    let mut word = [0u8; 8];
    let size = bytes.len().min(8);
    word[..size].copy_from_slice(&bytes[..size]);
    if !little_endian {
        word[..size].reverse();
    }
    let bits = u64::from_le_bytes(word);
    match scalar {
        Scalar::Bool | Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => {
            Value::Integer(bits.into())
        }
        Scalar::I8 => Value::Integer((bits as i8).into()),
        Scalar::I16 => Value::Integer((bits as i16).into()),
        Scalar::I32 => Value::Integer((bits as i32).into()),
        Scalar::I64 => Value::Integer((bits as i64).into()),
        Scalar::F32 => Value::Float32(f32::from_bits(bits as u32)),
        Scalar::F64 => Value::Float64(f64::from_bits(bits)),
    }
}

/// Returns a digest of the message's fields, without ignored fields. Returns `None` if the message
/// does not match `layout`.
pub fn digest(layout: &Layout, rules: &[Rule], message: &[u8]) -> Option<Digest> {
    let mut walk = Walk {
        layout,
        rules,
        cursor: Cursor::new(message)?,
        hasher: DefaultHasher::new(),
        stamp_ns: None,
    };
    walk.node(&layout.root)?;
    walk.cursor.is_at_end().then(|| Digest {
        stamp_ns: walk.stamp_ns,
        hash: walk.hasher.finish(),
    })
}

struct Walk<'w> {
    layout: &'w Layout,
    rules: &'w [Rule],
    cursor: Cursor<'w>,
    hasher: DefaultHasher,
    stamp_ns: Option<i64>,
}

impl Walk<'_> {
    fn hash(&mut self, leaf: usize, bytes: &[u8]) {
        if !self.rules[leaf].is_ignored {
            self.hasher.write(bytes);
        }
    }

    fn node(&mut self, node: &Node) -> Option<()> {
        match node {
            Node::Scalar { leaf, scalar } => self.scalars(*leaf, *scalar, 1)?,
            Node::Text { leaf } => {
                let text = self.cursor.text()?;
                self.hash(*leaf, text);
                self.hash(*leaf, &[0]);
            }
            Node::Time { leaf } => {
                let time_ns = self.cursor.time()?;
                let is_stamp = self.layout.leaves[*leaf].kind == Kind::Stamp;
                let is_ignored = self.rules[*leaf].is_ignored;
                match is_stamp && !is_ignored && self.stamp_ns.is_none() {
                    true => self.stamp_ns = Some(time_ns),
                    false => self.hash(*leaf, &time_ns.to_le_bytes()),
                }
            }
            Node::Fields(nodes) => {
                for node in nodes {
                    self.node(node)?;
                }
            }
            Node::Filler => drop(self.cursor.take(1)?),
            Node::Array {
                leaf,
                fixed,
                element,
            } => {
                let count = fixed.map_or_else(|| self.cursor.count(), Some)?;
                self.hash(*leaf, &count.to_le_bytes());
                match **element {
                    Node::Scalar { leaf, scalar } => self.scalars(leaf, scalar, count)?,
                    _ => {
                        for _ in 0..count {
                            self.node(element)?;
                        }
                    }
                }
            }
        }
        Some(())
    }

    fn scalars(&mut self, leaf: usize, scalar: Scalar, count: u32) -> Option<()> {
        let bytes = scalars(&mut self.cursor, scalar, count)?;
        if self.cursor.little_endian || scalar.size() == 1 {
            self.hash(leaf, bytes);
            return Some(());
        }
        for value in bytes.chunks_exact(scalar.size()) {
            let turned: Vec<u8> = value.iter().rev().copied().collect();
            self.hash(leaf, &turned);
        }
        Some(())
    }
}

/// Reads `count` consecutive numbers. If `count` is 0, the cursor stays where it is, without
/// alignment.
fn scalars<'b>(cursor: &mut Cursor<'b>, scalar: Scalar, count: u32) -> Option<&'b [u8]> {
    if count == 0 {
        return Some(&[]);
    }
    cursor.align(scalar.size());
    cursor.take((count as usize).checked_mul(scalar.size())?)
}

#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub leaf: usize,
    /// The indices of the value in the arrays around it, from the outermost array on.
    pub at: Vec<u32>,
    pub expected: Value,
    pub observed: Value,
    /// The deviation of the observed value from the expected one, in the field's unit. Times are in
    /// seconds. `None` for texts.
    pub off: Option<f64>,
    pub relative: Option<f64>,
}

/// Calls `found` for each value of `observed` that deviates from `expected` by more than the rule
/// for its field allows. For arrays of different lengths, reports only the lengths. Returns `None`
/// if a message does not match `layout`.
pub fn differences(
    layout: &Layout,
    rules: &[Rule],
    expected: &[u8],
    observed: &[u8],
    found: &mut dyn FnMut(Difference),
) -> Option<()> {
    let mut both = Both {
        rules,
        expected: Cursor::new(expected)?,
        observed: Cursor::new(observed)?,
        at: Vec::new(),
        found,
    };
    both.node(&layout.root)?;
    (both.expected.is_at_end() && both.observed.is_at_end()).then_some(())
}

struct Both<'w> {
    rules: &'w [Rule],
    expected: Cursor<'w>,
    observed: Cursor<'w>,
    at: Vec<u32>,
    found: &'w mut dyn FnMut(Difference),
}

impl Both<'_> {
    fn value(&mut self, leaf: usize, expected: Value, observed: Value) {
        let rule = &self.rules[leaf];
        if rule.is_ignored || expected == observed {
            return;
        }
        let numbers = expected.number().zip(observed.number());
        let within = match (&expected, &observed, numbers) {
            (Value::Time(a), Value::Time(b), _) => a.abs_diff(*b) <= rule.time_ns,
            (_, _, Some((a, b))) => (a.is_nan() && b.is_nan()) || rule.allows(a, b),
            _ => false,
        };
        if within {
            return;
        }
        let off = match (&expected, &observed, numbers) {
            (Value::Time(a), Value::Time(b), _) => Some(a.abs_diff(*b) as f64 / 1e9),
            (_, _, numbers) => numbers.map(|(a, b)| (b - a).abs()),
        };
        let is_time = matches!(expected, Value::Time(_));
        let share = numbers.zip(off).map(|((a, _), off)| off / a.abs());
        let share = share.filter(|_| !is_time);
        self.report(leaf, expected, observed, [off, share]);
    }

    fn report(&mut self, leaf: usize, expected: Value, observed: Value, off: [Option<f64>; 2]) {
        let [off, relative] = off.map(|off| off.filter(|off| off.is_finite()));
        (self.found)(Difference {
            leaf,
            at: self.at.clone(),
            expected,
            observed,
            off,
            relative,
        });
    }

    fn node(&mut self, node: &Node) -> Option<()> {
        match node {
            Node::Scalar { leaf, scalar } => self.scalars(*leaf, *scalar, 1, false)?,
            Node::Text { leaf } => {
                let (a, b) = (self.expected.text()?, self.observed.text()?);
                if a != b && !self.rules[*leaf].is_ignored {
                    self.report(*leaf, Value::text(a), Value::text(b), [None; 2]);
                }
            }
            Node::Time { leaf } => {
                let (a, b) = (self.expected.time()?, self.observed.time()?);
                self.value(*leaf, Value::Time(a), Value::Time(b));
            }
            Node::Fields(nodes) => {
                for node in nodes {
                    self.node(node)?;
                }
            }
            Node::Filler => {
                self.expected.take(1)?;
                self.observed.take(1)?;
            }
            Node::Array {
                leaf,
                fixed,
                element,
            } => self.array(*leaf, *fixed, element)?,
        }
        Some(())
    }

    fn array(&mut self, leaf: usize, fixed: Option<u32>, element: &Node) -> Option<()> {
        let expected = fixed.map_or_else(|| self.expected.count(), Some)?;
        let observed = fixed.map_or_else(|| self.observed.count(), Some)?;
        if expected != observed {
            self.value(
                leaf,
                Value::Integer(expected.into()),
                Value::Integer(observed.into()),
            );
            skip(&mut self.expected, element, expected)?;
            return skip(&mut self.observed, element, observed);
        }
        if let Node::Scalar { leaf, scalar } = element {
            return self.scalars(*leaf, *scalar, expected, true);
        }
        for n in 0..expected {
            self.at.push(n);
            let read = self.node(element);
            self.at.pop();
            read?;
        }
        Some(())
    }

    fn scalars(&mut self, leaf: usize, scalar: Scalar, count: u32, indexed: bool) -> Option<()> {
        let a = scalars(&mut self.expected, scalar, count)?;
        let b = scalars(&mut self.observed, scalar, count)?;
        let (first, second) = (self.expected.little_endian, self.observed.little_endian);
        if (a == b && first == second) || self.rules[leaf].is_ignored {
            return Some(());
        }
        let size = scalar.size();
        for (n, (a, b)) in a.chunks_exact(size).zip(b.chunks_exact(size)).enumerate() {
            if a == b && first == second {
                continue;
            }
            if indexed {
                self.at.push(n as u32);
            }
            self.value(leaf, number(scalar, a, first), number(scalar, b, second));
            if indexed {
                self.at.pop();
            }
        }
        Some(())
    }
}

fn skip(cursor: &mut Cursor<'_>, node: &Node, times: u32) -> Option<()> {
    if let Node::Scalar { scalar, .. } = node {
        return scalars(cursor, *scalar, times).map(|_| ());
    }
    for _ in 0..times {
        match node {
            Node::Scalar { scalar, .. } => drop(scalars(cursor, *scalar, 1)?),
            Node::Text { .. } => drop(cursor.text()?),
            Node::Time { .. } => drop(cursor.time()?),
            Node::Filler => drop(cursor.take(1)?),
            Node::Fields(nodes) => {
                for node in nodes {
                    skip(cursor, node, 1)?;
                }
            }
            Node::Array { fixed, element, .. } => {
                let count = fixed.map_or_else(|| cursor.count(), Some)?;
                skip(cursor, element, count)?;
            }
        }
    }
    Some(())
}

impl Difference {
    pub fn place(&self, layout: &Layout) -> String {
        let path = layout.leaves.get(self.leaf).map_or("", |l| l.path.as_str());
        let mut place = String::new();
        let mut indices = self.at.iter();
        let mut parts = path.split("[]");
        place.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let index = indices.next().map_or(String::new(), u32::to_string);
            place.push_str(&format!("[{index}]{part}"));
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::POSE;
    use super::super::tolerance::rules;
    use super::*;
    use proptest::prelude::*;

    fn pose(little_endian: bool, garbage: u8, x: f64, ranges: &[f32], left: i64) -> Vec<u8> {
        let mut out = vec![];
        let align =
            |out: &mut Vec<u8>, size: usize| out.resize(out.len().next_multiple_of(size), garbage);
        let word = |out: &mut Vec<u8>, bytes: &[u8]| match little_endian {
            true => out.extend(bytes),
            false => out.extend(bytes.iter().rev()),
        };
        let text = |out: &mut Vec<u8>, text: &str| {
            align(out, 4);
            word(out, &(text.len() as u32 + 1).to_le_bytes());
            out.extend(text.as_bytes());
            out.push(0);
        };
        word(&mut out, &7i32.to_le_bytes());
        word(&mut out, &5u32.to_le_bytes());
        text(&mut out, "map");
        for number in [x, -0.5] {
            align(&mut out, 8);
            word(&mut out, &number.to_le_bytes());
        }
        text(&mut out, "a");
        align(&mut out, 4);
        word(&mut out, &(ranges.len() as u32).to_le_bytes());
        ranges.iter().for_each(|r| word(&mut out, &r.to_le_bytes()));
        for n in [left, 2] {
            align(&mut out, 8);
            word(&mut out, &n.to_le_bytes());
            out.push(1);
        }
        align(&mut out, 4);
        word(&mut out, &2u32.to_le_bytes());
        out.extend([3, 4, garbage]);
        align(&mut out, 4);
        word(&mut out, &(-1i32).to_le_bytes());
        word(&mut out, &9u32.to_le_bytes());
        [&[0, u8::from(little_endian), 0, 0][..], &out].concat()
    }

    fn layout() -> Layout {
        Layout::of("a_msgs/msg/Pose", POSE).unwrap()
    }

    fn found(limits: &[&str], a: &[u8], b: &[u8]) -> Option<Vec<String>> {
        let layout = layout();
        let limits: Vec<_> = limits.iter().map(|t| t.parse().unwrap()).collect();
        let rules = rules("/pose", &layout, &limits, &[]);
        let mut found = Vec::new();
        let mut add = |d: Difference| {
            found.push(format!(
                "{} {} {}",
                d.place(&layout),
                d.expected,
                d.observed
            ))
        };
        differences(&layout, &rules, a, b, &mut add)?;
        Some(found)
    }

    #[test]
    fn differences_of_messages_are_those_of_their_fields_beyond_the_tolerance() {
        let base = pose(true, 0, 100.0, &[1.0, 2.0], 40);
        let same = pose(false, 0xaa, 100.0, &[1.0, 2.0], 40);
        assert_eq!(found(&[], &base, &same).unwrap(), [""; 0]);
        let rules = vec![Rule::default(); layout().leaves.len()];
        let first = digest(&layout(), &rules, &base);
        assert_eq!(first, digest(&layout(), &rules, &same));
        assert_eq!(first.unwrap().stamp_ns, Some(7_000_000_005));
        let other = pose(true, 9, 101.0, &[1.0, 2.5], 41);
        assert_ne!(
            first.unwrap().hash,
            digest(&layout(), &rules, &other).unwrap().hash
        );
        let all = [
            "position.x 100 101",
            "ranges[1] 2 2.5",
            "pairs[0].left 40 41",
        ];
        assert_eq!(found(&[], &base, &other).unwrap(), all);
        assert_eq!(found(&["1%"], &base, &other).unwrap(), all[1..]);
        assert_eq!(
            found(&["1%", "ranges=0.5", "pairs.left=1"], &base, &other).unwrap(),
            [""; 0]
        );
        let longer = pose(true, 9, 100.0, &[1.0, 2.0, 3.0], 40);
        assert_eq!(
            found(&["100"], &base, &longer).unwrap(),
            ["ranges.length 2 3"]
        );
    }

    proptest! {
        #[test]
        fn damaged_messages_cause_no_panic_and_no_false_equality(at in 0usize..120, byte: u8, cut in 0usize..120) {
            let base = pose(true, 0, 100.0, &[1.0, 2.0], 40);
            let mut other = base.clone();
            let at = at % other.len();
            other[at] = byte;
            other.truncate(other.len() - cut % other.len());
            let rules = vec![Rule::default(); layout().leaves.len()];
            let same = digest(&layout(), &rules, &base) == digest(&layout(), &rules, &other);
            let reported = found(&[], &base, &other);
            prop_assert!(reported.is_none() || same == reported.unwrap().is_empty());
        }
    }
}
