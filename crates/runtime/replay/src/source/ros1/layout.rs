//! Finds the type of ROS 2 that equals a message type of a bag, and how its messages are laid out.

use super::definition::{self, Field, Types};

/// The ROS 2 definitions of types that ROS 1 also has, one on each line. A type has a definition if
/// it is the same in Humble, Iron, Jazzy, Kilted and Lyrical. A line with `-` names a type that
/// differs between these distributions.
const TABLE: &str = include_str!("types.txt");
const HEADER: &str = "std_msgs/Header";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The sequence number of a ROS 1 header. ROS 2 does not have it.
    Sequence,
    /// A number. The value is its size in bytes, which is also its alignment in ROS 2.
    Number(usize),
    Text,
    Message(Vec<Member>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub part: Part,
    pub count: Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    One,
    Array(usize),
    Sequence,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub type_name: String,
    pub members: Vec<Member>,
}

/// Returns the layout of a ROS 1 type that ROS 2 has with the same definition. Only the header's
/// sequence number and the case of fields' names may differ.
///
/// # Errors
/// Returns a sentence with the reason if ROS 2 has no such type.
pub fn of(type_name: &str, text: &str) -> Result<Layout, String> {
    let name = match type_name {
        "tf/tfMessage" => "tf2_msgs/TFMessage",
        name => name,
    };
    let known =
        fields(name).ok_or_else(|| format!("onbeat knows no ROS 2 type for {type_name}"))?;
    let types = definition::of_ros_1(type_name, text)
        .ok_or_else(|| format!("the bag's definition of {type_name} is damaged"))?;
    let members = match (types.get(type_name), known) {
        (Some(own), Known::Fields(known)) => members(name, own, &known, &types),
        _ => Err(String::new()),
    };
    let members = members.map_err(|field| {
        let place = match &field[..] {
            "" => String::new(),
            field => format!(", at the field {field}"),
        };
        format!("{type_name} has another definition in ROS 2 than in the bag{place}")
    })?;
    let (package, name) = name.split_once('/').unwrap_or_default();
    Ok(Layout {
        type_name: format!("{package}/msg/{name}"),
        members,
    })
}

/// Returns the definition of a ROS 2 type from the table, for example `std_msgs/msg/Header`,
/// followed by the definitions of the types that it uses. The text has no constants.
pub fn definition(type_name: &str) -> Option<String> {
    const TIME: &str = "builtin_interfaces/Time";
    const DURATION: &str = "builtin_interfaces/Duration";
    let (package, name) = type_name.split_once("/msg/")?;
    let mut waiting = vec![format!("{package}/{name}")];
    let mut known = waiting.clone();
    let mut text = String::new();
    while let Some(name) = waiting.pop() {
        if !text.is_empty() {
            text.push_str(&format!("{}\nMSG: {name}\n", "=".repeat(80)));
        }
        let fields = match &*name {
            TIME => definition::of_ros_2("int32 sec, uint32 nanosec"),
            DURATION => definition::of_ros_2("int32 sec, uint32 nanosec"),
            name => match fields(name)? {
                Known::Fields(fields) => Some(fields),
                Known::Several => None,
            },
        };
        for field in fields? {
            let base = match &*field.base {
                "time" => TIME,
                "duration" => DURATION,
                base => base,
            };
            text.push_str(&format!("{base}{} {}\n", field.array, field.name));
            let is_new = !known.iter().any(|name| name == base);
            if is_new && !definition::is_primitive(base) {
                known.push(base.to_owned());
                waiting.push(base.to_owned());
            }
        }
    }
    Some(text)
}

enum Known {
    Fields(Vec<Field<'static>>),
    Several,
}

fn fields(type_name: &str) -> Option<Known> {
    let line = TABLE.lines().find_map(|line| {
        let rest = line.strip_prefix(type_name)?;
        rest.is_empty().then_some("").or(rest.strip_prefix(' '))
    })?;
    match line {
        "-" => Some(Known::Several),
        line => definition::of_ros_2(line).map(Known::Fields),
    }
}

/// Compares the fields of a type in ROS 1 with those in ROS 2. The depth of the recursion is
/// limited by the types in the table.
///
/// # Errors
/// Returns the name of the first field that differs.
fn members(
    type_name: &str,
    own: &[Field<'_>],
    known: &[Field<'static>],
    types: &Types<'_>,
) -> Result<Vec<Member>, String> {
    let mut own = own.iter();
    let mut found = Vec::new();
    if type_name == HEADER {
        let first = own.next().ok_or("seq")?;
        if (first.name, &*first.base, first.array) != ("seq", "uint32", "") {
            return Err(first.name.to_owned());
        }
        found.push(Member {
            part: Part::Sequence,
            count: Count::One,
        });
    }
    for known in known {
        let own = own.next().ok_or(known.name)?;
        let is_same = is_same_name(own.name, known.name)
            && own.base == known.base
            && own.array == known.array;
        if !is_same {
            return Err(known.name.to_owned());
        }
        found.push(Member {
            part: part(known, types)?,
            count: count(known.array).ok_or(known.name)?,
        });
    }
    match own.next() {
        Some(more) => Err(more.name.to_owned()),
        None => Ok(found),
    }
}

fn part(field: &Field<'static>, types: &Types<'_>) -> Result<Part, String> {
    let times = |size: usize| Part::Message(vec![number(size), number(size)]);
    Ok(match &*field.base {
        "string" => Part::Text,
        "bool" | "byte" | "char" | "int8" | "uint8" => Part::Number(1),
        "int16" | "uint16" => Part::Number(2),
        "int32" | "uint32" | "float32" => Part::Number(4),
        "int64" | "uint64" | "float64" => Part::Number(8),
        "time" | "duration" => times(4),
        message => {
            let known = match fields(message) {
                Some(Known::Fields(known)) => known,
                Some(Known::Several) | None => return Err(field.name.to_owned()),
            };
            let own = types.get(message).ok_or(field.name)?;
            Part::Message(members(message, own, &known, types)?)
        }
    })
}

fn number(size: usize) -> Member {
    Member {
        part: Part::Number(size),
        count: Count::One,
    }
}

fn count(array: &str) -> Option<Count> {
    match array {
        "" => Some(Count::One),
        "[]" => Some(Count::Sequence),
        array => {
            let number = array.strip_prefix('[')?.strip_suffix(']')?;
            number.parse().ok().map(Count::Array)
        }
    }
}

/// Returns true if a name of ROS 1 is equal to a name of ROS 2. ROS 2 names have no capital
/// letters: for example, `K` became `k`.
fn is_same_name(own: &str, known: &str) -> bool {
    let letters = |name: &'_ str| -> String {
        let kept = name.chars().filter(|c| *c != '_');
        kept.flat_map(char::to_lowercase).collect()
    };
    letters(own) == letters(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_the_table_refers_only_to_types_of_the_table() {
        let mut count = 0;
        for line in TABLE.lines() {
            let name = line.split(' ').next().expect("a name");
            let Some(Known::Fields(known)) = fields(name) else {
                continue;
            };
            for field in known {
                let is_known =
                    definition::is_primitive(&field.base) || fields(&field.base).is_some();
                assert!(is_known, "{name}: {}", field.base);
            }
            count += 1;
        }
        assert!(count > 100, "{count}");
    }
}
