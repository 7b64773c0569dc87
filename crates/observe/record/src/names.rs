//! Names as ROS 2 and users write them: files, nodes, distributions, commands.

/// Last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Full name of a node.
pub fn node_name(namespace: &str, name: &str) -> String {
    let namespace = namespace.trim_matches('/');
    if namespace.is_empty() {
        format!("/{name}")
    } else {
        format!("/{namespace}/{name}")
    }
}

/// The node that a command line names (`--ros-args -r __node:=NAME -r __ns:=NS`).
pub fn node_of_command_line(command: &str) -> Option<String> {
    let value = |key: &str| {
        let mut values = command
            .split_whitespace()
            .filter_map(|w| w.strip_prefix(key));
        values.next().filter(|v| !v.is_empty())
    };
    let name = value("__node:=").or_else(|| value("__name:="))?;
    Some(node_name(value("__ns:=").unwrap_or_default(), name))
}

/// Name of a distribution: from the `path` of its installation below `/opt/ros`, else the
/// `generation` of its tracing ABI. Empty if neither is known.
pub fn distribution_name(path: Option<&str>, generation: Option<&str>) -> String {
    path.and_then(|p| p.split("/opt/ros/").nth(1))
        .and_then(|rest| rest.split('/').next())
        .or(generation)
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_as_ros_does() {
        assert_eq!(node_name("/", "a"), "/a");
        assert_eq!(node_name("/x/y", "a"), "/x/y/a");
        assert_eq!(node_name("", "a"), "/a");
    }

    #[test]
    fn distributions_are_named_by_their_place_first() {
        assert_eq!(
            distribution_name(
                Some("/opt/ros/rolling/lib/libtracetools.so"),
                Some("kilted")
            ),
            "rolling"
        );
        assert_eq!(
            distribution_name(Some("/home/u/env/lib/libtracetools.so"), Some("jazzy")),
            "jazzy"
        );
        assert_eq!(distribution_name(None, None), "");
    }

    #[test]
    fn command_lines_name_nodes() {
        let f = node_of_command_line;
        assert_eq!(
            f("/opt/x --ros-args -r __node:=talker -r __ns:=/a/b"),
            Some("/a/b/talker".into())
        );
        assert_eq!(
            f("/opt/x --ros-args -r __node:=talker"),
            Some("/talker".into())
        );
        assert_eq!(f("python3 x.py"), None);
    }
}
