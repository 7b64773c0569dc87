//! Finds the publishers of a held topic: their type, and the QoS that all of them offer.

use super::ShaperError;
use crate::rcl::{self, Announced, Node, Qos};

/// Returns the type and QoS of a held topic, or `None` while it has no publisher.
pub(super) fn find(node: &Node, topic: &str) -> Result<Option<(String, Qos)>, ShaperError> {
    let found = node.announced(topic)?;
    let Some(first) = found.first() else {
        return Ok(None);
    };
    if let Some(other) = found.iter().find(|a| a.type_name != first.type_name) {
        return Err(ShaperError::Types {
            topic: topic.into(),
            first: first.type_name.clone(),
            second: other.type_name.clone(),
        });
    }
    Ok(Some((first.type_name.clone(), weakest(&found))))
}

/// Returns the QoS that every publisher in `found` offers. A subscription that requests more would
/// not connect to all of them.
fn weakest(found: &[Announced]) -> Qos {
    let mut qos = found.first().map(|a| a.qos).unwrap_or_default();
    for other in &found[1..] {
        if other.qos.reliability != rcl::RELIABLE {
            qos.reliability = rcl::BEST_EFFORT;
        }
        if other.qos.durability != rcl::TRANSIENT_LOCAL {
            qos.durability = rcl::VOLATILE;
        }
        qos.deadline = longer(qos.deadline, other.qos.deadline);
        qos.lease = longer(qos.lease, other.qos.lease);
        qos.liveliness = qos.liveliness.min(other.qos.liveliness);
    }
    qos
}

fn longer<T: Into<SecondsAndNanos> + Copy>(a: T, b: T) -> T {
    let (x, y): (SecondsAndNanos, SecondsAndNanos) = (a.into(), b.into());
    if x == (0, 0) || y != (0, 0) && x >= y {
        a
    } else {
        b
    }
}

type SecondsAndNanos = (u64, u64);

impl From<rcl::Time> for SecondsAndNanos {
    fn from(time: rcl::Time) -> SecondsAndNanos {
        (time.sec, time.nsec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rcl::Time;

    #[test]
    fn the_shaper_requests_the_weakest_qos_that_publishers_offer() {
        let strong = Qos {
            reliability: rcl::RELIABLE,
            durability: rcl::TRANSIENT_LOCAL,
            deadline: Time { sec: 1, nsec: 0 },
            liveliness: 3,
            ..Qos::default()
        };
        let weak = Qos {
            reliability: rcl::BEST_EFFORT,
            durability: rcl::VOLATILE,
            liveliness: 1,
            ..Qos::default()
        };
        let of = |qos| Announced {
            node: String::new(),
            type_name: String::new(),
            qos,
        };
        assert_eq!(weakest(&[of(strong)]), strong);
        assert_eq!(weakest(&[of(strong), of(weak)]), weak);
        assert_eq!(weakest(&[of(weak), of(strong)]), weak);
    }
}
