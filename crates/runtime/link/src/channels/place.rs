//! The address of a link between two hosts, as one line of text.

use super::error::{LinksError, PlaceError};
use super::terms::Direction;
use crate::interface::Backend;
use crate::port::Port;
use crate::tcp::{Key, Tcp};
use crate::Machine;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address at which the two hosts of [`Links`](super::Links) connect.
///
/// | text | what connects the hosts |
/// |---|---|
/// | `shm://car` | nothing: they are processes of one machine, and use one channel in shared memory |
/// | `tcp://10.0.0.2:7400?key=link.key` | TCP, encrypted; the address is the sending host's |
/// | `verbs://10.0.0.2:7400?key=link.key` | RDMA (feature `verbs`), **not** encrypted |
///
/// The first channel uses the port number of the address, the next channel the following number,
/// and so on.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A name that processes of this machine agree on. The names of their channels begin with this
    /// name.
    Shm(String),
    Tcp(SocketAddr, PathBuf),
    Verbs(SocketAddr, PathBuf),
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let wrong = || PlaceError::Text(text.into());
        let (kind, rest) = text.split_once("://").ok_or_else(wrong)?;
        if kind == "shm" {
            let usable = !rest.is_empty() && !rest.contains('?');
            return usable.then(|| Place::Shm(rest.into())).ok_or_else(wrong);
        }
        let (address, key) = match rest.split_once('?') {
            None => (rest, None),
            Some((address, query)) => {
                (address, Some(query.strip_prefix("key=").ok_or_else(wrong)?))
            }
        };
        let address = address.parse().map_err(|_| wrong())?;
        let key = key.filter(|k| !k.is_empty());
        let key = || key.ok_or_else(|| PlaceError::NoKey(text.into()));
        match kind {
            "tcp" => Ok(Place::Tcp(address, key()?.into())),
            "verbs" => Ok(Place::Verbs(address, key()?.into())),
            _ => Err(wrong()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Egress<'p> {
    pub(super) priority: u8,
    pub(super) port: Option<&'p Port>,
    pub(super) chunk: Option<usize>,
}

impl Egress<'_> {
    pub(super) fn is_in_chunks(&self) -> bool {
        self.port.is_some() || self.chunk.is_some()
    }

    fn of_tcp(&self, tcp: Tcp) -> Tcp {
        match (self.port, self.chunk) {
            (Some(port), _) => tcp.on_port(port, self.priority),
            (None, Some(bytes)) => tcp.chunk_bytes(bytes),
            (None, None) => tcp,
        }
    }

    #[cfg(feature = "verbs")]
    fn of_verbs(&self, verbs: crate::Verbs) -> crate::Verbs {
        match (self.port, self.chunk) {
            (Some(port), _) => verbs.on_port(port, self.priority),
            (None, Some(bytes)) => verbs.chunk_bytes(bytes),
            (None, None) => verbs,
        }
    }
}

pub(super) struct Backends {
    place: Place,
    direction: Direction,
    key: Option<Key>,
}

impl Place {
    pub(super) fn machine(&self) -> Option<Machine> {
        match self {
            Place::Shm(name) => Some(Machine::new(name)),
            _ => None,
        }
    }

    pub(super) fn backends(self, direction: Direction) -> Result<Backends, PlaceError> {
        let key = match &self {
            Place::Shm(_) => None,
            Place::Verbs(..) if !cfg!(feature = "verbs") => return Err(PlaceError::NoVerbs),
            Place::Tcp(_, file) | Place::Verbs(_, file) => Some(Key::read_file(file)?),
        };
        Ok(Backends {
            place: self,
            direction,
            key,
        })
    }
}

fn port(mut first: SocketAddr, number: u16) -> Result<SocketAddr, PlaceError> {
    let port = first.port().checked_add(number);
    let first_port = first.port();
    first.set_port(port.ok_or(PlaceError::Port {
        first: first_port,
        number,
    })?);
    Ok(first)
}

impl Backends {
    pub(super) fn backend(
        &self,
        number: u16,
        egress: Egress<'_>,
    ) -> Result<Box<dyn Backend>, LinksError> {
        let listens = self.direction == Direction::Sending;
        match (&self.place, self.key.clone()) {
            (Place::Tcp(first, _), Some(key)) => {
                let address = port(*first, number)?;
                Ok(Box::new(egress.of_tcp(if listens {
                    Tcp::listen(address, key)?
                } else {
                    Tcp::connect(address, key)
                })))
            }
            (Place::Shm(_), _) if egress.is_in_chunks() => Err(PlaceError::NoPort.into()),
            #[cfg(feature = "verbs")]
            (Place::Verbs(first, _), Some(key)) => {
                let address = port(*first, number)?;
                Ok(Box::new(egress.of_verbs(if listens {
                    crate::Verbs::listen(address, key)?
                } else {
                    crate::Verbs::connect(address, key)
                })))
            }
            // Shared memory has no ends, and every other address has a key.
            (place, _) => Err(PlaceError::Text(format!("{place:?}")).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_addresses_are_parsed_or_refused_with_advice() {
        let address = "10.0.0.2:7400".parse().unwrap();
        let read = |text: &str| text.parse::<Place>().map_err(|e| e.to_string());
        assert_eq!(read("shm://car"), Ok(Place::Shm("car".into())));
        let tcp = Place::Tcp(address, "link.key".into());
        assert_eq!(read("tcp://10.0.0.2:7400?key=link.key"), Ok(tcp));
        let verbs = Place::Verbs(address, "/a b".into());
        assert_eq!(read("verbs://10.0.0.2:7400?key=/a b"), Ok(verbs));
        let no_key = read("tcp://10.0.0.2:7400").unwrap_err();
        assert!(no_key.contains("onbeat link key"), "{no_key}");
        assert_eq!(read("tcp://10.0.0.2:7400?key=").unwrap_err(), {
            PlaceError::NoKey("tcp://10.0.0.2:7400?key=".into()).to_string()
        });
        for wrong in [
            "",
            "car",
            "shm://",
            "tcp://host",
            "udp://1.2.3.4:5?key=k",
            "tcp://1.2.3.4:5?k",
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("Write shm://NAME"), "{error}");
        }
        assert!(port("1.2.3.4:65535".parse().unwrap(), 1).is_err());
    }
}
