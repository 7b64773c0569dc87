//! Dates and times in UTC, for the names of trace directories and for stores.

use std::path::PathBuf;

/// Returns a directory name with the present time in UTC, such as `trace-20260131-140501`.
pub fn trace_directory() -> PathBuf {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ns = since.map_or(0, |d| d.as_nanos());
    PathBuf::from(format!("trace-{}", stamp(u64::try_from(ns).unwrap_or(0))))
}

/// Formats a time in ns since 1970 for file names, in UTC: `20260131-140501`.
pub fn stamp(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let s = seconds % 86_400;
    format!(
        "{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        s / 3600,
        s / 60 % 60,
        s % 60
    )
}

fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Returns the number of days from 1970-01-01 to this date. Returns `None` if the date does not
/// exist or lies before 1970.
fn day(year: u64, month: u64, day: u64) -> Option<u64> {
    // A year has at most 366 days, so the guess is never too late and the search is short.
    let guess = year.checked_sub(1970)? * 365;
    (guess..guess + 2500).find(|d| civil(*d) == (year, month, day))
}

/// Parses a time in UTC and returns it in ns since 1970. Accepts `2026-11-24`, `2026-11-24T15:00`
/// and `2026-11-24T15:00:30`, each also with `Z` at the end.
pub fn parse(text: &str) -> Result<u64, String> {
    let fault = || "write a time in UTC like 2026-11-24 or 2026-11-24T15:00".to_string();
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once('T').unwrap_or((text, "0:0"));
    let numbers = |text: &str, between: char| -> Option<Vec<u64>> {
        let number = |n: &str| {
            n.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| n.parse().ok())
        };
        text.split(between).map(|n| number(n)?).collect()
    };
    let days = match numbers(date, '-').as_deref() {
        Some(&[y, m, d]) if y < 2262 => day(y, m, d).ok_or_else(fault)?,
        _ => return Err(fault()),
    };
    let seconds = match numbers(time, ':').as_deref() {
        Some(&[h, m]) if h < 24 && m < 60 => h * 3600 + m * 60,
        Some(&[h, m, s]) if h < 24 && m < 60 && s < 60 => h * 3600 + m * 60 + s,
        _ => return Err(fault()),
    };
    Ok((days * 86_400 + seconds) * 1_000_000_000)
}

/// Formats a time in ns since 1970 to the minute, in UTC: `2026-11-24 15:00`.
pub fn minute(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_converted_to_dates_and_back() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_454), (2026, 1, 1));
        assert_eq!(
            stamp(20_454 * 86_400_000_000_000 + 3_661_000_000_000),
            "20260101-010101"
        );
        for (text, shown) in [
            ("2024-02-29", "2024-02-29 00:00"),
            ("2026-11-24T15:07Z", "2026-11-24 15:07"),
            ("2261-12-31T23:59:59", "2261-12-31 23:59"),
        ] {
            assert_eq!(parse(text).map(minute), Ok(shown.to_string()));
        }
        for wrong in [
            "",
            "now",
            "2025-02-29",
            "1969-12-31",
            "2026-01-01T24:00",
            "2026-1",
            "9999-01-01",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
