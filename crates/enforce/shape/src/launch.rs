//! Builds the application's command with the plan's topics remapped to those that shapers take.

use onbeat_files::Directory;
use onbeat_plan::schema::Hold;
use onbeat_plan::Plan;
use onbeat_ros::remap::{remap_command, Move, RemapError};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use thiserror::Error;

#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum LaunchError {
    #[error(transparent)]
    Remap(#[from] RemapError),
    #[error(
        "cannot find launch file {0}. Give its path, or source the workspace that contains its package"
    )]
    NoLaunchFile(String),
    #[error("cannot write {}: {source}. Free space, or set TMPDIR", path.display())]
    Overlay {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Returns the topics that the application must use under other names. These are the topics of held
/// outputs and of throttled inputs.
pub fn moves(plan: &Plan) -> Vec<Move> {
    let outputs = plan
        .outputs
        .iter()
        .filter(|o| o.hold == Hold::Republish)
        .filter_map(|o| {
            Some(Move {
                node: o.node.clone(),
                topic: o.topic.clone(),
                held: o.held_topic.clone()?,
            })
        });
    let inputs = plan.inputs.iter().map(|i| Move {
        node: i.node.clone(),
        topic: i.topic.clone(),
        held: i.held_topic.clone(),
    });
    outputs.chain(inputs).collect()
}

/// A command whose topics are remapped. Dropping this value deletes the launch file that was
/// written for it.
#[derive(Debug, Default)]
pub struct Moved {
    /// The program and its arguments, including the rules that remap topics.
    pub command: Vec<String>,
    _overlay: Option<TempDir>,
}

impl Moved {
    pub(crate) fn unchanged(command: &[String]) -> Moved {
        Moved {
            command: command.to_vec(),
            _overlay: None,
        }
    }
}

/// Adds rules that remap the plan's topics to a command line. For `ros2 launch`, writes a launch
/// file that remaps the topics and includes the original one. This file takes the original's place
/// in the command.
pub fn moved(plan: &Plan, command: &[String]) -> Result<Moved, LaunchError> {
    let moves = moves(plan);
    if command.is_empty() || moves.is_empty() {
        return Ok(Moved::unchanged(command));
    }
    match remap_command(command, &moves) {
        Err(RemapError::Launch(_)) => {}
        words => {
            return Ok(Moved {
                command: words?,
                _overlay: None,
            })
        }
    }
    let prefixes = std::env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
    let prefixes: Vec<PathBuf> = std::env::split_paths(&prefixes).collect();
    let (at, words, file) = launch_file(command, &prefixes)
        .ok_or_else(|| LaunchError::NoLaunchFile(command[2..].join(" ")))?;
    let text = onbeat_ros::overlay::overlay(&file, &moves)?;
    let (dir, path) = write_overlay(&text)?;
    let mut command = command.to_vec();
    command.splice(at..at + words, [path.display().to_string()]);
    Ok(Moved {
        command,
        _overlay: Some(dir),
    })
}

const OVERLAY: &str = "overlay.launch.py";

/// Writes the overlay launch file into a new directory with an unpredictable name. The launch file
/// runs as the user who called sudo. That user can read the overlay; only root can change it.
fn write_overlay(text: &str) -> Result<(TempDir, PathBuf), LaunchError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| LaunchError::Overlay { path, source }
    };
    let dir = tempfile::Builder::new()
        .prefix("onbeat-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .map_err(failed(&std::env::temp_dir()))?;
    let path = dir.path().join(OVERLAY);
    let write = || {
        let held = Directory::private(dir.path())?;
        let mut file = held.create_new(OVERLAY, 0o644)?;
        file.write_all(text.as_bytes())?;
        // Overrides the umask. The file contains no secrets.
        file.set_permissions(Permissions::from_mode(0o644))?;
        held.set_mode(0o755)
    };
    write().map_err(failed(&path))?;
    Ok((dir, path))
}

/// Finds the launch file in `ros2 launch [OPTION...] FILE` or `ros2 launch [OPTION...] PACKAGE
/// FILE`. Returns the index of the first word that names it, the number of these words, and its
/// path. Packages are searched in `prefixes`, the directories of AMENT_PREFIX_PATH.
fn launch_file(command: &[String], prefixes: &[PathBuf]) -> Option<(usize, usize, PathBuf)> {
    let at = 2 + command.get(2..)?.iter().position(|w| !w.starts_with('-'))?;
    let first = Path::new(&command[at]);
    if first.is_file() {
        return Some((at, 1, first.canonicalize().ok()?));
    }
    let name = command.get(at + 1)?;
    let shares = prefixes.iter().map(|p| p.join("share").join(first));
    shares
        .filter_map(|s| find(&s, name, 6))
        .map(|f| (at, 2, f))
        .next()
}

fn find(dir: &Path, name: &str, depth: u32) -> Option<PathBuf> {
    let mut below = Vec::new();
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            below.push(path);
        } else if entry.file_name().to_str() == Some(name) {
            return Some(path);
        }
    }
    below.sort();
    (depth > 0)
        .then(|| below.iter().find_map(|d| find(d, name, depth - 1)))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_files_are_found_by_path_and_by_package() {
        let held = tempfile::tempdir().expect("a directory");
        let dir = held.path().to_path_buf();
        let launch = dir.join("share/robot/launch");
        std::fs::create_dir_all(&launch).expect("a directory");
        let file = launch.join("all.launch.xml");
        std::fs::write(&file, "<launch/>").expect("a file");
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let by_path = words(&format!("ros2 launch -d {} a:=1", file.display()));
        assert_eq!(launch_file(&by_path, &[]).map(|f| (f.0, f.1)), Some((3, 1)));
        let by_package = words("ros2 launch robot all.launch.xml a:=1");
        let found = launch_file(&by_package, &[PathBuf::from("/nowhere"), dir.clone()]);
        assert_eq!(found, Some((2, 2, file.clone())));
        assert_eq!(
            launch_file(
                &words("ros2 launch robot none.py"),
                std::slice::from_ref(&dir)
            ),
            None
        );
    }

    #[test]
    fn an_overlay_is_readable_by_all_and_is_deleted_when_dropped() {
        let (dir, path) = write_overlay("text").expect("written");
        let (other, _) = write_overlay("text").expect("a second one beside it");
        assert_ne!(dir.path(), other.path());
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode(dir.path()) & 0o777, 0o755);
        assert_eq!(mode(&path) & 0o777, 0o644);
        let name = dir.path().display().to_string();
        assert!(!name.contains(&std::process::id().to_string()), "{name}");
        drop(dir);
        assert!(!path.exists());
    }
}
