//! Result files that have their final name only once they are complete.

use super::{LabError, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub struct Raw {
    out: BufWriter<File>,
    path: PathBuf,
    temporary: PathBuf,
}

impl Raw {
    pub(super) fn create(path: &Path, header: &str) -> Result<Self> {
        let temporary = temporary_name(path);
        let file = File::create(&temporary).map_err(LabError::file("writing", &temporary))?;
        let mut raw = Raw {
            out: BufWriter::new(file),
            path: path.to_path_buf(),
            temporary,
        };
        raw.line(format_args!("{header}"))?;
        Ok(raw)
    }

    pub fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<()> {
        writeln!(self.out, "{line}").map_err(LabError::file("writing", &self.temporary))
    }

    pub fn finish(mut self) -> Result<()> {
        self.out
            .flush()
            .map_err(LabError::file("writing", &self.temporary))?;
        fs::rename(&self.temporary, &self.path).map_err(LabError::file("writing", &self.path))
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    path.with_file_name(name)
}

pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_name(path);
    fs::write(&temporary, bytes).map_err(LabError::file("writing", &temporary))?;
    fs::rename(&temporary, path).map_err(LabError::file("writing", path))
}
