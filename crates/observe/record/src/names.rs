//! Names of files, nodes, distributions and commands, as ROS 2 and users write them.

pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub fn node_name(namespace: &str, name: &str) -> String {
    let namespace = namespace.trim_matches('/');
    if namespace.is_empty() {
        format!("/{name}")
    } else {
        format!("/{namespace}/{name}")
    }
}

/// Returns the node that a command line names (`--ros-args -r __node:=NAME -r __ns:=NS`).
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

/// Returns the name of a ROS distribution, or an empty string if the distribution is unknown. The
/// name comes from the `path` of an installation below `/opt/ros`, otherwise from the `generation`
/// of the tracing ABI.
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
    fn namespace_and_node_name_are_joined_to_a_full_name() {
        assert_eq!(node_name("/", "a"), "/a");
        assert_eq!(node_name("/x/y", "a"), "/x/y/a");
        assert_eq!(node_name("", "a"), "/a");
    }

    #[test]
    fn the_distribution_in_the_path_of_an_installation_takes_precedence() {
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
    fn a_command_line_names_its_node() {
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
