//! Reads `records.table` and generates the C header and the Rust code of the records.
//!
//! The build script and the tests contain this module. The C header asserts the offsets from which
//! the Rust code reads, so that the two cannot differ.
use std::fmt::Write as _;

/// The size in bytes of the head with which every record begins. The record's fields follow the
/// head.
pub const HEAD_BYTES: usize = 22;

#[derive(Debug, Default)]
pub struct Table {
    pub constants: Vec<(String, u64)>,
    pub enums: Vec<Enum>,
    pub records: Vec<Record>,
}

/// An enum of `onbeat_trace`, with the numbers of its values in records.
#[derive(Debug)]
pub struct Enum {
    pub name: String,
    pub rust: String,
    pub values: Vec<String>,
}

#[derive(Debug)]
pub struct Record {
    pub name: String,
    pub number: u64,
    /// The event to which onbeat decodes the record, or `None` for a message to the recorder.
    pub event: Option<String>,
    pub fields: Vec<Field>,
    pub size: usize,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub ty: String,
    /// The offset from the record's start in bytes, or `None` if the field has no bytes in the
    /// record.
    pub offset: Option<usize>,
}

impl Table {
    pub fn parse(text: &str) -> Result<Table, String> {
        let mut table = Table::default();
        for (number, statement) in statements(text) {
            let wrong = |reason: String| format!("records.table:{number}: {reason}");
            table.statement(&statement).map_err(wrong)?;
        }
        Ok(table)
    }

    fn statement(&mut self, statement: &str) -> Result<(), String> {
        let (word, rest) = statement.split_once(' ').unwrap_or((statement, ""));
        match word {
            "const" => {
                let (name, value) = pair(rest, '=')?;
                self.constants.push((name.into(), integer(value)?));
            }
            "enum" => {
                let (head, values) = braces(rest)?;
                let (name, rust) = head
                    .split_once(" as ")
                    .ok_or("write enum NAME as RUST_NAME { VALUE, ... }")?;
                self.enums.push(Enum {
                    name: name.trim().into(),
                    rust: rust.trim().into(),
                    values: list(values).map(str::to_owned).collect(),
                });
            }
            "event" | "message" => {
                let record = self.record(word == "event", rest)?;
                self.records.push(record);
            }
            _ => return Err(format!("{word} is not const, enum, event or message")),
        }
        Ok(())
    }

    fn record(&self, is_event: bool, text: &str) -> Result<Record, String> {
        let (head, fields) = braces(text)?;
        let (name, number) = pair(head, '=')?;
        let (number, event) = match number.split_once(" as ") {
            Some((number, event)) => (number, event.trim()),
            None => (number, name),
        };
        let number = integer(number)?;
        if number == 0 || number >= self.constant("KIND_COUNT")? {
            return Err(format!(
                "{name}: the number {number} is not between 1 and KIND_COUNT - 1"
            ));
        }
        if let Some(other) = self.records.iter().find(|r| r.number == number) {
            return Err(format!(
                "{name}: the number {number} is already used by {}",
                other.name
            ));
        }
        if let Some(other) = self.records.iter().find(|r| r.name == name) {
            return Err(format!(
                "{name} is already defined, with the number {}",
                other.number
            ));
        }
        let mut record = Record {
            name: name.into(),
            number,
            event: is_event.then(|| camel(event)),
            fields: Vec::new(),
            size: 0,
        };
        for field in list(fields) {
            let (name, ty) = pair(field, ':')?;
            self.size_and_alignment(ty)?;
            record.fields.push(Field {
                name: name.into(),
                ty: ty.into(),
                offset: None,
            });
        }
        self.place(&mut record)?;
        Ok(record)
    }

    /// Places the fields of a record, small ones first. Small fields fill the two bytes behind the
    /// head, so that no gaps arise.
    fn place(&self, record: &mut Record) -> Result<(), String> {
        let alignment = |f: &Field| self.size_and_alignment(&f.ty).map_or(0, |(_, a)| a);
        // Texts need no alignment, so they follow the numbers.
        let order = |f: &Field| match f.ty.as_str() {
            "text" | "comm" => usize::MAX,
            _ => alignment(f),
        };
        record.fields.sort_by_key(order);
        let mut at = HEAD_BYTES;
        for field in &mut record.fields {
            let (size, alignment) = self.size_and_alignment(&field.ty)?;
            if size > 0 {
                at = at.next_multiple_of(alignment);
                field.offset = Some(at);
                at += size;
            }
        }
        record.size = at.next_multiple_of(8);
        Ok(())
    }

