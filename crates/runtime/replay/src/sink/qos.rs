//! The QoS that publishers of a replay offer: from the recording, and from a file with overrides in
//! the form of rosbag2.

use onbeat_ros::rcl::{self, Qos, Time};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The QoS settings that the user's file states, by topic. They replace the recorded settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides(BTreeMap<String, Override>);

/// The QoS settings of one topic that replace the recorded settings. A setting that is `None` stays
/// as recorded.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Override {
    history: Option<History>,
    depth: Option<u32>,
    reliability: Option<Reliability>,
    durability: Option<Durability>,
    deadline: Option<Length>,
    lifespan: Option<Length>,
    liveliness: Option<Liveliness>,
    liveliness_lease_duration: Option<Length>,
    avoid_ros_namespace_conventions: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum History {
    KeepLast,
    KeepAll,
    SystemDefault,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reliability {
    Reliable,
    BestEffort,
    SystemDefault,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Durability {
    TransientLocal,
    Volatile,
    SystemDefault,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Liveliness {
    Automatic,
    ManualByTopic,
    SystemDefault,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Length {
    sec: u64,
    #[serde(default)]
    nsec: u64,
}

impl From<Length> for Time {
    fn from(length: Length) -> Time {
        Time {
            sec: length.sec,
            nsec: length.nsec,
        }
    }
}

impl Overrides {
    /// Parses the user's file with QoS settings.
    ///
    /// # Errors
    /// Fails with a sentence if the file does not have the form of rosbag2's QoS overrides.
    pub fn parse(file: &[u8]) -> Result<Overrides, String> {
        let all = onbeat_yaml::read(file).map_err(|error| match error {
            onbeat_yaml::YamlError::Content {
                at: Some(at), said, ..
            } => format!("line {at}: {said}"),
            error => error.to_string(),
        })?;
        Ok(Overrides(all))
    }

    /// Returns the QoS with which a replay publishes a topic. The user's settings replace those of
    /// the recorded publishers (`recorded`, the YAML of a bag).
    pub fn offered(&self, topic: &str, recorded: &str) -> Qos {
        let mut qos = strongest(recorded);
        let Some(change) = self.0.get(topic) else {
            return lossless(qos);
        };
        match change.reliability {
            Some(Reliability::BestEffort) => qos.reliability = rcl::BEST_EFFORT,
            Some(_) => qos.reliability = rcl::RELIABLE,
            None => {}
        }
        match change.durability {
            Some(Durability::TransientLocal) => qos.durability = rcl::TRANSIENT_LOCAL,
            Some(_) => qos.durability = rcl::VOLATILE,
            None => {}
        }
        match change.liveliness {
            Some(Liveliness::ManualByTopic) => qos.liveliness = 3,
            Some(_) => qos.liveliness = 1,
            None => {}
        }
        let set = |time: &mut Time, length: Option<Length>| {
            *time = length.map_or(*time, Time::from);
        };
        set(&mut qos.deadline, change.deadline);
        set(&mut qos.lifespan, change.lifespan);
        set(&mut qos.lease, change.liveliness_lease_duration);
        if let Some(avoids) = change.avoid_ros_namespace_conventions {
            qos.avoid_ros_namespace_conventions = avoids;
        }
        if let Some(depth) = change.depth {
            qos.depth = depth as usize;
        }
        let mut qos = lossless(qos);
        match (change.history, change.depth) {
            (Some(History::KeepAll), _) => qos.history = rcl::KEEP_ALL,
            (Some(History::KeepLast), _) | (None, Some(_)) => qos.history = rcl::KEEP_LAST,
            (Some(History::SystemDefault) | None, _) => {}
        }
        if let (rcl::KEEP_LAST, Some(depth)) = (qos.history, change.depth) {
            qos.depth = depth as usize;
        }
        qos
    }
}

/// Returns the number of a topic's messages that a late subscriber receives. Returns 0 if the
/// recorded publishers were not transient local. `recorded` is their QoS.
pub fn latched(recorded: &str) -> usize {
    let qos = strongest(recorded);
    match (qos.durability, qos.depth) {
        (rcl::TRANSIENT_LOCAL, 0) => usize::MAX,
        (rcl::TRANSIENT_LOCAL, depth) => {
            let publishers = recorded.matches("history").count().max(1);
            depth.saturating_mul(publishers)
        }
        _ => 0,
    }
}

/// Sets the history of the QoS so that the publisher loses no message: a reliable topic stores all
/// messages until they are acknowledged.
fn lossless(mut qos: Qos) -> Qos {
    match (qos.reliability, qos.durability) {
        // A late subscriber receives this many messages.
        (_, rcl::TRANSIENT_LOCAL) if qos.depth > 0 => {}
        (rcl::RELIABLE, _) => qos.history = rcl::KEEP_ALL,
        _ => qos.depth = qos.depth.max(1000),
    }
    qos
}

/// Returns the strongest QoS of the recorded publishers (`recorded`, the YAML of a bag). With this
/// QoS, each subscriber that matched one of the publishers matches again. Messages never expire.
fn strongest(recorded: &str) -> Qos {
    let mut qos = Qos {
        history: rcl::KEEP_LAST,
        depth: 0,
        reliability: rcl::BEST_EFFORT,
        durability: rcl::VOLATILE,
        ..Qos::default()
    };
    let mut profiles = 0;
    let mut section = "";
    for line in recorded.lines() {
        let entry = line.trim_start_matches([' ', '-']).trim_end();
        let Some((key, value)) = entry.split_once(':') else {
            continue;
        };
        let (value, number) = (value.trim(), value.trim().parse::<u64>().unwrap_or(0));
        match (key.trim(), value) {
            ("reliability", "1" | "reliable") => qos.reliability = rcl::RELIABLE,
            ("durability", "1" | "transient_local") => qos.durability = rcl::TRANSIENT_LOCAL,
            ("depth", _) => qos.depth = qos.depth.max(number as usize),
            ("liveliness", "3" | "manual_by_topic") => qos.liveliness = 3,
            ("history", _) => profiles += 1,
            ("deadline", "") => section = "deadline",
            ("liveliness_lease_duration", "") => section = "lease",
            (_, "") => section = "",
            ("sec" | "nsec", _) => {
                let time = match section {
                    "deadline" => &mut qos.deadline,
                    "lease" => &mut qos.lease,
                    _ => continue,
                };
                set(time, key.trim(), number, profiles);
            }
            _ => {}
        }
    }
    if profiles == 0 {
        qos.reliability = rcl::RELIABLE;
    }
    qos
}

/// Sets the part `key` (`sec` or `nsec`) of a QoS time if only one publisher was recorded. If
/// several were recorded, the time stays unset. The QoS would then need the shortest of their
/// times, but this function gets only one part of one time.
fn set(time: &mut Time, key: &str, number: u64, profiles: usize) {
    match key {
        _ if profiles > 1 => *time = Time::default(),
        "sec" => time.sec = number,
        _ => time.nsec = number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offered(recorded: &str) -> Qos {
        Overrides::default().offered("/t", recorded)
    }

    #[test]
    fn publishers_offer_the_strongest_recorded_qos() {
        let old = "- history: 1\n  depth: 7\n  reliability: 2\n  durability: 2\n  deadline:\n    sec: 1\n    \
            nsec: 5\n  lifespan:\n    sec: 9\n    nsec: 9\n  liveliness: 1\n  liveliness_lease_duration:\n    \
            sec: 3\n    nsec: 4\n";
        let qos = offered(old);
        assert_eq!(
            (qos.reliability, qos.durability),
            (rcl::BEST_EFFORT, rcl::VOLATILE)
        );
        assert_eq!((qos.history, qos.depth), (rcl::KEEP_LAST, 1000));
        assert_eq!(
            (qos.deadline, qos.lease),
            (Time { sec: 1, nsec: 5 }, Time { sec: 3, nsec: 4 })
        );
        assert_eq!(
            qos.lifespan,
            Time::default(),
            "what is played does not expire"
        );
        let new = "- history: keep_last\n  depth: 3\n  reliability: reliable\n  durability: transient_local\n";
        let qos = offered(new);
        assert_eq!(
            (qos.reliability, qos.durability),
            (rcl::RELIABLE, rcl::TRANSIENT_LOCAL)
        );
        assert_eq!((qos.history, qos.depth), (rcl::KEEP_LAST, 3));
        let both = offered(&format!(
            "{old}{}",
            new.replace("transient_local", "volatile")
        ));
        assert_eq!(
            (both.reliability, both.history),
            (rcl::RELIABLE, rcl::KEEP_ALL)
        );
        for nothing in ["", "nonsense", ":\n::"] {
            assert_eq!(offered(nothing).reliability, rcl::RELIABLE);
        }
    }

    #[test]
    fn a_file_of_rosbag2_overrides_the_recorded_qos() {
        let file = b"/scan:\n  reliability: best_effort\n  history: keep_last\n  depth: 3\n  deadline: {sec: 1, nsec: 5}\n\
            /map:\n  durability: transient_local\n  depth: 2\n/cmd:\n  history: keep_all\n";
        let overrides = Overrides::parse(file).unwrap();
        let reliable =
            "- history: keep_last\n  depth: 9\n  reliability: reliable\n  durability: volatile\n";
        let qos = overrides.offered("/scan", reliable);
        assert_eq!(
            (qos.reliability, qos.history, qos.depth),
            (rcl::BEST_EFFORT, rcl::KEEP_LAST, 3)
        );
        assert_eq!(qos.deadline, Time { sec: 1, nsec: 5 });
        let qos = overrides.offered("/map", reliable);
        let expected = (rcl::RELIABLE, rcl::TRANSIENT_LOCAL, rcl::KEEP_LAST, 2);
        assert_eq!(
            (qos.reliability, qos.durability, qos.history, qos.depth),
            expected
        );
        assert_eq!(overrides.offered("/cmd", "").history, rcl::KEEP_ALL);
        assert_eq!(overrides.offered("/other", reliable), offered(reliable));
        let error = Overrides::parse(b"/scan:\n  reliability: sometimes\n").unwrap_err();
        assert!(error.starts_with("line 2"), "{error}");
        assert!(Overrides::parse(b"/scan: {depht: 1}").is_err());
        assert_eq!([latched(reliable), latched("")], [0, 0]);
        let local = reliable.replace("volatile", "transient_local");
        assert_eq!(latched(&local), 9);
        assert_eq!(latched(&format!("{local}{local}")), 18);
        assert_eq!(latched(&local.replace('9', "0")), usize::MAX);
    }

    proptest! {
        #[test]
        fn arbitrary_qos_text_causes_no_panic(text in "(- )?([a-z_]{0,12}:? ?[0-9a-z]{0,25}\n){0,20}") {
            offered(&text);
        }
    }
}
