//! Lists the files of a bag from its metadata.yaml, or from its directory if that file is missing.

use crate::source::damage::Damage;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const MOST_FILES: usize = 10_000;

#[derive(Deserialize)]
struct File {
    rosbag2_bagfile_information: Bag,
}

/// The part of a bag's metadata.yaml that onbeat needs. It is the same in all versions of rosbag2
/// (1 to 9).
#[derive(Deserialize)]
struct Bag {
    relative_file_paths: Vec<String>,
}

/// Returns the files of the bag in their order. If metadata.yaml gives no usable list, adds this to
/// `damage` and lists the directory.
///
/// # Errors
/// Returns the reason why the directory is not a bag.
pub fn files(directory: &Path, damage: &mut Damage) -> Result<Vec<PathBuf>, String> {
    let files = match named(directory) {
        Ok(files) => files,
        Err(what) => {
            let files = found(directory)?;
            if !files.is_empty() {
                damage.add(
                    "bags without a usable list of files, read from the files in their directory",
                    || what,
                );
            }
            files
        }
    };
    match files.is_empty() {
        true => {
            Err("not a bag: the directory has neither a metadata.yaml that names files, nor .mcap or .db3 files".into())
        }
        false => Ok(files),
    }
}

/// Returns the paths of the files that metadata.yaml names. Accepts only names within the
/// directory, so that a bag cannot name a file outside of it. Up to version 3 of metadata.yaml, the
/// names begin with the directory's own name.
fn named(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let bytes = std::fs::read(directory.join("metadata.yaml"))
        .map_err(|error| format!("metadata.yaml: {error}"))?;
    let file: File =
        onbeat_yaml::read(&bytes).map_err(|error| format!("metadata.yaml: {error}"))?;
    let names = file.rosbag2_bagfile_information.relative_file_paths;
    let paths = names
        .iter()
        .take(MOST_FILES)
        .filter_map(|name| Path::new(name).file_name());
    Ok(paths.map(|name| directory.join(name)).collect())
}

/// Finds the files of a bag by their extensions, in the order of their numbers: `bag_2` before
/// `bag_10`.
fn found(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(directory).map_err(|error| error.to_string())?;
    let mut names: Vec<String> = entries
        .take(MOST_FILES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let name = name.strip_suffix(".zstd").unwrap_or(name);
            name.ends_with(".db3") || name.ends_with(".mcap")
        })
        .collect();
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    // An unpacked file beside its packed file has the same messages.
    let unpacked = names.clone();
    names.retain(|name| {
        name.strip_suffix(".zstd")
            .is_none_or(|bare| !unpacked.iter().any(|name| name == bare))
    });
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}