    fn size_and_alignment(&self, ty: &str) -> Result<(usize, usize), String> {
        Ok(match ty {
            "u8" => (1, 1),
            "u16" | "flag" => (2, 2),
            "u32" => (4, 4),
            "u64" | "i64" | "known_i64" => (8, 8),
            "gid" => (16, 8),
            "text" => (self.constant("TEXT_BYTES")? as usize, 1),
            "comm" => (self.constant("COMM_BYTES")? as usize, 1),
            "handles" => (8 + 8 * self.constant("WAIT_SET_MAX")? as usize, 8),
            "unknown" => (0, 1),
            other if self.enums.iter().any(|e| e.name == other) => (2, 2),
            other => return Err(format!("there is no type {other}")),
        })
    }

    fn constant(&self, name: &str) -> Result<u64, String> {
        let found = self.constants.iter().find(|(n, _)| n == name);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("there is no const {name} before this line"))
    }

    pub fn c_header(&self) -> String {
        let mut c = String::from("// Made from records.table by build.rs.\n");
        for (name, value) in &self.constants {
            let _ = writeln!(c, "#define {name} {value}");
        }
        for e in &self.enums {
            let prefix = e.name.to_uppercase();
            let values = e
                .values
                .iter()
                .map(|v| format!("{prefix}_{}", v.to_uppercase()));
            let values: Vec<_> = values.collect();
            let _ = writeln!(c, "enum {} {{ {} }};", e.name, values.join(", "));
        }
        c += "enum kind {\n";
        for r in &self.records {
            let _ = writeln!(c, "\tKIND_{} = {},", r.name, r.number);
        }
        c += "};\n";
        c += "struct gid { __u64 half[2]; };\n";
        c += "struct handles { __u64 count; __u64 handle[WAIT_SET_MAX]; };\n";
        self.records.iter().for_each(|r| self.c_struct(&mut c, r));
        c
    }

    fn c_struct(&self, c: &mut String, record: &Record) {
        let name = &record.name;
        let _ = writeln!(c, "struct record_{name} {{\n\tRECORD_HEAD");
        for field in record.fields.iter().filter(|f| f.offset.is_some()) {
            let _ = writeln!(c, "\t{};", c_field(field));
        }
        c.push_str("};\n");
        for field in &record.fields {
            if let Some(offset) = field.offset {
                let member = &field.name;
                let _ = writeln!(
                    c,
                    "_Static_assert(__builtin_offsetof(struct record_{name}, {member}) == {offset}, \
                     \"{name}.{member}\");"
                );
            }
        }
        let size = record.size;
        let _ = writeln!(
            c,
            "_Static_assert(sizeof(struct record_{name}) == {size}, \"{name}\");"
        );
    }

    pub fn rust_module(&self) -> String {
        let mut rust = String::new();
        for (name, value) in &self.constants {
            let _ = writeln!(
                rust,
                "/// See records.table.\n#[allow(dead_code)]\npub const {name}: usize = {value};"
            );
        }
        for e in &self.enums {
            rust_enum(&mut rust, e);
        }
        self.rust_names(&mut rust);
        rust += "/// The event that a record becomes; `None` for messages and unknown kinds.\n\
                 pub fn event(kind: u16, record: Fields<'_>) -> Option<EventKind> {\n    Some(match kind {\n";
        for record in &self.records {
            if let Some(event) = &record.event {
                let number = record.number;
                let fields = rust_fields(record);
                let _ = writeln!(
                    rust,
                    "        {number} => EventKind::{event} {{ {fields} }},"
                );
            }
        }
        rust += "        _ => return None,\n    })\n}\n";
        for record in self.records.iter().filter(|r| r.event.is_none()) {
            rust_message(&mut rust, record);
        }
        rust
    }

    fn rust_names(&self, rust: &mut String) {
        // The BPF programs use all numbers, the recorder only some.
        *rust += "/// The numbers of the records.\n#[allow(dead_code)]\npub mod kind {\n";
        for r in &self.records {
            let (name, number) = (&r.name, r.number);
            let _ = writeln!(rust, "    /// `{name}` in records.table.");
            let _ = writeln!(
                rust,
                "    pub const {}: u16 = {number};",
                name.to_uppercase()
            );
        }
        *rust += "}\n/// Name of a record in manifests.\n\
                  pub fn name(kind: u16) -> &'static str {\n    match kind {\n";
        for r in &self.records {
            let _ = writeln!(rust, "        {} => \"{}\",", r.number, r.name);
        }
        *rust += "        _ => \"unknown\",\n    }\n}\n";
    }
}

