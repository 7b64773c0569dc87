//! The layout of a message type: its fields in the order of their serialisation, from the type's
//! definition (the text of its `.msg` file, and those of the types in it).

use std::collections::HashMap;

const MOST_FIELDS: usize = 10_000;
const DEEPEST: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Scalar {
    fn of(name: &str) -> Option<Scalar> {
        Some(match name {
            "bool" => Scalar::Bool,
            "int8" => Scalar::I8,
            "uint8" | "byte" | "char" => Scalar::U8,
            "int16" => Scalar::I16,
            "uint16" => Scalar::U16,
            "int32" => Scalar::I32,
            "uint32" => Scalar::U32,
            "int64" => Scalar::I64,
            "uint64" => Scalar::U64,
            "float32" => Scalar::F32,
            "float64" => Scalar::F64,
            _ => return None,
        })
    }

    pub fn size(self) -> usize {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Scalar {
        leaf: usize,
        scalar: Scalar,
    },
    Text {
        leaf: usize,
    },
    Time {
        leaf: usize,
    },
    Fields(Vec<Node>),
    /// The byte that represents a type without fields. The value of the byte has no meaning.
    Filler,
    /// An array of values of one kind. `fixed` is the number of values, or `None` if each message
    /// states the number.
    Array {
        leaf: usize,
        fixed: Option<u32>,
        element: Box<Node>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Float,
    Integer,
    Text,
    Stamp,
    Duration,
    Length,
}

/// A field of a basic type in a layout. All elements of an array are one leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The path of field names from the message's root, for example `pose.position.x` or
    /// `points[].x`.
    pub path: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub root: Node,
    pub leaves: Vec<Leaf>,
}

struct Declared<'t> {
    of_type: &'t str,
    name: &'t str,
}

struct Builder<'t> {
    types: HashMap<String, Vec<Declared<'t>>>,
    leaves: Vec<Leaf>,
    fields: usize,
}

impl Layout {
    /// Parses the definition of a message type. `definition` contains the type's own definition,
    /// and then those of the types that it uses. A line of `=` and a line `MSG: package/Name`
    /// precede each definition of a used type.
    ///
    /// # Errors
    /// Returns the reason why messages of the type cannot be read by this definition.
    pub fn of(type_name: &str, definition: &str) -> Result<Layout, String> {
        let mut builder = Builder {
            types: HashMap::new(),
            leaves: Vec::new(),
            fields: 0,
        };
        let root = short(type_name);
        for (number, block) in blocks(definition).into_iter().enumerate() {
            let (name, lines) = match block.first().and_then(|l| l.strip_prefix("MSG:")) {
                Some(name) => (short(name.trim()), &block[1..]),
                None if number == 0 => (root.clone(), &block[..]),
                None => {
                    return Err("the message definition is not in the format of .msg files".into())
                }
            };
            let fields: Result<Vec<_>, String> = lines
                .iter()
                .filter_map(|line| declaration(line).transpose())
                .collect();
            builder.types.entry(name).or_insert(fields?);
        }
        let node = builder.nested(&root, "", 0)?;
        Ok(Layout {
            root: node,
            leaves: builder.leaves,
        })
    }
}

fn short(type_name: &str) -> String {
    match (type_name.split_once('/'), type_name.rsplit_once('/')) {
        (Some((package, _)), Some((_, name))) => format!("{package}/{name}"),
        _ => type_name.into(),
    }
}

fn blocks(definition: &str) -> Vec<Vec<&str>> {
    let mut blocks = vec![Vec::new()];
    for line in definition.lines() {
        let line = line.trim();
        if line.len() >= 20 && line.bytes().all(|b| b == b'=') {
            blocks.push(Vec::new());
        } else if let (false, Some(block)) = (line.is_empty(), blocks.last_mut()) {
            block.push(line);
        }
    }
    blocks
}

fn declaration(line: &str) -> Result<Option<Declared<'_>>, String> {
    if line.starts_with('#') || line.starts_with('@') {
        return Ok(None);
    }
    let unclear = || format!("the definition has a line that onbeat cannot read, '{line}'");
    let (of_type, rest) = line
        .split_once(|c: char| c.is_whitespace())
        .ok_or_else(unclear)?;
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    match (name.is_empty(), after.trim_start().starts_with('=')) {
        (true, _) => Err(unclear()),
        (false, true) => Ok(None),
        (false, false) => Ok(Some(Declared { of_type, name })),
    }
}

