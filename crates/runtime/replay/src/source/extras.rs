//! Collects what a recording has besides its items. Limits the number of entries and their length.

use super::damage::printable;
use crate::item::{Attachment, Extras, Metadata};

/// The maximum number of attachments and of records of metadata.
const MOST: usize = 1000;

/// The maximum number of keys in one record of metadata.
const KEYS_MAX: usize = 100;

/// The maximum size in bytes of all names and values of the records of metadata.
const METADATA_BYTES_MAX: usize = 1 << 20;

/// Adds an attachment if it is new. Makes its texts safe for a terminal.
pub fn attach(extras: &mut Extras, attachment: Attachment) {
    let Attachment {
        name, media_type, ..
    } = &attachment;
    let (name, media_type) = (printable(name), media_type.as_deref().map(printable));
    let media_type = media_type.filter(|text| !text.is_empty());
    let attachment = Attachment {
        name,
        media_type,
        ..attachment
    };
    push(&mut extras.attachments, attachment, &mut extras.more_extras);
}

/// Adds a record of metadata with its keys and values if it is new. Makes its texts safe for a
/// terminal.
pub fn note<'t>(
    extras: &mut Extras,
    name: &str,
    values: impl IntoIterator<Item = (&'t str, &'t str)>,
) {
    let values = values.into_iter().take(KEYS_MAX);
    let values = values.map(|(key, value)| (printable(key), printable(value)));
    let metadata = Metadata {
        name: printable(name),
        values: values.collect(),
    };
    let held: usize = extras.metadata.iter().map(bytes).sum();
    if held + bytes(&metadata) > METADATA_BYTES_MAX {
        extras.more_extras = extras.more_extras.saturating_add(1);
        return;
    }
    push(&mut extras.metadata, metadata, &mut extras.more_extras);
}

fn bytes(metadata: &Metadata) -> usize {
    let values = metadata.values.iter();
    let values = values.map(|(key, value)| key.len() + value.len());
    metadata.name.len() + values.sum::<usize>()
}

/// Adds the extras of another part of the recording.
pub fn join(extras: &mut Extras, other: Extras) {
    for attachment in other.attachments {
        attach(extras, attachment);
    }
    for metadata in other.metadata {
        let values = metadata.values.iter();
        let values = values.map(|(key, value)| (key.as_str(), value.as_str()));
        note(extras, &metadata.name, values);
    }
    extras.more_extras = extras.more_extras.saturating_add(other.more_extras);
}

fn push<T: PartialEq>(all: &mut Vec<T>, one: T, more: &mut u64) {
    if all.len() >= MOST {
        *more = more.saturating_add(1);
    } else if !all.contains(&one) {
        all.push(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_beyond_the_limit_are_counted_and_long_values_are_cut() {
        let mut extras = Extras::default();
        let attachment = |number: usize| Attachment {
            name: format!("{number}\n.txt"),
            media_type: Some(String::new()),
            bytes: Some(1),
            time_ns: None,
        };
        (0..MOST + 3).for_each(|number| attach(&mut extras, attachment(number)));
        let long = "x".repeat(300);
        note(&mut extras, "about", [("car", "A7"), ("long", &long)]);
        let mut both = Extras {
            metadata: extras.metadata.clone(),
            ..Extras::default()
        };
        join(&mut both, extras);
        assert_eq!((both.attachments.len(), both.metadata.len()), (MOST, 1));
        assert_eq!(both.more_extras, 3);
        assert_eq!(both.attachments[0].media_type, None);
        assert_eq!(both.attachments[0].name, "0\\u{a}.txt");
        let values = &both.metadata[0].values;
        assert_eq!((values["car"].as_str(), values["long"].len()), ("A7", 203));
    }
}