/// Returns the statements of a table, each with the line on which it begins. Removes comments, and
/// joins lines within braces.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match statements.last_mut().filter(|_| open) {
            _ if line.is_empty() => continue,
            Some((_, statement)) => {
                statement.push(' ');
                statement.push_str(line);
            }
            None => statements.push((index + 1, line.into())),
        }
        open = (open || line.contains('{')) && !line.contains('}');
    }
    statements
}

fn pair(text: &str, separator: char) -> Result<(&str, &str), String> {
    let (name, value) = text
        .split_once(separator)
        .ok_or_else(|| format!("'{text}' lacks a '{separator}'"))?;
    Ok((name.trim(), value.trim()))
}

fn braces(text: &str) -> Result<(&str, &str), String> {
    let (head, rest) = pair(text, '{')?;
    let (inside, _) = pair(rest, '}')?;
    Ok((head, inside))
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn integer(text: &str) -> Result<u64, String> {
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("'{text}' is not a number"))
}

fn camel(name: &str) -> String {
    let word = |w: &str| w[..1].to_uppercase() + &w[1..];
    name.split('_')
        .filter(|w| !w.is_empty())
        .map(word)
        .collect()
}

fn c_field(field: &Field) -> String {
    let name = &field.name;
    match field.ty.as_str() {
        "u8" => format!("__u8 {name}"),
        "u32" => format!("__u32 {name}"),
        "u64" => format!("__u64 {name}"),
        "i64" | "known_i64" => format!("__s64 {name}"),
        "gid" => format!("struct gid {name}"),
        "text" => format!("char {name}[TEXT_BYTES]"),
        "comm" => format!("char {name}[COMM_BYTES]"),
        "handles" => format!("struct handles {name}"),
        _ => format!("__u16 {name}"),
    }
}

fn rust_enum(rust: &mut String, e: &Enum) {
    let (name, ty) = (&e.name, &e.rust);
    let _ = writeln!(rust, "fn {name}(value: u16) -> {ty} {{\n    match value {{");
    let (last, first) = e
        .values
        .split_last()
        .expect("an enum has at least one value");
    for (number, value) in first.iter().enumerate() {
        let _ = writeln!(rust, "        {number} => {ty}::{},", camel(value));
    }
    let _ = writeln!(rust, "        _ => {ty}::{},\n    }}\n}}", camel(last));
}

fn rust_fields(record: &Record) -> String {
    let field = |f: &Field| {
        let at = f.offset.unwrap_or(0);
        let value = match f.ty.as_str() {
            "known_i64" => format!("Some(record.i64({at}))"),
            "unknown" => "None".to_owned(),
            "text" => format!("record.text({at}, TEXT_BYTES)"),
            "comm" => format!("record.text({at}, COMM_BYTES)"),
            ty @ ("u8" | "u16" | "u32" | "u64" | "i64" | "flag" | "gid" | "handles") => {
                format!("record.{ty}({at})")
            }
            ty => format!("{ty}(record.u16({at}))"),
        };
        format!("{}: {value}", f.name)
    };
    record
        .fields
        .iter()
        .map(field)
        .collect::<Vec<_>>()
        .join(", ")
}

