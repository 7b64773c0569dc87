//! Links that the user states: data passes from one callback to another through the memory of a
//! node. A trace does not show this.

use std::fmt;

/// A link that the user states: callback `from` stores data, and callback `to` publishes it. The
/// next execution of `to` after the end of an execution of `from` continues the chain.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    pub from: String,
    pub to: String,
}

/// The reason why a text is not a link. The value of each variant is the text.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkParseError {
    #[error("the link '{0}' has no arrow. Write it as 'CALLBACK -> CALLBACK'.")]
    NoArrow(String),
    #[error("the link '{0}' lacks a callback on one side of the arrow. Write it as 'CALLBACK -> CALLBACK'.")]
    OneSided(String),
    #[error("the link '{0}' has several arrows. State one link per pair of callbacks.")]
    SeveralArrows(String),
    #[error("the link '{0}' leads from a callback to itself. Name two different callbacks.")]
    Itself(String),
}

impl std::str::FromStr for Link {
    type Err = LinkParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (from, to) = text
            .split_once("->")
            .ok_or_else(|| LinkParseError::NoArrow(text.into()))?;
        let (from, to) = (from.trim(), to.trim());
        if to.contains("->") {
            return Err(LinkParseError::SeveralArrows(text.into()));
        }
        if from.is_empty() || to.is_empty() {
            return Err(LinkParseError::OneSided(text.into()));
        }
        if from == to {
            return Err(LinkParseError::Itself(text.into()));
        }
        Ok(Link {
            from: from.into(),
            to: to.into(),
        })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_parsed_from_two_callbacks_and_an_arrow() {
        let link: Link = "/f:subscription(/in)->  /f:timer(100ms)".parse().unwrap();
        assert_eq!(link.from, "/f:subscription(/in)");
        assert_eq!(link.to, "/f:timer(100ms)");
        assert_eq!(link.to_string().parse::<Link>(), Ok(link));
        assert!(matches!(
            "a b".parse::<Link>(),
            Err(LinkParseError::NoArrow(_))
        ));
        assert!(matches!(
            " -> b".parse::<Link>(),
            Err(LinkParseError::OneSided(_))
        ));
        assert!(matches!(
            "a -> b -> c".parse::<Link>(),
            Err(LinkParseError::SeveralArrows(_))
        ));
        assert!(matches!(
            "a -> a".parse::<Link>(),
            Err(LinkParseError::Itself(_))
        ));
    }
}
