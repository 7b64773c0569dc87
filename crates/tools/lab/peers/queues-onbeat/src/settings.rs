//! The words of the command line: `name=value`, as `queues-common/peer.hpp` describes them.

use onbeat_flow::{Options, Policy};
use std::collections::BTreeMap;

/// The words.
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// From the command line.
    pub fn new(words: impl Iterator<Item = String>) -> Settings {
        Settings(
            words
                .filter_map(|w| w.split_once('=').map(|(n, v)| (n.into(), v.into())))
                .collect(),
        )
    }

    /// The value of a word.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| format!("the setting {name}= is missing"))
    }

    /// The same as a number.
    pub fn number(&self, name: &str) -> Result<usize, String> {
        let text = self.text(name)?;
        text.parse()
            .map_err(|_| format!("{name}={text} is not a number"))
    }

    /// The streams that this program has a part in.
    pub fn streams(&self) -> Result<std::ops::Range<usize>, String> {
        let first = self.number("first")?;
        Ok(first..first + self.number("count")?)
    }

    /// What the channels are made from.
    pub fn options(&self) -> Result<Options, String> {
        let depth = self.number("depth")?;
        let policy = match self.text("policy")? {
            "drop-oldest" => Policy::DropOldest { depth },
            "credit" => Policy::Credit { credits: depth },
            "swap" => Policy::Swap {
                length: depth,
                flush: false,
            },
            "swap-flush" => Policy::Swap {
                length: depth,
                flush: true,
            },
            other => {
                return Err(format!(
                    "policy={other} is none of drop-oldest, credit, swap, swap-flush"
                ))
            }
        };
        Ok(Options {
            consumers: 1,
            ..Options::new(policy, self.number("bytes")?)
        })
    }
}
