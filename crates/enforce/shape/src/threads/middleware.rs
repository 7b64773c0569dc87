//! Recognises the middleware's threads by their names. Pure.

/// The beginning of the name of each middleware thread, and the thread's task. The kernel stores
/// only the first 15 characters of a name.
const THREADS: &[(&str, &str)] = &[
    (SENDER, "sends held outputs in their slots (onbeat)"),
    (
        "dds.asyn",
        "publishes messages of asynchronous writers (Fast DDS)",
    ),
    ("dds.shm", "receives through shared memory (Fast DDS)"),
    ("dds.udp", "receives by UDP (Fast DDS)"),
    ("dds.tcp", "receives by TCP (Fast DDS)"),
    (
        "dds.ev",
        "timed events: heartbeats, acknowledgements (Fast DDS)",
    ),
    ("dds.secman", "authentication (Fast DDS)"),
    ("dds.tls", "type lookup service (Fast DDS)"),
    ("dds.fwatch", "watches the profile file (Fast DDS)"),
    ("dds.", "a thread of Fast DDS"),
    ("recvUC", "receives unicast (Cyclone DDS)"),
    ("recvMC", "receives multicast (Cyclone DDS)"),
    ("recv", "receives (Cyclone DDS)"),
    ("dq.", "delivers received data (Cyclone DDS)"),
    (
        "tev",
        "timed events: heartbeats, retransmissions (Cyclone DDS)",
    ),
    ("xmit", "sends (Cyclone DDS)"),
    ("lease", "watches participants' leases (Cyclone DDS)"),
    ("rx-", "receives (Zenoh)"),
    ("tx-", "sends (Zenoh)"),
    ("net-", "network tasks (Zenoh)"),
    ("acc-", "accepts connections (Zenoh)"),
];

/// The name of the thread that holds outputs back in the application's process.
pub const SENDER: &str = onbeat_ros::inside::THREAD;

pub const PUBLISHER: &str = "dds.asyn";

/// Returns the number of the plan's inputs that leave before the first message of a sending thread.
/// Reads this number from the end of the thread's name, and returns 0 if the name has no number.
pub fn inputs_before(thread_name: &str) -> u8 {
    let number = thread_name
        .strip_prefix(SENDER)
        .and_then(|rest| rest.strip_prefix('-'));
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

pub fn job(thread_name: &str) -> Option<&'static str> {
    THREADS
        .iter()
        .find(|(prefix, _)| thread_name.starts_with(prefix))
        .map(|(_, job)| *job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_names_are_matched_with_longer_prefixes_first() {
        for (i, (name, _)) in THREADS.iter().enumerate() {
            let covered = THREADS[..i].iter().find(|(p, _)| name.starts_with(p));
            assert_eq!(covered, None, "{name} is never found");
        }
        assert_eq!(job("dds.udp.7410"), job("dds.udp"));
        assert!(job("python3").is_none());
        assert!(job("onbeat-hold-2").is_some());
        assert_eq!(
            ["onbeat-hold", "onbeat-hold-2", "onbeat-hold-x", "dds.udp-2"].map(inputs_before),
            [0, 2, 0, 0]
        );
    }
}
