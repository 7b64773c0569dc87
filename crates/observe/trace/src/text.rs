//! Events as text, one per line: for traces written by hand, and for reading recorded ones.
//!
//! ```text
//! # time  CPU  pid/tid  event  fields
//! 1ms cpu0 12/12 node_init node=0x1 rmw=0x2 name=talker namespace=/
//! 2ms cpu0 12/12 timer_init timer=0x3 period_ns=100ms
//! 3.5ms cpu1 12/14 switch_in
//! ```
//!
//! Times and durations take the units `ns`, `us`, `ms` and `s`. A name is quoted if it is empty, or
//! if it has spaces, quotes, control characters or characters outside of ASCII. The escapes are
//! `\"`, `\\` and `\u{1F}`. A line may leave out the fields that [`DEFAULTS`] lists.
use crate::event::{Event, Name};
use crate::table::{self, FieldSink, FieldSource};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The fields that a line may leave out, each with the value that the parser then assumes.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("message", "0"),
    ("taken", "yes"),
    ("intra_process", "no"),
    ("overwritten", "no"),
    ("late", "no"),
    ("depth", "10"),
    ("namespace", "/"),
    ("prev_tid", "0"),
    ("next_tid", "0"),
    ("priority", "120"),
    ("policy", "0"),
    ("state", "1"),
    ("cpus", "0x3"),
];

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TextError {
    /// The number of the line. The first line has number 1.
    pub line: usize,
    pub problem: Problem,
}

/// The mistake in a line that cannot be parsed as an event.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("`{0}` is not {1}. A line has the form `TIME cpuN PID/TID EVENT FIELD=VALUE ...`.")]
    Start(String, &'static str),
    #[error("unknown event `{0}`. See the table in docs/trace-format.md.")]
    Event(String),
    #[error("{event} needs the field `{field}`")]
    Missing {
        event: &'static str,
        field: &'static str,
    },
    #[error("{event} has no field `{field}`, or the field occurs twice")]
    Surplus { event: &'static str, field: String },
    #[error("`{field}={value}` is not {expected}")]
    Value {
        field: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("`{0}` is not FIELD=VALUE, or its quotes or escapes are wrong")]
    Syntax(String),
}

/// Formats an event as one line, without the line end. [`parse_line`] reads it back.
pub fn print(event: &Event) -> String {
    let code = table::code(&event.kind);
    let name = table::info(code).map_or("", |i| i.name);
    let mut out = format!(
        "{} cpu{} {}/{} {name}",
        event.time_ns, event.cpu, event.pid, event.tid
    );
    table::put(&event.kind, &mut Printer(&mut out));
    out
}

/// Parses events, one per line. Ignores empty lines, and comments from `#` to the end of the line.
pub fn parse(text: &str) -> Result<Vec<Event>, TextError> {
    let mut events = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let parsed = parse_line(line).map_err(|problem| TextError {
            line: number + 1,
            problem,
        })?;
        events.extend(parsed);
    }
    Ok(events)
}

/// Parses one line. Returns `None` if the line is empty or has only a comment.
pub fn parse_line(line: &str) -> Result<Option<Event>, Problem> {
    let mut rest = line;
    let mut word = || -> Result<Option<(&str, Cow<'_, str>)>, Problem> { next_word(&mut rest) };
    let Some((time, _)) = word()? else {
        return Ok(None);
    };
    let start = |word: &str, what| Problem::Start(word.to_string(), what);
    let time_ns = number_ns(time)
        .and_then(|n| u64::try_from(n).ok())
        .ok_or_else(|| start(time, "a time"))?;
    let (cpu, _) = word()?.unwrap_or_default();
    let cpu = cpu
        .strip_prefix("cpu")
        .and_then(|c| c.parse().ok())
        .ok_or_else(|| start(cpu, "a CPU"))?;
    let (thread, _) = word()?.unwrap_or_default();
    let (pid, tid) = thread
        .split_once('/')
        .and_then(|(pid, tid)| Some((pid.parse().ok()?, tid.parse().ok()?)))
        .ok_or_else(|| start(thread, "PID/TID"))?;
    let (name, _) = word()?.unwrap_or_default();
    let info = table::by_name(name).ok_or_else(|| Problem::Event(name.to_string()))?;
    let mut fields = Fields {
        event: info.name,
        values: Vec::new(),
    };
    while let Some((key, value)) = word()? {
        let key = key
            .split_once('=')
            .ok_or_else(|| Problem::Syntax(key.to_string()))?
            .0;
        fields.values.push((key, value));
    }
    let kind =
        table::get(info.code, &mut fields)?.ok_or_else(|| Problem::Event(name.to_string()))?;
    if let Some((field, _)) = fields.values.first() {
        return Err(Problem::Surplus {
            event: info.name,
            field: field.to_string(),
        });
    }
    Ok(Some(Event {
        time_ns,
        cpu,
        pid,
        tid,
        kind,
    }))
}

fn next_word<'a>(rest: &mut &'a str) -> Result<Option<(&'a str, Cow<'a, str>)>, Problem> {
    let line = rest.trim_start();
    if line.is_empty() || line.starts_with('#') {
        *rest = "";
        return Ok(None);
    }
    let plain = line.find(char::is_whitespace).unwrap_or(line.len());
    let value = line[..plain].find('=').map_or(plain, |at| at + 1);
    if !line[value..].starts_with('"') {
        *rest = &line[plain..];
        return Ok(Some((&line[..plain], Cow::Borrowed(&line[value..plain]))));
    }
    let wrong = || Problem::Syntax(line.to_string());
    let mut text = String::new();
    let mut chars = line[value + 1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let end = value + 1 + at + 1;
                *rest = &line[end..];
                if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
                    return Err(wrong());
                }
                return Ok(Some((&line[..end], Cow::Owned(text))));
            }
            '\\' => match chars.next().map(|(_, c)| c) {
                Some(c @ ('"' | '\\')) => text.push(c),
                Some('u') => {
                    let code = chars
                        .as_str()
                        .strip_prefix('{')
                        .and_then(|s| s.split_once('}'));
                    let code = code.ok_or_else(wrong)?.0;
                    let c = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
                    text.push(c.ok_or_else(wrong)?);
                    // Skip the braces and the code between them.
                    chars.nth(code.chars().count() + 1);
                }
                _ => return Err(wrong()),
            },
            _ => text.push(c),
        }
    }
    Err(wrong())
}

