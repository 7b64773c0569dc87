//! Text fragments that the report's sections share.

use crate::export::svg::type_name;
use crate::layout::captions;
use onbeat_document::schema::{Callback, Model};
use onbeat_document::text::{duration, shorten, xml};
use std::collections::BTreeSet;

pub(super) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out
}

pub(super) fn date(realtime_ns: u64) -> String {
    let seconds = realtime_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let dom = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{dom:02} {:02}:{:02}:{:02}",
        rest / 3600,
        rest % 3600 / 60,
        rest % 60
    )
}

/// Formats a time in ns, or a dash if `count` is 0.
pub(super) fn time(count: u64, ns: f64) -> String {
    if count == 0 {
        "–".into()
    } else {
        duration(ns)
    }
}

pub(super) fn modes_of(model: &Model) -> BTreeSet<&str> {
    model.runs.iter().map(|r| r.mode.as_str()).collect()
}

pub(super) fn in_words(model: &Model, id: &str) -> String {
    match model.callbacks.iter().find(|c| c.id == id) {
        Some(c) => format!("{} ({})", c.node, captions(c).0),
        None => id.to_string(),
    }
}

pub(super) fn name_cell(c: &Callback) -> String {
    format!(
        "<td class=\"name\" title=\"{}\"><span class=\"node\">{}{}</span><span class=\"what\">\
         <span class=\"chip {}\"></span>{}</span></td>",
        xml(&shorten(&c.id, 300)),
        xml(&shorten(&c.node, 90)),
        if c.identity.is_known() { "" } else { " ?" },
        type_name(c.kind),
        xml(&shorten(&captions(c).0, 90))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_formats_dates_and_separates_thousands() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_827_696_000_000_000), "2000-02-29 12:34:56");
        assert_eq!(date(4_102_444_799_000_000_000), "2099-12-31 23:59:59");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
