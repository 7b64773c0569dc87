//! Writes the file `metadata.yaml` of a rosbag2 bag.

use super::Plan;
use crate::item::Kind;

/// Returns the text of metadata.yaml in version 5, which ROS 2 Humble and newer distributions read.
pub fn metadata(plan: &Plan, file_name: &str) -> String {
    // A JSON string is also a valid YAML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let first_ns = plan.first_ns.unwrap_or(0);
    let length_ns = plan.last_ns.map_or(0, |last_ns| last_ns - first_ns);
    let mut topics = String::new();
    for stream in &plan.streams {
        let Kind::Ros { type_name, qos } = &stream.stream.kind else {
            continue;
        };
        topics.push_str(&format!(
            "
    - topic_metadata:
        name: {}
        type: {}
        serialization_format: cdr
        offered_qos_profiles: {}
      message_count: {}",
            quoted(&stream.written_as),
            quoted(type_name),
            quoted(qos.as_deref().unwrap_or_default()),
            stream.items
        ));
    }
    let (items, file) = (plan.items, quoted(file_name));
    format!(
        "rosbag2_bagfile_information:
  version: 5
  storage_identifier: mcap
  duration:
    nanoseconds: {length_ns}
  starting_time:
    nanoseconds_since_epoch: {first_ns}
  message_count: {items}
  topics_with_message_count:{topics}
  compression_format: \"\"
  compression_mode: \"\"
  relative_file_paths:
    - {file}
  files:
    - path: {file}
      starting_time:
        nanoseconds_since_epoch: {first_ns}
      duration:
        nanoseconds: {length_ns}
      message_count: {items}
"
    )
}
