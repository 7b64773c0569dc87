//! Formats times and untrusted names as text: units, shortening, and visible control characters.

/// Returns a unit that suits times of this size, with its length in ns.
fn unit(ns: f64) -> (f64, &'static str) {
    match ns.abs() {
        v if v < 999.5 => (1.0, "ns"),
        v if v < 999.5e3 => (1e3, "us"),
        v if v < 999.5e6 => (1e6, "ms"),
        v if v < 1e12 => (1e9, "s"),
        _ => (60e9, "min"),
    }
}

/// Formats a mean with the smallest and largest value, in the mean's unit: `27.1 (13.8–60.9) ms`.
pub fn range(min_ns: f64, mean_ns: f64, max_ns: f64) -> String {
    let (length, unit) = unit(mean_ns);
    format!(
        "{} ({}–{}) {unit}",
        significant(mean_ns / length),
        significant(min_ns / length),
        significant(max_ns / length)
    )
}

/// Formats a time given in ns with a suitable unit and three significant digits: `27.1 ms`.
pub fn duration(ns: f64) -> String {
    if !ns.is_finite() {
        return "-".into();
    }
    let (length, unit) = unit(ns);
    format!("{} {unit}", significant(ns / length))
}

/// Formats a number with about three digits, and always with its whole part: `0.62`, `27.1`,
/// `1234`.
pub fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v < 1e-9 => return "0".into(),
        v if v < 0.9995 => 3,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

/// Formats a period given in ns as the shortest decimal in ms: `100 ms`.
pub fn period(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms >= 0.001 {
        format!("{} ms", (ms * 1e6).round() / 1e6)
    } else {
        format!("{ns} ns")
    }
}

/// Formats a share as per cent: `27 %`, `0.4 %`.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if !p.is_finite() {
        "-".into()
    } else if p >= 9.95 {
        format!("{p:.0} %")
    } else {
        format!("{p:.1} %")
    }
}

/// Reports whether a character changes how the text around it is shown: control characters, line
/// separators, and characters that turn the direction of writing.
fn is_disruptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Replaces each control character, and each other character that would change how the text around
/// it is shown, by an escape (`\u{1b}`). A name from a traced process then cannot change a terminal
/// or a page.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_disruptive(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Shortens the text to at most `limit` characters by an ellipsis in its middle.
pub fn shorten(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if count <= limit {
        return text.to_string();
    }
    let kept = limit.saturating_sub(1);
    // Names differ at their ends more often than at their starts.
    let head = kept / 3;
    let tail = kept - head;
    let mut out: String = text.chars().take(head).collect();
    out.push('…');
    out.extend(text.chars().skip(count - tail));
    out
}

/// Escapes text for XML and HTML, in elements and in quoted attributes. Characters that XML forbids
/// are made visible.
pub fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // These characters are valid in Rust but forbidden in XML.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_times_have_three_digits_and_a_suitable_unit() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (17.0, "17 ns"),
            (999.6, "1 us"),
            (412_300.0, "412 us"),
            (27_070_000.0, "27.1 ms"),
            (999_600_000.0, "1 s"),
            (2.5e12, "41.7 min"),
        ] {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(period(100_000_000), "100 ms");
        assert_eq!(period(333_333), "0.333333 ms");
        assert_eq!(percent(0.27), "27 %");
    }

    #[test]
    fn untrusted_names_cannot_affect_a_terminal_or_a_page() {
        assert_eq!(visible("a\x1b[2J\u{202e}b\nc"), "a\\u{1b}[2J\\u{202e}b\\nc");
        assert_eq!(xml("<b a='\"&\u{0}>"), "&lt;b a=&#39;&quot;&amp;\\u{0}&gt;");
    }

    #[test]
    fn shortening_a_text_keeps_both_of_its_ends() {
        assert_eq!(shorten("/sensing/lidar/front", 9), "/s…/front");
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 0), "…");
    }
}
