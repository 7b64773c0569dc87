//! Assigns each stream to the sink that plays it, by the stream's kind or by the user's choice.

use crate::bus::device::Device;
use crate::bus::{stated, Stated};
use crate::item::{Kind, Stream, StreamId};
use crate::sink::{Can, Ethernet, Ports, Sink, SinkError, Udp};
use std::fmt;
use std::str::FromStr;

/// The open sinks, and the sink of each stream.
#[allow(missing_docs)]
pub struct Outputs {
    pub sinks: Vec<Box<dyn Sink>>,
    /// For each stream, the index of its sink in `sinks`.
    pub routes: Vec<usize>,
    /// The index of the sink that publishes `/clock`, and the stream under which the sink publishes
    /// it. `None` if no clock is published.
    pub clock: Option<(usize, StreamId)>,
}

/// A destination of items that the option `--to` can name.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// Topics of ROS 2, on which the recorded messages are published.
    Ros,
    /// UDP datagrams to `HOST:PORT`. If the port is missing, each datagram goes to the port to
    /// which it was recorded.
    Udp(String),
    Can(String),
    Ethernet(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Ros => write!(f, "ros"),
            Target::Udp(to) => write!(f, "udp:{to}"),
            Target::Can(name) => write!(f, "can:{name}"),
            Target::Ethernet(name) => write!(f, "eth:{name}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        match (word, rest) {
            ("ros", "") => Ok(Target::Ros),
            ("udp", to) if !to.is_empty() && !to.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(Target::Udp(to.into()))
            }
            ("can", name) if !name.is_empty() => Ok(Target::Can(name.into())),
            ("eth", name) if !name.is_empty() => Ok(Target::Ethernet(name.into())),
            _ => Err("write ros, udp:HOST:PORT, udp:HOST, can:INTERFACE or eth:INTERFACE".into()),
        }
    }
}

impl Target {
    /// Returns how well the target suits streams of this kind: 2 if it plays their items as
    /// recorded, 1 if it plays them as plain bytes, 0 if it cannot play them.
    fn suits(&self, kind: &Kind) -> u8 {
        match (self, kind) {
            (Target::Ros, Kind::Ros { .. } | Kind::Requests { .. })
            | (Target::Can(_), Kind::Can)
            | (Target::Ethernet(_) | Target::Udp(_), Kind::Packets { .. }) => 2,
            (_, Kind::Requests { .. } | Kind::Unplayable { .. }) => 0,
            (Target::Udp(_), _) => 1,
            _ => 0,
        }
    }
}

/// Returns the target of each stream: the first of `named` that suits the stream best. If `named`
/// is empty, each stream gets the usual target of its kind.
///
/// # Errors
/// Fails if no target suits a stream.
pub fn targets(streams: &[Stream], named: &[Target]) -> Result<Vec<Target>, SinkError> {
    let of = |stream: &Stream| {
        // `max_by_key` returns the last of equal targets, but the first named one has to win.
        let best = named.iter().rev().max_by_key(|t| t.suits(&stream.kind));
        if let Some(best) = best.filter(|t| t.suits(&stream.kind) > 0) {
            return Ok(best.clone());
        }
        let failed = |fault: &str| SinkError::new(format!("stream {}", stream.name), fault);
        match &stream.kind {
            Kind::Unplayable { reason, .. } => Err(failed(&format!(
                "{reason}. Leave the stream out with --exclude"
            ))),
            _ if !named.is_empty() => Err(failed(
                "no --to suits this stream. Add a suitable one, or leave the stream out with --exclude",
            )),
            Kind::Ros { .. } | Kind::Requests { .. } => Ok(Target::Ros),
            Kind::Can => Ok(Target::Can(stream.name.clone())),
            Kind::Packets { .. } => Err(failed(
                "packets need an address or an interface. Add --to udp:HOST:PORT or --to eth:INTERFACE",
            )),
        }
    };
    streams.iter().map(of).collect()
}

/// Checks that the CAN interfaces among the targets can send. Returns sentences about restrictions
/// of the interfaces.
///
/// # Errors
/// Fails if a CAN interface does not exist, or cannot send any frame.
pub fn check(targets: &[Target]) -> Result<Vec<String>, SinkError> {
    let mut said = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for target in targets {
        let Target::Can(name) = target else {
            continue;
        };
        if seen.contains(&name.as_str()) {
            continue;
        }
        seen.push(name);
        let failed = |fault: String| SinkError::new(target.to_string(), fault);
        match Device::of(name) {
            Ok(device) => said.extend(device.check(name).map_err(failed)?),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                return Err(failed(
                    "no such interface. `ip link show type can` and `ip link show type vcan` list the CAN interfaces. Choose one with --to can:NAME or --remap, or create it with `ip link add NAME type vcan`".into(),
                ))
            }
            // Opening the sink shows whether it works.
            Err(_) => {}
        }
    }
    Ok(said)
}

/// The user's settings for sinks.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy)]
pub struct Stating<'s> {
    pub speeds: &'s Stated,
    pub ports: &'s Ports,
}

