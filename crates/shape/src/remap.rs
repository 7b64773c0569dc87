//! Words that make a node publish on another topic.

/// The words for one node: `--ros-args -r NAME:TOPIC:=HELD`.
pub fn remap_args(node: &str, topic: &str, held: &str) -> Vec<String> {
    let name = node.rsplit('/').next().unwrap_or(node);
    vec![
        "--ros-args".into(),
        "-r".into(),
        format!("{name}:{topic}:={held}"),
    ]
}

/// A command line with the remapping.
pub fn with_remap(words: &[String], node: &str, topic: &str, held: &str) -> Vec<String> {
    let mut words = words.to_vec();
    let mut args = remap_args(node, topic, held);
    if words.iter().any(|w| w == "--ros-args") {
        args.remove(0);
    }
    words.extend(args);
    words
}
