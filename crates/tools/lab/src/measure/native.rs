//! Compiles small C programs that experiments measure, on the machine where they run.

use crate::frame::files;
use crate::frame::programs::output;
use crate::frame::{cache_dir, LabError, Result};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn compile(name: &str, source: &str, arguments: &[String]) -> Result<PathBuf> {
    kept(name, (source, arguments), |made| {
        let code = made.with_extension("c");
        fs::write(&code, source).map_err(LabError::file("writing", &code))?;
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let mut command = Command::new(&compiler);
        command.args(["-O2", "-Wall", "-o"]).arg(made).arg(&code);
        command.args(arguments).stdin(Stdio::null());
        let what = format!("{compiler} for {name}");
        let built = output(&mut command, &what, "install gcc or set CC");
        let _ = fs::remove_file(&code);
        built
    })
}

/// Compiles source files from the project's source tree and returns the path of the program. `also`
/// lists the files that the source files include. As in [`compile()`], a program that was compiled
/// before from the same contents is reused.
pub fn build(
    name: &str,
    compiler: &str,
    sources: &[PathBuf],
    also: &[PathBuf],
    arguments: &[String],
) -> Result<PathBuf> {
    let read = |file: &PathBuf| fs::read(file).map_err(LabError::file("reading", file));
    let files = sources.iter().chain(also).map(read);
    let texts = files.collect::<Result<Vec<_>, _>>()?;
    kept(name, (compiler, sources, arguments, texts), |made| {
        let mut command = Command::new(compiler);
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
        command.arg(made).args(sources).args(arguments);
        command.stdin(Stdio::null());
        let what = format!("{compiler} for {name}");
        output(&mut command, &what, "install gcc and g++")
    })
}

/// Returns the cached program that was made from `parts`. If there is none, `make` creates it under
/// a temporary name.
fn kept(
    name: &str,
    parts: impl Hash,
    make: impl FnOnce(&Path) -> Result<String>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    let dir = cache_dir().join("lab");
    let program = dir.join(format!("{name}-{:016x}", hasher.finish()));
    if program.is_file() {
        return Ok(program);
    }
    files::make_dir(&dir)?;
    let temporary = dir.join(format!("{name}-{}.new", std::process::id()));
    make(&temporary)?;
    fs::rename(&temporary, &program).map_err(LabError::file("writing", &program))?;
    Ok(program)
}
