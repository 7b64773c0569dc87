//! The buckets of a distribution as text in `model.json`. The text needs a third of the space of a
//! list.
//!
//! The text has an entry per bucket, in order: the difference of its number to the number of the
//! bucket before, and `xCOUNT` if the bucket has more than one value. The first entry has the number
//! itself. Files of older versions have a list of pairs of the lowest value and the count.

use super::buckets::{number, range, Filled};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Write};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packed {
    Text(String),
    /// The lowest value and the count of each bucket. Files of older versions have this form.
    Pairs(Vec<(u64, u64)>),
}

impl Packed {
    pub(super) fn of(filled: &Filled) -> Self {
        let mut text = String::with_capacity(3 * filled.buckets.len() + 8);
        let mut before = 0;
        for (i, bucket) in filled.buckets.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            // Writing into a text cannot fail.
            let _ = write!(text, "{space}{}", bucket.number - before);
            if bucket.count() != 1 {
                let _ = write!(text, "x{}", bucket.count());
            }
            before = bucket.number;
        }
        Packed::Text(text)
    }

    /// Returns the number and the count of each bucket, for buckets of `bits` precision.
    ///
    /// # Errors
    ///
    /// Fails if the packed text is damaged.
    pub(super) fn numbers(self, bits: u32) -> Result<Vec<(u32, u64)>, String> {
        match self {
            Packed::Pairs(pairs) => {
                let pairs = pairs.into_iter();
                Ok(pairs.map(|(low, n)| (number(low, bits), n)).collect())
            }
            Packed::Text(text) => {
                let mut at: u32 = 0;
                let mut entry = |entry: &str| {
                    let (more, n) = entry.split_once('x').unwrap_or((entry, "1"));
                    at = at.checked_add(more.parse().ok()?)?;
                    let exists = number(range(at, bits).0, bits) == at;
                    exists.then_some((at, n.parse().ok()?))
                };
                let entries = text.split_ascii_whitespace().map(|text| {
                    entry(text).ok_or_else(|| {
                        let entry: String = text.chars().take(30).collect();
                        format!("a distribution cannot have the bucket '{entry}'")
                    })
                });
                entries.collect()
            }
        }
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Packed::Text(text) => text.serialize(serializer),
            Packed::Pairs(pairs) => pairs.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Packed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of buckets")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Packed, E> {
        Ok(Packed::Text(text.into()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Packed, E> {
        Ok(Packed::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Packed, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = seq.next_element()? {
            pairs.push(pair);
        }
        Ok(Packed::Pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Dist;

    fn text_of(values: &[u64]) -> (Dist, String) {
        let mut dist = Dist::new();
        values.iter().for_each(|&v| dist.record(v));
        let text = serde_json::to_string(&dist).unwrap();
        (dist, text)
    }

    #[test]
    fn buckets_are_written_as_differences_with_counts() {
        let (dist, text) = text_of(&[5, 7, 7, 1_000_000, u64::MAX]);
        assert!(
            text.contains(r#""buckets":"5 2x2 113922 721654""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Dist>(&text).unwrap(), dist);
        let (none, text) = text_of(&[]);
        assert!(text.contains(r#""buckets":"""#), "{text}");
        assert_eq!(serde_json::from_str::<Dist>(&text).unwrap(), none);
    }

    #[test]
    fn buckets_of_older_files_are_pairs_of_value_and_count() {
        let (dist, text) = text_of(&[5, 7, 7]);
        let older = text.replace(r#""5 2x2""#, "[[5,1],[7,2]]");
        assert_ne!(older, text);
        assert_eq!(serde_json::from_str::<Dist>(&older).unwrap(), dist);
    }

    #[test]
    fn damaged_distribution_buckets_are_refused() {
        let (_, text) = text_of(&[5, 7, 7]);
        for damaged in ["5 2x", "5 -2", "5 y", "5 4294967295", "5 2x1", "20000 1x2"] {
            let text = text.replace("5 2x2", damaged);
            let refused = serde_json::from_str::<Dist>(&text);
            assert!(refused.is_err(), "{damaged}");
        }
    }
}
