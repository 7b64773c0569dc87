//! Durations, sizes, shares and rates as people write them.

use std::time::Duration;

/// Parses a duration such as `50us`, `500ms`, `60s`, `1.5min` or `2h`. A number without a unit is
/// in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let factor = match &text[at..] {
        "us" => 1e-6,
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => {
            return Err(format!(
                "unknown unit '{unit}'. Write a time such as 500ms, 60s, 10min or 2h"
            ))
        }
    };
    let number: f64 = text[..at]
        .parse()
        .map_err(|_| String::from("write a number with a unit, like 60s"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| String::from("out of range"))
}

/// Parses a size in bytes such as `4096`, `64K`, `16M` or `1G` (powers of 1024).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        unit => {
            return Err(format!(
                "unknown unit '{unit}'. Write a size in bytes, such as 64K, 16M or 1G"
            ))
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| String::from("write a whole number with a unit, like 16M"))?;
    number
        .checked_mul(1 << shift)
        .filter(|&n| n > 0)
        .ok_or_else(|| String::from("out of range"))
}

/// Parses a percentage such as `20%` or `0.5%` and returns it as a share, for example 0.2.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|t| t.trim().parse().ok());
    number
        .map(|percent: f64| percent / 100.0)
        .filter(|share| (0.0..=100.0).contains(share))
        .ok_or_else(|| String::from("write a percentage, like 20%"))
}

/// Parses a rate in bits per second such as `800K`, `100M`, `1G` or `2.5G` (powers of 1000).
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1.0,
        "K" | "k" | "kbit" => 1e3,
        "M" | "Mbit" => 1e6,
        "G" | "Gbit" => 1e9,
        unit => {
            return Err(format!(
                "unknown unit '{unit}'. Write a rate in bit/s, such as 100M, 1G or 2.5G"
            ))
        }
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| String::from("write a number with a unit, like 1G"))?;
    let rate = number * factor;
    // The limit is far above any network port, and an `f64` holds every value below it exactly.
    match (1.0..=1e15).contains(&rate) {
        true => Ok(rate as u64),
        false => Err("out of range".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_with_units_are_parsed() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5min"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("7"), Ok(Duration::from_secs(7)));
        assert!(
            parse_duration("5 parsecs").is_err()
                && parse_duration("").is_err()
                && parse_duration("1e999s").is_err()
        );
        assert_eq!(parse_duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_rate("2.5G"), Ok(2_500_000_000));
        assert_eq!(parse_rate("64000"), Ok(64_000));
        for wrong in ["", "G", "0", "1e999", "-1G", "NaN", "1T"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_size("16M"), Ok(16 << 20));
        assert!(
            parse_size("0").is_err()
                && parse_size("99999999999G").is_err()
                && parse_size("-1").is_err()
        );
    }
}