/// Parses an integer (hexadecimal with `0x`), or a time with a unit, which is converted to
/// nanoseconds.
fn number_ns(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = if let Some(hex) = digits.strip_prefix("0x") {
        if hex.starts_with('+') {
            return None;
        }
        i128::from(u64::from_str_radix(hex, 16).ok()?)
    } else {
        let end = digits
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(digits.len());
        let (digits, unit) = digits.split_at(end);
        let places = match unit {
            "" | "ns" => 0,
            "us" => 3,
            "ms" => 6,
            "s" => 9,
            _ => return None,
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() || whole.len() > 20 || part.len() > places || part.contains('.') {
            return None;
        }
        // "1.5ms" is "1" and "500000": filling up with zeros shifts the decimal point.
        format!("{whole}{part:0<places$}").parse().ok()?
    };
    Some(if negative { -value } else { value })
}

struct Fields<'a> {
    event: &'static str,
    values: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> Fields<'a> {
    fn value(&mut self, field: &'static str) -> Result<Cow<'a, str>, Problem> {
        if let Some(at) = self.values.iter().position(|(key, _)| *key == field) {
            return Ok(self.values.remove(at).1);
        }
        let default = DEFAULTS.iter().find(|(key, _)| *key == field);
        match default {
            Some((_, value)) => Ok(Cow::Borrowed(value)),
            None => Err(Problem::Missing {
                event: self.event,
                field,
            }),
        }
    }

    fn convert<T>(
        &mut self,
        field: &'static str,
        expected: &'static str,
        convert: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Problem> {
        let value = self.value(field)?;
        convert(&value).ok_or_else(|| Problem::Value {
            field,
            value: value.into_owned(),
            expected,
        })
    }

    fn number<T: TryFrom<i128>>(
        &mut self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<T, Problem> {
        self.convert(field, expected, |v| T::try_from(number_ns(v)?).ok())
    }
}

impl FieldSource for Fields<'_> {
    type Error = Problem;
    fn handle(&mut self, field: &'static str) -> Result<u64, Problem> {
        self.number(field, "an address")
    }
    fn message(&mut self, field: &'static str) -> Result<u64, Problem> {
        self.number(field, "an address")
    }
    fn tid(&mut self, field: &'static str) -> Result<u32, Problem> {
        self.number(field, "a thread or process id")
    }
    fn small(&mut self, field: &'static str, max: u16) -> Result<u16, Problem> {
        self.convert(field, "a small number", |v| {
            u16::try_from(number_ns(v)?).ok().filter(|n| *n <= max)
        })
    }
    fn int(&mut self, field: &'static str) -> Result<i64, Problem> {
        self.number(field, "a number or time")
    }
    fn uint(&mut self, field: &'static str) -> Result<u64, Problem> {
        self.number(field, "a number")
    }
    fn mask(&mut self, field: &'static str) -> Result<u64, Problem> {
        self.number(field, "a mask")
    }
    fn gid(&mut self, field: &'static str) -> Result<[u8; 16], Problem> {
        self.convert(field, "up to 32 hexadecimal digits", |v| {
            if v.starts_with('+') {
                return None;
            }
            u128::from_str_radix(v, 16).ok().map(u128::to_be_bytes)
        })
    }
    fn stamp(&mut self, field: &'static str, required: bool) -> Result<Option<i64>, Problem> {
        if required {
            return self.number(field, "a time stamp").map(Some);
        }
        self.convert(field, "a time stamp or `-`", |v| match v {
            "-" => Some(None),
            v => i64::try_from(number_ns(v)?).ok().map(Some),
        })
    }
    fn flag(&mut self, field: &'static str) -> Result<bool, Problem> {
        self.convert(field, "`yes` or `no`", |v| match v {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        })
    }
    fn name(&mut self, field: &'static str) -> Result<Name, Problem> {
        Ok(self.value(field)?.into())
    }
    fn choice(
        &mut self,
        field: &'static str,
        words: &'static [&'static str],
    ) -> Result<u8, Problem> {
        self.convert(field, "one of the words that the field allows", |v| {
            words.iter().position(|w| *w == v).map(|i| i as u8)
        })
    }
}

struct Printer<'a>(&'a mut String);

