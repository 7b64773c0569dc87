//! Parses the tokens of the metadata.

use super::lexer::{tokens, Token};
use super::{Clock, EventClass, Metadata, MetadataError};
use crate::kinds::Kind;
use crate::types::{Field, Integer, Label, Order, Shape, ShortHeader, Type, MAX_DEPTH};
use std::collections::HashMap;
use std::rc::Rc;

type Parsed<T> = Result<T, MetadataError>;

pub(super) fn parse(text: &str) -> Parsed<Metadata> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        aliases: HashMap::new(),
        depth: 0,
    };
    let mut metadata = Metadata::default();
    while parser.peek().is_some() {
        parser.statement(&mut metadata)?;
    }
    Ok(metadata)
}

struct Parser<'a> {
    tokens: &'a [(Token, u32)],
    at: usize,
    aliases: HashMap<String, Rc<Type>>,
    depth: u16,
}

enum Value<'a> {
    Number(i128),
    Text(&'a str),
    Path(Vec<&'a str>),
    Type(Rc<Type>),
}

impl Value<'_> {
    fn text(&self) -> String {
        match self {
            Value::Number(n) => n.to_string(),
            Value::Text(t) => (*t).to_string(),
            Value::Path(words) => words.join("."),
            Value::Type(_) => String::new(),
        }
    }

    fn number(&self) -> i128 {
        match self {
            Value::Number(n) => *n,
            _ => 0,
        }
    }

    fn ty(self) -> Option<Rc<Type>> {
        match self {
            Value::Type(ty) => Some(ty),
            _ => None,
        }
    }

    fn is_yes(&self) -> bool {
        match self {
            Value::Number(n) => *n != 0,
            other => matches!(&*other.text(), "true" | "TRUE" | "1"),
        }
    }
}

/// Removes the underscore that LTTng puts before the name of a field.
fn field_name(word: &str) -> Box<str> {
    word.strip_prefix('_').unwrap_or(word).into()
}

