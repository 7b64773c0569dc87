//! Finds the files that make up a trace.
use super::TraceReadError;
use crate::segment::{self, FileHeader};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub(super) struct Files {
    pub(super) paths: Vec<PathBuf>,
    pub(super) from_start: bool,
}

impl Files {
    pub(super) fn single(path: &Path) -> Files {
        Files {
            paths: vec![path.to_path_buf()],
            from_start: false,
        }
    }

    pub(super) fn in_directory(dir: &Path, warnings: &mut Vec<String>) -> io::Result<Files> {
        let mut segments = segment::list(dir)?;
        let mut paths = Vec::new();
        let init = dir.join(segment::INIT_FILE);
        if init.exists() {
            match file_header(&init) {
                Ok(Some(header)) => segments.retain(|(number, _)| *number >= header.number),
                // The header says which segments init.obt replaces, so they are now unknown. Such
                // segments exist only if the recorder was killed while it deleted one.
                Ok(None) => warnings.push(format!("{}: damaged header", init.display())),
                Err(error) => warnings.push(format!("{}: {error}", init.display())),
            }
            paths.push(init);
        } else if segments.first().is_some_and(|(number, _)| *number > 0) {
            warnings.push(format!(
                "{}: the first segments and init.obt are missing; names of nodes and topics may be unknown",
                dir.display()
            ));
        }
        let from_start = segments.first().is_some_and(|(number, _)| *number == 0);
        for pair in segments.windows(2) {
            if pair[0].0 + 1 != pair[1].0 {
                let (from, to) = (pair[0].0 + 1, pair[1].0 - 1);
                warnings.push(format!("segments {from} to {to} are missing"));
            }
        }
        paths.extend(segments.into_iter().map(|(_, path)| path));
        Ok(Files { paths, from_start })
    }

    pub(super) fn first_header(&self, trace: &Path) -> Result<Option<FileHeader>, TraceReadError> {
        let mut first = None;
        for file in &self.paths {
            let header = file_header(file).map_err(|source| TraceReadError::Open {
                path: file.clone(),
                source,
            })?;
            let Some(header) = header else { continue };
            let (path, version) = (trace.to_path_buf(), header.version);
            if version < segment::OLDEST {
                return Err(TraceReadError::Older { path, version });
            }
            if version > segment::VERSION {
                return Err(TraceReadError::Newer { path, version });
            }
            first.get_or_insert(header);
        }
        Ok(first)
    }
}

fn file_header(path: &Path) -> io::Result<Option<FileHeader>> {
    let mut bytes = [0; segment::HEADER_LEN];
    match File::open(path)?.read_exact(&mut bytes) {
        Ok(()) => Ok(FileHeader::from_bytes(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}
