//! Parses message definitions of ROS 1 and of ROS 2 into types with fields.

use std::borrow::Cow;
use std::collections::HashMap;

/// The maximum number of types in one definition of ROS 1.
const MOST_TYPES: usize = 1000;
const MOST_FIELDS: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field<'t> {
    pub name: &'t str,
    /// The field's type: a primitive type, or a message type with its package, for example
    /// `std_msgs/Header`.
    pub base: Cow<'t, str>,
    /// The array's brackets, for example `[3]` or `[]`. Empty if the field is not an array.
    pub array: &'t str,
}

pub type Types<'t> = HashMap<Cow<'t, str>, Vec<Field<'t>>>;

const PRIMITIVES: [&str; 15] = [
    "bool", "byte", "char", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "float32", "float64", "time", "duration",
];

pub fn is_primitive(base: &str) -> bool {
    base == "string" || PRIMITIVES.contains(&base)
}

/// Parses the definition of a type from a bag: the type's own fields, then the types that it uses,
/// each after a line of `=`. Returns `None` if the text is not a definition.
pub fn of_ros_1<'t>(type_name: &'t str, text: &'t str) -> Option<Types<'t>> {
    let mut types = Types::new();
    let mut current = Cow::Borrowed(type_name);
    let mut fields = Vec::new();
    let mut count = 0;
    for line in text.lines().map(str::trim) {
        if line.len() >= 10 && line.bytes().all(|byte| byte == b'=') {
            types.entry(current).or_insert(std::mem::take(&mut fields));
            current = Cow::Borrowed("");
        } else if let Some(name) = line.strip_prefix("MSG:") {
            current = canonical(name.trim());
        } else if let Some(field) = field(line, package(&current))? {
            fields.push(field);
            count += 1;
        }
        if types.len() > MOST_TYPES || count > MOST_FIELDS {
            return None;
        }
    }
    types.entry(current).or_insert(fields);
    Some(types)
}

pub fn of_ros_2(fields: &str) -> Option<Vec<Field<'_>>> {
    let fields = fields.split(", ").filter(|text| !text.is_empty());
    fields.map(|text| field(text, "").flatten()).collect()
}

fn package(type_name: &str) -> &str {
    type_name.split_once('/').map_or("", |(package, _)| package)
}

fn canonical(type_name: &str) -> Cow<'_, str> {
    Cow::Borrowed(match type_name {
        "roslib/Header" | "Header" => "std_msgs/Header",
        name => name,
    })
}

fn field<'t>(line: &'t str, package: &str) -> Option<Option<Field<'t>>> {
    let line = line.split('#').next().unwrap_or_default();
    if line.contains('=') && !line.contains("[<=") {
        return Some(None);
    }
    let mut words = line.split_whitespace();
    let Some(type_name) = words.next() else {
        return Some(None);
    };
    let name = words.next()?;
    let (base, array) = type_name.split_at(type_name.find('[').unwrap_or(type_name.len()));
    let base = match canonical(base) {
        base if is_primitive(&base) || base.contains('/') => base,
        base => Cow::Owned(format!("{package}/{base}")),
    };
    Some(Some(Field { name, base, array }))
}
