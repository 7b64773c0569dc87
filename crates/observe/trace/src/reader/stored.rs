//! Loads the manifest of a trace, or recovers what it can without the file.
use super::blocks::first_block;
use crate::manifest::{self, Manifest};
use crate::segment::{self, FileHeader};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAX_MANIFEST: u64 = 64 << 20;

pub(super) fn load(dir: &Path, warnings: &mut Vec<String>) -> Option<Manifest> {
    let path = dir.join(manifest::FILE);
    let mut text = Vec::new();
    let read = File::open(&path).and_then(|f| f.take(MAX_MANIFEST).read_to_end(&mut text));
    let problem = match read {
        Err(error) => error.to_string(),
        Ok(_) => match parse_manifest(&text) {
            Ok(manifest) => return Some(manifest),
            Err(problem) => problem,
        },
    };
    warnings.push(format!(
        "manifest.json cannot be used ({problem}): mode, probes and losses of the recording are unknown"
    ));
    None
}

/// Parses the JSON of a manifest. Fails if its schema is not a schema of onbeat traces.
pub fn parse_manifest(text: &[u8]) -> Result<Manifest, String> {
    let manifest: Manifest = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if manifest.schema.starts_with("onbeat-trace/") {
        Ok(manifest)
    } else {
        Err(format!("the manifest's schema is not {}", manifest::SCHEMA))
    }
}

pub(super) fn recovered(path: &Path, first: Option<&FileHeader>, files: &[PathBuf]) -> Manifest {
    let block = files.iter().find_map(|f| first_block(f));
    Manifest {
        schema: manifest::SCHEMA.to_string(),
        id: first.map_or_else(
            || {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            },
            |h| segment::id_text(&h.id),
        ),
        span: manifest::Span {
            start_realtime_ns: first.map_or(0, |h| h.created_realtime_ns),
            start_monotonic_ns: block.map_or(0, |b| b.first_ns),
            duration_ns: 0,
        },
        ..Manifest::default()
    }
}
