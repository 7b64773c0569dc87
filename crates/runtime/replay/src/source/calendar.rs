//! Parses the dates and times of text logs. Times without a zone count as UTC.

/// Parses a date such as `2015-07-10`. Returns the days since 1970.
pub fn date(text: &[u8]) -> Option<i64> {
    let mut fields = text.split(|&byte| byte == b'-').map(digits);
    let (year, month, day) = (fields.next()??, fields.next()??, fields.next()??);
    if fields.next().is_some() {
        return None;
    }
    days(year, month, day)
}

/// Returns the number of days from 1970-01-01 to a date of the years 1970 to 9999, or `None` if the
/// date does not exist.
pub fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_date =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date {
        return None;
    }
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// A date of the Gregorian calendar. The month begins at 1. The day of the week is 0 on Sunday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub weekday: i64,
}

/// Returns the date that is `days` days after 1970-01-01.
pub fn civil(days: i64) -> Date {
    // Years begin in March, so that the leap day is the last. An era has 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    Date {
        year: era * 400 + year_of_era + i64::from(is_next_year),
        month: if is_next_year { month - 9 } else { month + 3 },
        day,
        weekday: (days + 4).rem_euclid(7),
    }
}

/// Parses a time such as `09:57:32`. Returns the seconds since midnight.
pub fn time_of_day(text: &[u8]) -> Option<i64> {
    let mut fields = text.split(|&byte| byte == b':').map(digits);
    let (hour, minute, second) = (fields.next()??, fields.next()??, fields.next()??);
    let is_time = hour < 24 && minute < 60 && second <= 60 && fields.next().is_none();
    is_time.then(|| hour * 3600 + minute * 60 + second)
}

pub fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0i64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number.checked_mul(10)?.checked_add(i64::from(digit)))?
    })
}

/// Parses the fraction of a second after the decimal point, with one to nine digits. Returns
/// nanoseconds.
pub fn fraction(digits_of: &[u8]) -> Option<i64> {
    if digits_of.len() > 9 {
        return None;
    }
    let mut part = digits(digits_of)?;
    for _ in digits_of.len()..9 {
        part *= 10;
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_with_an_impossible_part_is_refused() {
        assert_eq!(time_of_day(b"09:57:32"), Some(35_852));
        for wrong in [
            "24:00:00",
            "09:60:00",
            "9999999999999991:28:07",
            "1:2",
            "1:2:3:4",
            "",
        ] {
            assert_eq!(time_of_day(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