impl<'a> Parser<'a> {
    fn wrong(&self, why: &'static str) -> MetadataError {
        match self.tokens.get(self.at) {
            Some((_, line)) => MetadataError::Syntax { line: *line, why },
            None => MetadataError::EndsEarly,
        }
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn word(&mut self) -> Parsed<&'a str> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.wrong("a name is expected")),
        }
    }

    fn number(&mut self) -> Parsed<i128> {
        let negative = self.takes(&Token::Mark('-'));
        match self.peek() {
            Some(Token::Number(n)) => {
                self.at += 1;
                Ok(if negative { -n } else { *n })
            }
            _ => Err(self.wrong("a number is expected")),
        }
    }

    fn takes(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Parsed<()> {
        match self.takes(&Token::Mark(mark)) {
            true => Ok(()),
            false => Err(self.wrong(match mark {
                ';' => "';' is expected",
                '{' => "'{' is expected",
                '}' => "'}' is expected",
                '=' => "'=' is expected",
                '>' => "'>' is expected",
                '(' => "'(' is expected",
                ')' => "')' is expected",
                ']' => "']' is expected",
                _ => "a different punctuation mark is expected",
            })),
        }
    }

    fn statement(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        if self.takes(&Token::Mark(';')) {
            return Ok(());
        }
        let start = self.at;
        match self.word()? {
            "typealias" => {
                let ty = self.ty(false)?;
                if !self.takes(&Token::Assign) {
                    return Err(self.wrong("':=' is expected"));
                }
                let mut name = vec![self.word()?];
                while self.peek() != Some(&Token::Mark(';')) {
                    name.push(self.word()?);
                }
                self.aliases.insert(name.join(" "), ty);
            }
            "struct" | "enum" | "variant" => {
                self.at = start;
                self.ty(false)?;
            }
            "trace" => {
                for (name, value) in self.attributes()? {
                    match &*name {
                        "byte_order" => metadata.order = self.order(&value)?.unwrap_or_default(),
                        "uuid" => metadata.uuid = value.text().into(),
                        "packet.header" => metadata.packet_header = value.ty(),
                        _ => {}
                    }
                }
            }
            "env" => {
                for (name, value) in self.attributes()? {
                    metadata
                        .environment
                        .insert(name.into(), value.text().into());
                }
            }
            "clock" => {
                let clock = self.clock()?;
                // LTTng writes one clock. If there are more, the first one is used.
                metadata.clock.get_or_insert(clock);
            }
            "stream" => self.stream(metadata)?,
            "event" => self.event(metadata)?,
            "callsite" => {
                self.attributes()?;
            }
            _ => {
                self.at = start;
                return Err(self.wrong("an unknown statement"));
            }
        }
        self.expect(';')
    }

    fn attributes(&mut self) -> Parsed<Vec<(String, Value<'a>)>> {
        self.expect('{')?;
        let mut found = Vec::new();
        while !self.takes(&Token::Mark('}')) {
            let name = self.path()?.join(".");
            let value = if self.takes(&Token::Assign) {
                Value::Type(self.ty(false)?)
            } else {
                self.expect('=')?;
                match self.peek() {
                    Some(Token::Text(text)) => {
                        self.at += 1;
                        Value::Text(text)
                    }
                    Some(Token::Word(_)) => Value::Path(self.path()?),
                    _ => Value::Number(self.number()?),
                }
            };
            self.expect(';')?;
            found.push((name, value));
        }
        Ok(found)
    }

    fn path(&mut self) -> Parsed<Vec<&'a str>> {
        let mut words = vec![self.word()?];
        while self.takes(&Token::Mark('.')) {
            words.push(self.word()?);
        }
        Ok(words)
    }

    fn order(&self, value: &Value) -> Parsed<Option<Order>> {
        match &*value.text() {
            "le" => Ok(Some(Order::Little)),
            "be" | "network" => Ok(Some(Order::Big)),
            "native" => Ok(None),
            _ => Err(self.wrong("the byte order is not le, be or native")),
        }
    }

    fn clock(&mut self) -> Parsed<Clock> {
        let mut clock = Clock {
            frequency: 1_000_000_000,
            ..Clock::default()
        };
        let (mut seconds, mut offset) = (0, 0);
        for (name, value) in self.attributes()? {
            match &*name {
                "name" => clock.name = value.text().into(),
                "uuid" => clock.uuid = value.text().into(),
                "freq" => clock.frequency = u64::try_from(value.number()).unwrap_or(0),
                "offset_s" => seconds = value.number(),
                "offset" => offset = value.number(),
                _ => {}
            }
        }
        if clock.frequency == 0 {
            return Err(self.wrong("the clock has no frequency"));
        }
        clock.offset_ns =
            seconds * 1_000_000_000 + offset * 1_000_000_000 / i128::from(clock.frequency);
        Ok(clock)
    }

    fn stream(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        let attributes = self.attributes()?;
        let stream = metadata
            .streams
            .entry(id_of("id", &attributes))
            .or_default();
        for (name, value) in attributes {
            match &*name {
                "packet.context" => stream.packet_context = value.ty(),
                "event.header" => {
                    stream.event_header = value.ty();
                    stream.short_header = stream.event_header.as_deref().and_then(ShortHeader::of);
                }
                "event.context" => stream.event_context = value.ty(),
                _ => {}
            }
        }
        Ok(())
    }

    fn event(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        let attributes = self.attributes()?;
        let (id, stream) = (id_of("id", &attributes), id_of("stream_id", &attributes));
        let mut class = EventClass {
            kind: Kind::Other,
            context: None,
            fields: None,
        };
        for (name, value) in attributes {
            match &*name {
                "name" => class.kind = Kind::of(&value.text()),
                "context" => class.context = value.ty(),
                "fields" => class.fields = value.ty(),
                _ => {}
            }
        }
        let stream = metadata.streams.entry(stream).or_default();
        stream.events.insert(id, class);
        Ok(())
    }

    fn made(&self, shape: Shape, align: u32) -> Parsed<Rc<Type>> {
        Type::new(shape, align).ok_or_else(|| self.wrong("types are nested too deeply"))
    }

    /// Parses a type. If `named` is true, a name follows the type, and the last word is that name.
    fn ty(&mut self, named: bool) -> Parsed<Rc<Type>> {
        if self.depth >= MAX_DEPTH {
            return Err(self.wrong("types are nested too deeply"));
        }
        self.depth += 1;
        let ty = self.ty_within(named);
        self.depth -= 1;
        ty
    }

    fn ty_within(&mut self, named: bool) -> Parsed<Rc<Type>> {
        let start = self.at;
        match self.word()? {
            "integer" => {
                let integer = self.integer()?;
                self.made(Shape::Integer(integer), 1)
            }
            "floating_point" => self.float(),
            "string" => {
                if self.peek() == Some(&Token::Mark('{')) {
                    self.attributes()?;
                }
                self.made(Shape::Text, 8)
            }
            kind @ ("struct" | "enum" | "variant") => self.compound(kind),
            _ => {
                self.at = start;
                self.alias(named)
            }
        }
    }

    fn alias(&mut self, named: bool) -> Parsed<Rc<Type>> {
        let rest = self.tokens.get(self.at..).unwrap_or_default();
        let words: Vec<&str> = rest
            .iter()
            .map_while(|(token, _)| match token {
                Token::Word(word) => Some(&**word),
                _ => None,
            })
            .take(8)
            .collect();
        let most = words.len() - usize::from(named && !words.is_empty());
        for count in (1..=most).rev() {
            if let Some(ty) = self.aliases.get(&words[..count].join(" ")) {
                self.at += count;
                return Ok(ty.clone());
            }
        }
        Err(self.wrong("the type that is named here is not declared"))
    }

    fn integer(&mut self) -> Parsed<Integer> {
        let (mut bits, mut align) = (0, None);
        let mut integer = Integer {
            bits: 0,
            align: 1,
            signed: false,
            order: None,
            is_time: false,
        };
        for (name, value) in self.attributes()? {
            match &*name {
                "size" => bits = value.number(),
                "align" => align = Some(value.number()),
                "signed" => integer.signed = value.is_yes(),
                "byte_order" => integer.order = self.order(&value)?,
                "map" => integer.is_time = true,
                _ => {}
            }
        }
        if !(1..=64).contains(&bits) {
            return Err(self.wrong("an integer does not have 1 to 64 bits"));
        }
        integer.bits = bits as u32;
        integer.align = match align {
            Some(align) => self.alignment(align)?,
            None if bits % 8 == 0 => 8,
            None => 1,
        };
        Ok(integer)
    }

    fn alignment(&self, align: i128) -> Parsed<u32> {
        match u32::try_from(align) {
            Ok(align) if align.is_power_of_two() && align <= 4096 => Ok(align),
            _ => Err(self.wrong("an alignment is not a power of two up to 4096 bits")),
        }
    }

    fn float(&mut self) -> Parsed<Rc<Type>> {
        let (mut bits, mut align) = (0, 8);
        for (name, value) in self.attributes()? {
            match &*name {
                "exp_dig" | "mant_dig" => bits += value.number().clamp(0, 1024),
                "align" => align = self.alignment(value.number())?,
                _ => {}
            }
        }
        self.made(Shape::Float(bits as u32), align)
    }

    fn compound(&mut self, kind: &str) -> Parsed<Rc<Type>> {
        let name = match self.peek() {
            Some(Token::Word(_)) => Some(format!("{kind} {}", self.word()?)),
            _ => None,
        };
        let tag = match kind == "variant" && self.takes(&Token::Mark('<')) {
            true => {
                let tag = self.path()?.last().map(|word| field_name(word));
                self.expect('>')?;
                tag
            }
            false => None,
        };
        let base = match kind == "enum" && self.takes(&Token::Mark(':')) {
            true => Some(self.ty(false)?),
            false => None,
        };
        if !self.takes(&Token::Mark('{')) {
            let known = name.and_then(|name| self.aliases.get(&name)).cloned();
            let known =
                known.ok_or_else(|| self.wrong("the type that is named here is not declared"))?;
            return match (&known.shape, tag) {
                (Shape::Variant(None, _), Some(_)) => {
                    Err(self.wrong("onbeat cannot read a variant that is declared without its tag"))
                }
                _ => Ok(known),
            };
        }
        let (shape, align) = match kind {
            "enum" => {
                let base = base.or_else(|| self.aliases.get("int").cloned());
                let integer = base.and_then(|ty| ty.integer());
                let integer = integer
                    .ok_or_else(|| self.wrong("the type of an enumeration is not declared"))?;
                (Shape::Enumeration(integer, self.labels()?), 1)
            }
            "variant" => (Shape::Variant(tag, self.fields()?), 1),
            _ => {
                let fields = self.fields()?;
                (Shape::Structure(fields), self.structure_alignment()?)
            }
        };
        let ty = self.made(shape, align)?;
        if let Some(name) = name {
            self.aliases.insert(name, ty.clone());
        }
        Ok(ty)
    }

    fn structure_alignment(&mut self) -> Parsed<u32> {
        if !matches!(self.peek(), Some(Token::Word(word)) if &**word == "align") {
            return Ok(1);
        }
        self.at += 1;
        self.expect('(')?;
        let align = self.number()?;
        self.expect(')')?;
        self.alignment(align)
    }

    fn fields(&mut self) -> Parsed<Vec<Field>> {
        let mut fields = Vec::new();
        while !self.takes(&Token::Mark('}')) {
            let mut ty = self.ty(true)?;
            let name = field_name(self.word()?);
            let mut lengths = Vec::new();
            while self.takes(&Token::Mark('[')) {
                lengths.push(match self.peek() {
                    Some(Token::Word(_)) => Err(self.path()?),
                    _ => Ok(self.number()?),
                });
                self.expect(']')?;
            }
            self.expect(';')?;
            for length in lengths.into_iter().rev() {
                let shape = match length {
                    Ok(length) => {
                        let length = u64::try_from(length)
                            .map_err(|_| self.wrong("the length of an array is negative"))?;
                        Shape::Array(ty, length)
                    }
                    Err(path) => {
                        let last = path.last().copied().unwrap_or_default();
                        Shape::Sequence(ty, field_name(last))
                    }
                };
                ty = self.made(shape, 1)?;
            }
            fields.push(Field { name, ty });
        }
        Ok(fields)
    }

    fn labels(&mut self) -> Parsed<Vec<Label>> {
        let (mut labels, mut next) = (Vec::new(), 0);
        while !self.takes(&Token::Mark('}')) {
            let name: Box<str> = match self.peek() {
                Some(Token::Text(text)) => {
                    self.at += 1;
                    text.clone()
                }
                _ => self.word()?.into(),
            };
            let (mut from, mut to) = (next, next);
            if self.takes(&Token::Mark('=')) {
                from = self.number()?;
                to = match self.takes(&Token::Dots) {
                    true => self.number()?,
                    false => from,
                };
            }
            next = to + 1;
            labels.push(Label { from, to, name });
            if !self.takes(&Token::Mark(',')) && self.peek() != Some(&Token::Mark('}')) {
                return Err(self.wrong("',' is expected"));
            }
        }
        Ok(labels)
    }
}

fn id_of(name: &str, attributes: &[(String, Value)]) -> u64 {
    let id = attributes.iter().find(|(n, _)| n == name);
    id.and_then(|(_, id)| u64::try_from(id.number()).ok())
        .unwrap_or(0)
}