impl Printer<'_> {
    fn field(&mut self, field: &str, value: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {field}={value}");
    }
}

impl FieldSink for Printer<'_> {
    fn handle(&mut self, field: &'static str, value: u64) {
        self.field(field, format_args!("{value:#x}"));
    }
    fn message(&mut self, field: &'static str, value: u64) {
        self.field(field, format_args!("{value:#x}"));
    }
    fn tid(&mut self, field: &'static str, value: u32) {
        self.field(field, format_args!("{value}"));
    }
    fn small(&mut self, field: &'static str, value: u16) {
        self.field(field, format_args!("{value}"));
    }
    fn int(&mut self, field: &'static str, value: i64) {
        self.field(field, format_args!("{value}"));
    }
    fn uint(&mut self, field: &'static str, value: u64) {
        self.field(field, format_args!("{value}"));
    }
    fn mask(&mut self, field: &'static str, value: u64) {
        self.field(field, format_args!("{value:#x}"));
    }
    fn gid(&mut self, field: &'static str, value: &[u8; 16]) {
        self.field(field, format_args!("{:x}", u128::from_be_bytes(*value)));
    }
    fn stamp(&mut self, field: &'static str, value: Option<i64>) {
        match value {
            Some(value) => self.field(field, format_args!("{value}")),
            None => self.field(field, format_args!("-")),
        }
    }
    fn flag(&mut self, field: &'static str, value: bool) {
        self.field(field, format_args!("{}", if value { "yes" } else { "no" }));
    }
    fn name(&mut self, field: &'static str, value: &Name) {
        let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        if !value.is_empty() && value.chars().all(plain) {
            return self.field(field, format_args!("{value}"));
        }
        let mut quoted = String::from("\"");
        for c in value.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                // Characters that would move the cursor or reverse the line are escaped too.
                _ if c != '\'' && c.escape_debug().len() > 1 => quoted.extend(c.escape_unicode()),
                _ => quoted.push(c),
            }
        }
        quoted.push('"');
        self.field(field, format_args!("{quoted}"));
    }
    fn choice(&mut self, field: &'static str, words: &'static [&'static str], value: u8) {
        let word = words.get(usize::from(value)).unwrap_or(&"?");
        self.field(field, format_args!("{word}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    #[test]
    fn a_handwritten_event_may_omit_fields_with_defaults() {
        let text = "\n# a comment\n\
            1.5ms cpu0 12/12 node_init name=\"a \\\"b\\\\\\u{e9}\" node=0x1 rmw=2 # trailing\n\
            2s cpu3 12/13 take source_ns=-3us rmw=0x10\n\
            7 cpu0 1/1 publish rmw=1 source_ns=-\n";
        let events = parse(text).expect("parsed");
        assert_eq!(
            events[0],
            Event {
                time_ns: 1_500_000,
                cpu: 0,
                pid: 12,
                tid: 12,
                kind: EventKind::NodeInit {
                    node: 1,
                    rmw: 2,
                    name: "a \"b\\é".into(),
                    namespace: "/".into()
                }
            }
        );
        assert_eq!(
            events[1].kind,
            EventKind::Take {
                rmw: 16,
                message: 0,
                source_ns: -3000,
                taken: true
            }
        );
        assert_eq!(events[2].time_ns, 7);
    }

    #[test]
    fn a_wrong_event_line_is_reported_with_number_and_mistake() {
        let problem = |line: &str| parse(line).expect_err(line).to_string();
        assert!(problem("x cpu0 1/1 wait").starts_with("line 1: `x` is not a time"));
        assert!(problem("\n1 cpu 1/1 wait").starts_with("line 2: `cpu` is not a CPU"));
        assert!(problem("1 cpu0 1 wait").contains("PID/TID"));
        assert!(problem("1 cpu0 1/1 waits").contains("unknown event `waits`"));
        assert!(problem("1 cpu0 1/1 wake").contains("needs the field `waker_tid`"));
        assert!(problem("1 cpu0 1/1 wait a=1").contains("no field `a`"));
        assert!(problem("1 cpu0 1/1 switch_in policy=256").contains("policy=256"));
        assert!(problem("1 cpu0 1/1 exec comm=\"a").contains("quotes"));
        assert!(problem("1 cpu0 1/1 timer_init timer=1 period_ns=1.0001us").contains("period_ns"));
    }
}
