//! Numbers as text.

pub fn range((low, high): (f64, f64)) -> String {
    format!("{} .. {}", number(low), number(high))
}

pub fn number(v: f64) -> String {
    let a = v.abs();
    if !v.is_finite() {
        return "-".into();
    }
    let digits = match a {
        _ if a >= 1000.0 => 0,
        _ if a == 0.0 => 0,
        _ if a >= 100.0 => 1,
        _ if a >= 10.0 => 2,
        _ if a >= 1.0 => 3,
        _ if a >= 0.01 => 4,
        _ => 6,
    };
    let text = format!("{v:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    };
    if text == "-0" {
        "0".into()
    } else {
        group_thousands(&text)
    }
}

fn group_thousands(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    if digits.contains('.') || digits.len() < 6 {
        return text.to_string();
    }
    let mut out = String::from(sign);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits_and_separated_thousands() {
        let cases = [
            (0.0, "0"),
            (3.0, "3"),
            (0.31, "0.31"),
            (-0.00001, "-0.00001"),
            (12.345, "12.35"),
            (250.0, "250"),
            (123456.0, "123,456"),
            (-2_500_000.4, "-2,500,000"),
            (1234.5, "1234"),
            (f64::NAN, "-"),
        ];
        for (v, text) in cases {
            assert_eq!(number(v), text, "{v}");
        }
    }
}