fn rust_message(rust: &mut String, record: &Record) {
    if record.fields.is_empty() {
        return;
    }
    let name = camel(&record.name);
    let _ = writeln!(
        rust,
        "/// The fields of `{}`.\npub struct {name} {{",
        record.name
    );
    for field in &record.fields {
        let ty = match field.ty.as_str() {
            "flag" => "bool",
            "handles" => "Vec<u64>",
            other => other,
        };
        let _ = writeln!(
            rust,
            "    /// See records.table.\n    pub {}: {ty},",
            field.name
        );
    }
    let fields = rust_fields(record);
    let _ = writeln!(
        rust,
        "}}\nimpl {name} {{\n    /// Reads the record.\n    \
         pub fn read(record: Fields<'_>) -> {name} {{\n        {name} {{ {fields} }}\n    }}\n}}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    const BASE: &str = "const KIND_COUNT = 9\nconst TEXT_BYTES = 256\nconst COMM_BYTES = 16\n\
                        const WAIT_SET_MAX = 4\nenum way as Way { in, out }\n";

    fn parse(records: &str) -> Result<Table, String> {
        Table::parse(&format!("{BASE}{records}"))
    }

    fn offsets(table: &Table) -> Vec<(&str, Option<usize>)> {
        let fields = table.records[0].fields.iter();
        fields.map(|f| (f.name.as_str(), f.offset)).collect()
    }

    #[test]
    fn a_small_field_fills_the_gap_behind_the_head_of_a_record() {
        let table =
            parse("event take = 1 { rmw: u64, name: text, taken: flag, gone: unknown }").unwrap();
        let expected = [
            ("gone", None),
            ("taken", Some(22)),
            ("rmw", Some(24)),
            ("name", Some(32)),
        ];
        assert_eq!(offsets(&table), expected);
        assert_eq!(table.records[0].size, 288);
        let empty = parse("message quiet = 2 {}").unwrap();
        assert_eq!(empty.records[0].size, 24);
    }

    #[test]
    fn the_generated_records_module_matches_records_table() {
        let made = include_str!(concat!(env!("OUT_DIR"), "/records.rs"));
        let table = Table::parse(include_str!("records.table")).expect("the table");
        assert_eq!(table.rust_module(), made);
    }

    #[test]
    fn an_error_in_records_table_names_the_line_and_the_reason() {
        for (records, line, reason) in [
            ("event a = 9 {}", 6, "not between 1 and KIND_COUNT"),
            (
                "event a = 1 {}\nmessage b = 1 {}",
                7,
                "number 1 is already used by a",
            ),
            (
                "event a = 1 {}\nevent a = 2 {}",
                7,
                "already defined, with the number 1",
            ),
            ("event a = 1 { x: u63 }", 6, "no type u63"),
            ("event a = 1 {\n x: u64,\n y }", 6, "lacks a ':'"),
            ("record a = 1 {}", 6, "not const, enum"),
            ("event a = one {}", 6, "not a number"),
        ] {
            let error = parse(records).expect_err(records);
            assert!(
                error.starts_with(&format!("records.table:{line}: ")) && error.contains(reason),
                "{error}"
            );
        }
    }

    fn compiles(table: &Table) -> bool {
        let head = "#include <linux/types.h>\n#define RECORD_HEAD __u64 time_ns; __u32 pid, tid; \
                    __u16 kind, cpu, probe;\n";
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
        let mut child = Command::new(clang)
            .args(["-target", "bpf", "-fsyntax-only", "-xc", "-"])
            .arg(format!(
                "-I/usr/include/{}-linux-gnu",
                std::env::consts::ARCH
            ))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("clang should run, as it does in the build");
        let source = head.to_owned() + &table.c_header();
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(source.as_bytes()).expect("clang reads");
        drop(stdin);
        child.wait().expect("clang ends").success()
    }

    #[test]
    fn the_c_header_refuses_an_offset_that_rust_does_not_read_from() {
        let mut table = parse("event publish = 1 { rmw: u64, source_ns: i64, way: way }").unwrap();
        assert!(compiles(&table));
        let size = std::mem::replace(&mut table.records[0].size, 48);
        assert!(!compiles(&table), "a record's size");
        table.records[0].size = size;
        table.records[0].fields[1].offset = Some(32);
        assert!(!compiles(&table), "a field's offset");
    }
}
