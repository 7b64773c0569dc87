//! Parses the places of `onbeat replay`: devices, and other hosts over a link.

use onbeat_replay::route::Target;
use std::path::Path;
use std::str::FromStr;

pub const WORD: &str = "link:";

/// Returns the address in a text of the form `link:ADDRESS`, which names another host. Returns
/// `None` for any other text.
fn address_of(place: &str) -> Option<&str> {
    place.strip_prefix(WORD)
}

/// Returns the address of the host that sends the recording. Returns `None` if no path in `paths`
/// has the form `link:ADDRESS`.
pub fn source_of(paths: &[impl AsRef<Path>]) -> Option<&str> {
    let texts = paths.iter().filter_map(|p| p.as_ref().to_str());
    texts.into_iter().find_map(address_of)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    Here(Target),
    Link(String),
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Where, String> {
        match address_of(text) {
            Some(address) if address.contains(':') => Ok(Where::Link(address.into())),
            Some(_) => Err("write link:HOST:PORT".into()),
            None => Ok(Where::Here(text.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_link_is_distinguished_from_a_device_and_a_file() {
        assert_eq!("link:a:1".parse(), Ok(Where::Link("a:1".into())));
        assert_eq!("ros".parse(), Ok(Where::Here(Target::Ros)));
        assert!("link:a".parse::<Where>().is_err() && "tcp:a:1".parse::<Where>().is_err());
        assert_eq!(source_of(&["a.mcap", "link:0.0.0.0:1"]), Some("0.0.0.0:1"));
        assert_eq!(source_of(&["a.mcap", "./link:x"]), None);
    }
}
