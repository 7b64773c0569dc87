//! Small C programs that experiments measure: compiled where they run, from source in the binary.

use crate::frame::{cache_dir, LabError};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Compiles a C program with the machine's compiler and returns its path. Programs are kept and
/// found again by their source and arguments.
pub fn compile(name: &str, source: &str, arguments: &[String]) -> Result<PathBuf, LabError> {
    let mut hasher = DefaultHasher::new();
    (source, arguments).hash(&mut hasher);
    let dir = cache_dir().join("lab");
    let program = dir.join(format!("{name}-{:016x}", hasher.finish()));
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&dir).map_err(LabError::file("making", &dir))?;
    let code = dir.join(format!("{name}-{}.c", std::process::id()));
    let temporary = code.with_extension("new");
    fs::write(&code, source).map_err(LabError::file("writing", &code))?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(&compiler)
        .args(["-O2", "-Wall", "-o"])
        .arg(&temporary)
        .arg(&code)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| LabError::program(&compiler, format!("{e}; install gcc or set CC")))?;
    let _ = fs::remove_file(&code);
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(LabError::program(
            &compiler,
            format!("{name}: {}", text.lines().next().unwrap_or("no message")),
        ));
    }
    fs::rename(&temporary, &program).map_err(LabError::file("writing", &program))?;
    Ok(program)
}

/// Compiles source files that lie in the project's tree (`also` are files that they include) and
/// returns the program's path. Like [`compile()`], it finds a program again by what it was made of.
pub fn build(
    name: &str,
    compiler: &str,
    sources: &[PathBuf],
    also: &[PathBuf],
    arguments: &[String],
) -> Result<PathBuf, LabError> {
    let mut hasher = DefaultHasher::new();
    (compiler, sources, arguments).hash(&mut hasher);
    for file in sources.iter().chain(also) {
        let text = fs::read(file).map_err(LabError::file("reading", file))?;
        text.hash(&mut hasher);
    }
    let dir = cache_dir().join("lab");
    let program = dir.join(format!("{name}-{:016x}", hasher.finish()));
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&dir).map_err(LabError::file("making", &dir))?;
    let temporary = dir.join(format!("{name}-{}.new", std::process::id()));
    let output = Command::new(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&temporary)
        .args(sources)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| LabError::program(compiler, format!("{e}; install gcc and g++")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|l| l.contains("error"));
        let line = line.or(text.lines().next()).unwrap_or("no message");
        return Err(LabError::program(compiler, format!("{name}: {line}")));
    }
    fs::rename(&temporary, &program).map_err(LabError::file("writing", &program))?;
    Ok(program)
}