/// Fails if the items of `stream` have no recorded port and the target is a host without a port.
fn check_port(stream: &Stream, target: &Target) -> Result<(), SinkError> {
    match (target, &stream.kind) {
        (_, Kind::Packets { .. }) => Ok(()),
        (Target::Udp(to), _) if !has_port(to) => Err(SinkError::new(
            target.to_string(),
            format!(
                "the recording has no ports for stream {}. Give a port with --to udp:HOST:PORT",
                stream.name
            ),
        )),
        _ => Ok(()),
    }
}

fn has_port(to: &str) -> bool {
    let after = to.rsplit_once(':').map(|(_, after)| after);
    after.is_some_and(|after| after.parse::<u16>().is_ok())
}

/// Opens the sinks of the targets. `ros` opens the ROS 2 sink for all streams that go to ROS 2.
///
/// # Errors
/// Fails if a sink cannot be opened.
pub fn open(
    streams: &[Stream],
    targets: &[Target],
    stating: Stating<'_>,
    ros: impl FnOnce(&[(StreamId, Stream)]) -> Result<Box<dyn Sink>, SinkError>,
) -> Result<Outputs, SinkError> {
    for (stream, target) in streams.iter().zip(targets) {
        check_port(stream, target)?;
    }
    let mut kinds: Vec<&Target> = Vec::new();
    let routes = targets.iter().map(|target| {
        kinds.iter().position(|k| *k == target).unwrap_or_else(|| {
            kinds.push(target);
            kinds.len() - 1
        })
    });
    let routes: Vec<usize> = routes.collect();
    let mut ros = Some(ros);
    let sinks = kinds.iter().enumerate().map(|(number, target)| {
        Ok::<Box<dyn Sink>, SinkError>(match target {
            Target::Udp(to) => Box::new(Udp::new(to, stating.ports, streams)?),
            Target::Can(name) => Box::new(Can::new(name, stated(stating.speeds, name))?),
            Target::Ethernet(name) => Box::new(Ethernet::new(name, streams)?),
            Target::Ros => {
                let own = streams.iter().zip(&routes).enumerate();
                let own = own.filter(|(_, (_, &route))| route == number);
                let own: Vec<_> = own
                    .map(|(n, (s, _))| (StreamId(n as u32), s.clone()))
                    .collect();
                // Equal targets share a sink, so this runs once.
                let open = ros.take().expect("one target of ROS");
                open(&own)?
            }
        })
    });
    let sinks = sinks.collect::<Result<_, _>>()?;
    Ok(Outputs {
        sinks,
        routes,
        clock: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(kind: Kind) -> Stream {
        Stream {
            name: "/s".into(),
            kind,
        }
    }

    #[test]
    fn interfaces_that_cannot_send_are_refused_before_playing() {
        let can = |name: &str| Target::Can(name.into());
        let error = check(&[Target::Ros, can("no-such-one")])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("can:no-such-one: no such interface"),
            "{error}"
        );
        let error = check(&[can("lo")]).unwrap_err().to_string();
        assert!(error.contains("not a CAN interface"), "{error}");
        assert!(check(&[Target::Udp("a:1".into())]).unwrap().is_empty());
        let place = |to: &str| check_port(&stream(Kind::Can), &Target::Udp(to.into()));
        assert!(place("10.0.0.2:7").is_ok() && place("[::1]:7").is_ok());
        assert!(place("10.0.0.2")
            .unwrap_err()
            .to_string()
            .contains("has no ports for stream"));
        let packets = stream(Kind::Packets { link_type: 1 });
        assert!(check_port(&packets, &Target::Udp("[::1]".into())).is_ok());
    }

    #[test]
    fn a_stream_goes_to_the_best_suited_target() {
        let ros = stream(Kind::Ros {
            type_name: "a/msg/B".into(),
            qos: None,
        });
        let streams = [
            ros,
            stream(Kind::Can),
            stream(Kind::Packets { link_type: 1 }),
        ];
        let named =
            |texts: &[&str]| -> Vec<Target> { texts.iter().map(|t| t.parse().unwrap()).collect() };
        let text = |named: &[Target], of: &[Stream]| -> Result<Vec<String>, String> {
            let found = targets(of, named).map_err(|e| e.to_string())?;
            Ok(found.iter().map(Target::to_string).collect())
        };
        let all = named(&["udp:a:1", "eth:e", "ros", "can:c", "udp:b:2"]);
        assert_eq!(text(&all, &streams).unwrap(), ["ros", "can:c", "udp:a:1"]);
        let udp = named(&["udp:a:1"]);
        assert_eq!(text(&udp, &streams).unwrap(), ["udp:a:1"; 3]);
        assert_eq!(text(&[], &streams[..2]).unwrap(), ["ros", "can:/s"]);
        assert!(text(&[], &streams).unwrap_err().contains("udp:HOST:PORT"));
        let error = text(&named(&["ros"]), &streams).unwrap_err();
        assert!(error.contains("--exclude"), "{error}");
        for wrong in ["", "udp:7", "can:", "ros:x", "tcp:a:1"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
