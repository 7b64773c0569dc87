//! Reads metadata.yaml of a bag, or lists the files in its directory if metadata.yaml is missing.

use crate::item::Extras;
use crate::source::damage::Damage;
use crate::source::extras;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MOST_FILES: usize = 10_000;

#[derive(Deserialize)]
struct File<T> {
    rosbag2_bagfile_information: T,
}

/// The part of a bag's metadata.yaml that onbeat needs. It is the same in all versions of rosbag2
/// (1 to 9).
#[derive(Deserialize)]
struct Files {
    relative_file_paths: Vec<String>,
}

#[derive(Deserialize)]
struct Count {
    message_count: u64,
}

/// The data that the user has given to the recorder, from version 6 of metadata.yaml on.
#[derive(Deserialize)]
struct Custom {
    custom_data: BTreeMap<String, String>,
}

/// The files of a bag, and the data about it in metadata.yaml.
pub struct About {
    /// The files of the bag in their order.
    pub files: Vec<PathBuf>,
    /// The number of messages in metadata.yaml. `None` if metadata.yaml does not state it.
    pub messages: Option<u64>,
    pub extras: Extras,
}

impl About {
    /// Reads the metadata.yaml of the bag in a directory. If metadata.yaml gives no usable list
    /// of files, adds this to `damage` and lists the directory.
    ///
    /// # Errors
    /// Returns the reason why the directory is not a bag.
    pub fn of(directory: &Path, damage: &mut Damage) -> Result<About, String> {
        let about = match About::named(directory) {
            Ok(about) => about,
            Err(what) => {
                let files = found(directory)?;
                if !files.is_empty() {
                    damage.add(
                        "bags without a usable list of files, read from the files in their directory",
                        || what,
                    );
                }
                About {
                    files,
                    messages: None,
                    extras: Extras::default(),
                }
            }
        };
        match about.files.is_empty() {
            true => {
                Err("not a bag: the directory has neither a metadata.yaml that names files, nor .mcap or .db3 files".into())
            }
            false => Ok(about),
        }
    }

    /// Reads metadata.yaml. Accepts only names of files within the directory, so that a bag cannot
    /// name a file outside of it. Up to version 3 of metadata.yaml, the names begin with the
    /// directory's own name.
    fn named(directory: &Path) -> Result<About, String> {
        let bytes = std::fs::read(directory.join("metadata.yaml"))
            .map_err(|error| format!("metadata.yaml: {error}"))?;
        let files: Files = part(&bytes).map_err(|error| format!("metadata.yaml: {error}"))?;
        let names = files.relative_file_paths.iter().take(MOST_FILES);
        let names = names.filter_map(|name| Path::new(name).file_name());
        let files = names.map(|name| directory.join(name)).collect();
        let mut about = About {
            files,
            messages: part(&bytes).ok().map(|count: Count| count.message_count),
            extras: Extras::default(),
        };
        let custom = part(&bytes).map(|custom: Custom| custom.custom_data);
        if let Some(custom) = custom.ok().filter(|custom| !custom.is_empty()) {
            let values = custom.iter();
            let values = values.map(|(key, value)| (key.as_str(), value.as_str()));
            extras::note(&mut about.extras, "custom_data", values);
        }
        Ok(about)
    }
}

/// Reads some fields of metadata.yaml. A field with a wrong value does not affect the others.
fn part<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, onbeat_yaml::YamlError> {
    let file: File<T> = onbeat_yaml::read(bytes)?;
    Ok(file.rosbag2_bagfile_information)
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
