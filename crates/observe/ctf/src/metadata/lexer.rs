//! Cuts the text of the metadata into tokens.

use super::MetadataError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Box<str>),
    Number(i128),
    Text(Box<str>),
    Mark(char),
    Assign,
    Dots,
}

const MAX_WORD_BYTES: usize = 4096;

pub(super) fn tokens(text: &str) -> Result<Vec<(Token, u32)>, MetadataError> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
    };
    let mut found = Vec::new();
    while let Some(token) = lexer.next()? {
        found.push((token, lexer.line));
    }
    Ok(found)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
}

impl Lexer<'_> {
    fn wrong(&self, why: &'static str) -> MetadataError {
        MetadataError::Syntax {
            line: self.line,
            why,
        }
    }

    fn skip(&mut self, bytes: usize) {
        let (over, rest) = self.rest.split_at(bytes);
        self.line += over.bytes().filter(|b| *b == b'\n').count() as u32;
        self.rest = rest;
    }

    fn skip_to(&mut self, end: &str) -> Result<(), MetadataError> {
        match self.rest.find(end) {
            Some(at) => self.skip(at + end.len()),
            None if end == "\n" => self.skip(self.rest.len()),
            None => return Err(self.wrong("a comment does not end")),
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Token>, MetadataError> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.skip(blank);
            if self.rest.starts_with("/*") {
                self.skip_to("*/")?;
            } else if self.rest.starts_with("//") {
                self.skip_to("\n")?;
            } else {
                break;
            }
        }
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        if first == '"' {
            return self.text().map(Some);
        }
        if first.is_ascii_digit() {
            return self.number().map(Some);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')?;
            return Ok(Some(Token::Word(word)));
        }
        for (mark, token) in [(":=", Token::Assign), ("...", Token::Dots)] {
            if self.rest.starts_with(mark) {
                self.skip(mark.len());
                return Ok(Some(token));
            }
        }
        if !first.is_ascii_graphic() {
            return Err(
                self.wrong("a character outside of texts and comments is not printable ASCII")
            );
        }
        self.skip(first.len_utf8());
        Ok(Some(Token::Mark(first)))
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> Result<Box<str>, MetadataError> {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        if end > MAX_WORD_BYTES {
            return Err(self.wrong("a word is too long"));
        }
        let word = self.rest[..end].into();
        self.skip(end);
        Ok(word)
    }

    fn number(&mut self) -> Result<Token, MetadataError> {
        let word = self.take_while(|c| c.is_ascii_alphanumeric())?;
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        let value = if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            u64::from_str_radix(hex, 16)
        } else if digits.len() > 1 && digits.starts_with('0') {
            u64::from_str_radix(digits, 8)
        } else {
            digits.parse()
        };
        value
            .map(|v| Token::Number(i128::from(v)))
            .map_err(|_| self.wrong("a number is not readable"))
    }

    fn text(&mut self) -> Result<Token, MetadataError> {
        self.skip(1);
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.skip(at + 1);
                    return Ok(Token::Text(text.into()));
                }
                '\\' => text.extend(chars.next().map(|(_, escaped)| match escaped {
                    'n' => '\n',
                    't' => '\t',
                    other => other,
                })),
                _ => text.push(c),
            }
            if text.len() > MAX_WORD_BYTES {
                break;
            }
        }
        Err(self.wrong("a text in quotation marks has no closing quotation mark"))
    }
}
