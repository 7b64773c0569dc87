//! Overlays of launch files: a Python launch file that includes another one, whatever its kind
//! (XML, YAML, Python), with topics moved for everything that it starts.
//!
//! `SetRemap` stands in a group around the inclusion, and its rule names the node. launch_ros puts
//! such rules before those of the nodes' own, and rcl takes the first that matches. A node whose
//! launch file itself moves another name to the topic is moved by that other name: give it as the
//! topic (nothing here reads launch files).

use crate::remap::{Move, RemapError};
use std::path::Path;

/// The text of an overlay. Arguments of the launch file pass through; `overlay` must end in
/// `.launch.py` for `ros2 launch` to know its kind.
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

/// A string literal that no path can get out of.
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
    fn golden() {
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
