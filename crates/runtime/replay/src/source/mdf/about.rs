//! Reads the comment and the list of attachments of an MDF 4 file.

use super::input::{Block, Input};
use crate::item::{Attachment, Extras};
use crate::source::{extras, Bytes};
use std::io::Result;

/// The numbers of the links in the file's header block.
const FIRST_ATTACHMENT: usize = 3;
const COMMENT: usize = 5;

/// Reads what the file has besides its records. `header` is the file's header block.
///
/// # Errors
/// Fails if the file cannot be read. Damaged blocks are reported by `input`.
pub fn read<R: Bytes>(input: &mut Input<R>, header: &Block) -> Result<Extras> {
    let mut found = Extras::default();
    let text = comment(input, header.link(COMMENT))?;
    let values = properties(&text);
    if !values.is_empty() {
        let values = values.iter().map(|(key, value)| (&**key, &**value));
        extras::note(&mut found, "file", values);
    }
    let mut at = header.link(FIRST_ATTACHMENT);
    while let Some(block) = input.listed(at, b"AT")? {
        extras::attach(&mut found, attachment(input, &block)?);
        at = block.link(0);
    }
    Ok(found)
}

fn attachment<R: Bytes>(input: &mut Input<R>, block: &Block) -> Result<Attachment> {
    const EMBEDDED: u16 = 1;
    let is_embedded = block.short(0) & EMBEDDED != 0;
    // The size of a file outside of the log is 0 if the recorder did not know it.
    let bytes = Some(block.long(24)).filter(|&bytes| is_embedded || bytes > 0);
    Ok(Attachment {
        name: input.text(block.link(1))?,
        media_type: Some(input.text(block.link(2))?),
        bytes,
        time_ns: None,
    })
}

/// Reads the text of a comment, which is plain or XML.
fn comment<R: Bytes>(input: &mut Input<R>, at: u64) -> Result<String> {
    if at == 0 {
        return Ok(String::new());
    }
    let kind = input.kind(at)?;
    let kind = kind.filter(|kind| kind == b"TX").unwrap_or(*b"MD");
    let block = input.block(at, &kind)?;
    let data = block.as_ref().map_or(&[][..], |block| block.data());
    let text = data.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Finds the keys and values in a comment: the elements `<TX>` and `<e name="KEY">` of ASAM's XML.
/// A comment without XML is the value of `comment`.
fn properties(text: &str) -> Vec<(String, String)> {
    let plain = text.trim();
    if !plain.starts_with('<') {
        let is_empty = plain.is_empty();
        let comment = (!is_empty).then(|| ("comment".to_owned(), words(plain)));
        return comment.into_iter().collect();
    }
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('<') {
        rest = after;
        let Some((tag, after)) = rest.split_once('>') else {
            break;
        };
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let key = match name {
            "TX" => Some("comment".to_owned()),
            "e" => attribute(attributes, "name"),
            _ => None,
        };
        let value = after.split_once("</").map(|(value, _)| value);
        if let (Some(key), Some(value), false) = (key, value, tag.ends_with('/')) {
            found.push((key, words(&unescaped(value))));
        }
    }
    found.retain(|(_, value)| !value.is_empty());
    found
}

fn attribute(attributes: &str, name: &str) -> Option<String> {
    let (_, after) = attributes.split_once(&format!("{name}=\""))?;
    let (value, _) = after.split_once('"')?;
    Some(unescaped(value))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unescaped(text: &str) -> String {
    const NAMES: [(&str, &str); 5] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    let replace = |text: String, (name, sign): &(&str, &str)| text.replace(name, sign);
    NAMES.iter().fold(text.to_owned(), replace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_of_a_comment_are_found() {
        let xml = "<HDcomment xmlns='x'>\n<TX xml:space=\"preserve\">city\n  drive &amp; rain</TX>\
                   <time_source>PC</time_source><common_properties><e name=\"author\">A &lt;B&gt;</e>\
                   <e name=\"empty\"/><e desc=\"d\" name=\"subject\">car 7</e></common_properties>\
                   </HDcomment>";
        let found = properties(xml);
        let found: Vec<_> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
        let wanted = [
            ("comment", "city drive & rain"),
            ("author", "A <B>"),
            ("subject", "car 7"),
        ];
        assert_eq!(found, wanted);
        assert_eq!(properties(" plain "), [("comment".into(), "plain".into())]);
        for torn in ["", "<TX>never closed", "<e name=\"a", "<e name=\"a\">b"] {
            assert_eq!(properties(torn), [], "{torn}");
        }
    }
}