impl Builder<'_> {
    fn leaf(&mut self, path: &str, kind: Kind) -> usize {
        self.leaves.push(Leaf {
            path: path.into(),
            kind,
        });
        self.leaves.len() - 1
    }

    fn nested(&mut self, name: &str, path: &str, depth: usize) -> Result<Node, String> {
        if depth > DEEPEST {
            return Err(format!("types are nested in more than {DEEPEST} levels"));
        }
        let Some(fields) = self.types.remove(name) else {
            return Err(format!(
                "the definition of {name} is missing, or {name} contains itself"
            ));
        };
        let package = name.split('/').next().unwrap_or_default();
        let dot = if path.is_empty() { "" } else { "." };
        let nodes: Result<Vec<Node>, String> = fields
            .iter()
            .map(|field| {
                let path = format!("{path}{dot}{}", field.name);
                self.field(field.of_type, package, &path, depth + 1)
            })
            .collect();
        self.types.insert(name.into(), fields);
        let nodes = nodes?;
        Ok(match nodes.is_empty() {
            true => Node::Filler,
            false => Node::Fields(nodes),
        })
    }

    fn field(
        &mut self,
        of_type: &str,
        package: &str,
        path: &str,
        depth: usize,
    ) -> Result<Node, String> {
        self.fields += 1;
        if self.fields > MOST_FIELDS {
            return Err(format!("the type has more than {MOST_FIELDS} fields"));
        }
        if let Some((element, bound)) = of_type.strip_suffix(']').and_then(|t| t.rsplit_once('[')) {
            let fixed = match bound {
                bound if bound.is_empty() || bound.starts_with("<=") => None,
                bound => Some(
                    bound
                        .parse()
                        .map_err(|_| format!("'{of_type}' is not a type"))?,
                ),
            };
            let leaf = self.leaf(&format!("{path}.length"), Kind::Length);
            let element = self.field(element, package, &format!("{path}[]"), depth + 1)?;
            return Ok(Node::Array {
                leaf,
                fixed,
                element: Box::new(element),
            });
        }
        let bare = of_type.split("<=").next().unwrap_or_default();
        if let Some(scalar) = Scalar::of(bare) {
            let kind = match scalar {
                Scalar::F32 | Scalar::F64 => Kind::Float,
                _ => Kind::Integer,
            };
            let leaf = self.leaf(path, kind);
            return Ok(Node::Scalar { leaf, scalar });
        }
        match bare {
            "string" => Ok(Node::Text {
                leaf: self.leaf(path, Kind::Text),
            }),
            // Middlewares serialise them in different ways.
            "wstring" => Err(format!(
                "the field {path} is a wstring, which onbeat cannot read"
            )),
            _ => self.named(bare, package, path, depth),
        }
    }

    fn named(
        &mut self,
        name: &str,
        package: &str,
        path: &str,
        depth: usize,
    ) -> Result<Node, String> {
        let full = match name.contains('/') {
            true => short(name),
            false => format!("{package}/{name}"),
        };
        let kind = match full.as_str() {
            "builtin_interfaces/Time" => Kind::Stamp,
            "builtin_interfaces/Duration" => Kind::Duration,
            _ => return self.nested(&full, path, depth),
        };
        Ok(Node::Time {
            leaf: self.leaf(path, kind),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const POSE: &str = "\
# A pose with a name and points
std_msgs/Header header
int8 KIND_A=1
int8 KIND_B = 2 # with blanks
geometry_msgs/msg/Point position
string<=10 name \"a # in quotes\"
float32[] ranges
Pair[2] pairs
uint8[<=4] raw
Nothing nothing
builtin_interfaces/Duration since
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: geometry_msgs/Point
float64 x
float64 y 0.5
================================================================================
MSG: a_msgs/Pair
int64 left
bool right
================================================================================
MSG: a_msgs/Nothing
";

    #[test]
    fn a_definition_gives_its_fields_in_order() {
        let layout = Layout::of("a_msgs/msg/Pose", POSE).unwrap();
        let paths: Vec<&str> = layout.leaves.iter().map(|l| l.path.as_str()).collect();
        let expected = [
            "header.stamp",
            "header.frame_id",
            "position.x",
            "position.y",
            "name",
            "ranges.length",
            "ranges[]",
            "pairs.length",
            "pairs[].left",
            "pairs[].right",
            "raw.length",
            "raw[]",
            "since",
        ];
        assert_eq!(paths, expected);
        assert_eq!(layout.leaves[0].kind, Kind::Stamp);
        assert_eq!(layout.leaves[12].kind, Kind::Duration);
    }

    #[test]
    fn an_unusable_message_definition_is_refused_with_the_reason() {
        let line = "=".repeat(80);
        let doubled: String = (0..40)
            .map(|n| format!("{line}\nMSG: a/T{n}\nT{0} x\nT{0} y\n", n + 1))
            .collect();
        for (text, what) in [
            ("Missing x", "a/Missing is missing"),
            ("A x", "contains itself"),
            ("wstring x", "wstring"),
            ("float64[x] y", "not a type"),
            ("float64", "cannot read"),
            (
                &format!("T0 x\n{doubled}{line}\nMSG: a/T40\n"),
                "more than 10000 fields",
            ),
            (
                &format!("bool x\n{line}\nIDL: a/msg/B\n"),
                "is not in the format of .msg files",
            ),
        ] {
            let error = Layout::of("a/msg/A", text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_definitions_cause_no_panic(text in "([a-zA/]{0,9}(\\[[<=0-9]{0,3}\\])? [a-c=]{0,3}\n|={20}\nMSG: a/[A-C]\n){0,20}") {
            let _ = Layout::of("a/msg/A", &text);
        }
    }
}
