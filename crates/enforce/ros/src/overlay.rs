//! Overlays of launch files: a Python launch file that includes another one (XML, YAML or Python)
//! and remaps topics of everything that it starts.
//!
//! The overlay puts `SetRemap` into a group around the inclusion, and each rule names the node.
//! launch_ros puts these rules before the node's own, and rcl takes the first rule that matches. If
//! the launch file itself remaps another name to the topic, that other name must be given as the
//! topic, because onbeat does not read launch files.

use crate::remap::{Move, RemapError};
use std::path::Path;

/// Returns the text of a launch file that remaps the topics of `moves` and then includes
/// `launch_file`. The included file gets the arguments of the new one. Write the text to a file
/// whose name ends in `.launch.py`, because `ros2 launch` requires this name.
pub fn overlay(launch_file: &Path, moves: &[Move]) -> Result<String, RemapError> {
    let mut remaps = String::new();
    for m in moves {
        let (left, right) = m.sides()?;
        remaps += &format!("        SetRemap(src={left:?}, dst={right:?}),\n");
    }
    let path = python_string(&launch_file.to_string_lossy());
    Ok(format!(
        "# Written by onbeat: the launch file below, with topics moved to where they are held back.\n\
         from launch import LaunchDescription\n\
         from launch.actions import GroupAction, IncludeLaunchDescription\n\
         from launch.launch_description_sources import AnyLaunchDescriptionSource\n\
         from launch_ros.actions import SetRemap\n\
         \n\
         ORIGINAL = {path}\n\
         \n\
         \n\
         def generate_launch_description():\n    \
             return LaunchDescription([GroupAction(scoped=True, forwarding=True, actions=[\n\
         {remaps}        \
                 IncludeLaunchDescription(AnyLaunchDescriptionSource(ORIGINAL)),\n    \
             ])])\n"
    ))
}

/// Quotes a text as a Python string literal. No text can end the literal early.
fn python_string(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\x{:02x}", u32::from(c).min(0xff)),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_overlays_equal_the_golden_file() {
        let moves = [Move {
            node: "/loc/ndt".into(),
            topic: "/pose".into(),
            held: "/pose/held".into(),
        }];
        for kind in ["all.launch.xml", "all.launch.yaml", "all.launch.py"] {
            let text = overlay(&Path::new("/opt/it's").join(kind), &moves).unwrap();
            let expected = include_str!("../tests/overlay.golden").replace("KIND", kind);
            assert_eq!(text, expected);
        }
        assert_eq!(python_string("a\n'\\"), "'a\\x0a\\'\\\\'");
    }
}
