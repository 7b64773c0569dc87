//! Starts the separate programs that carry out some commands.
//!
//! Commands that need large libraries (databases, TLS, parsers of foreign formats) are programs of
//! their own, because `onbeat` runs as root and must not contain these. `onbeat NAME ...` becomes
//! the process `onbeat-NAME`, which gets the arguments and signals and gives the exit code.
//!
//! The program's file is opened once, checked, and started through the same descriptor, so nobody
//! can replace it in between. If this process has more rights than its caller, the program must be
//! in the directory of `onbeat`. It must belong to root or to the owner of `onbeat`, and nobody
//! else may be able to write to it.
//!
//! With the feature `whole`, `onbeat` contains these programs and carries out their commands itself.

use onbeat_files::{Directory, Meta};
use onbeat_terminal::{CliError, VERSION};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Link,
    Replay,
    /// The command that lists the contents of recordings. `onbeat-replay` carries it out, because
    /// it knows the formats.
    Info,
    Compare,
    Convert,
    /// The command that imports traces of other tracers. `onbeat-replay` carries it out, because it
    /// has the parsers of foreign formats.
    Import,
    Store,
    Top,
    Monitor,
}

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Program {
    pub fn of_command(name: &OsStr) -> Option<Program> {
        [
            Program::Link,
            Program::Replay,
            Program::Info,
            Program::Compare,
            Program::Convert,
            Program::Import,
            Program::Store,
            Program::Top,
            Program::Monitor,
        ]
        .into_iter()
        .find(|program| name == program.command())
    }

    fn command(self) -> &'static str {
        match self {
            Program::Link => "link",
            Program::Replay => "replay",
            Program::Info => "info",
            Program::Compare => "compare",
            Program::Convert => "convert",
            Program::Import => "import",
            Program::Store => "store",
            Program::Top => "top",
            Program::Monitor => "monitor",
        }
    }

    fn file_name(self) -> String {
        match self {
            Program::Info | Program::Compare | Program::Convert | Program::Import => {
                Program::Replay.file_name()
            }
            _ => format!("onbeat-{}", self.command()),
        }
    }

    fn called(self) -> &'static str {
        match self {
            Program::Info => "onbeat-info",
            Program::Compare => "onbeat-compare",
            Program::Convert => "onbeat-convert",
            Program::Import => "onbeat-import",
            _ => "onbeat",
        }
    }

    /// Runs the program in this process. `words` are the words after the command.
    #[cfg(feature = "whole")]
    pub fn run(self, words: impl IntoIterator<Item = OsString>) -> std::process::ExitCode {
        // A separate program does not inherit the capabilities of the file of `onbeat`.
        let has_capabilities = onbeat_rights::is_elevated() && !onbeat_rights::is_root();
        if has_capabilities {
            if let Err(error) = onbeat_rights::give_up(&[]) {
                eprintln!(
                    "onbeat: cannot give up capabilities: {error}. Check for a filter on system calls"
                );
                return std::process::ExitCode::FAILURE;
            }
        }
        let given = std::iter::once(self.called().into()).chain(words).collect();
        match self {
            Program::Link => onbeat_link_cli::main(given),
            Program::Store => onbeat_store_cli::main(given),
            Program::Top => onbeat_top_cli::main(given),
            Program::Monitor => onbeat_monitor_cli::main(given),
            Program::Replay
            | Program::Info
            | Program::Compare
            | Program::Convert
            | Program::Import => onbeat_replay_cli::main(given),
        }
    }

    /// Replaces this process with the program. Returns only if this fails.
    pub fn become_it(self, words: impl IntoIterator<Item = OsString>) -> CliError {
        if cfg!(feature = "whole") {
            let mut own = Command::new("/proc/self/exe");
            let error = own.arg0("onbeat").arg(self.command()).args(words).exec();
            return CliError::failed(format!("onbeat cannot start itself: {error}"));
        }
        match self.find().and_then(|found| self.check_version(found)) {
            Ok(found) => {
                let error = found.started_as(self.called()).args(words).exec();
                found.refused(&format!("the program cannot be started ({error})"))
            }
            Err(error) => error,
        }
    }

    /// Opens the program's file in the directory of this process's own program. A process without
    /// extra rights also searches PATH.
    fn find(self) -> Result<Found, CliError> {
        let own = std::env::current_exe().map_err(|source| CliError::Read {
            path: "/proc/self/exe".into(),
            source,
        })?;
        let directory = own.parent().unwrap_or(Path::new("/"));
        let has_rights = onbeat_rights::is_root() || onbeat_rights::is_elevated();
        let name = self.file_name();
        if has_rights {
            return match open_trusted(directory, &name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Err(self.missing(directory)),
                Err(why) => Err(refused(&directory.join(&name), &why.to_string())),
                Ok(file) => Ok(Found {
                    path: directory.join(&name),
                    file,
                }),
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::iter::once(directory.to_path_buf())
            .chain(std::env::split_paths(&path).filter(|at| at.is_absolute()))
            .find_map(|at| Found::open(at.join(&name)))
            .ok_or_else(|| self.missing(directory))
    }

    fn missing(self, directory: &Path) -> CliError {
        CliError::Failed(format!(
            "{} is missing in {}. Install the program in this directory: it comes with onbeat {VERSION}",
            self.file_name(),
            directory.display(),
        ))
    }

    fn check_version(self, found: Found) -> Result<Found, CliError> {
        let name = self.file_name();
        let mut asked = found.started_as(&name);
        asked.arg("--version").stdin(Stdio::null());
        let answer = asked.stderr(Stdio::null()).output();
        let answer =
            answer.map_err(|e| found.refused(&format!("the program cannot be started ({e})")))?;
        let said = String::from_utf8_lossy(&answer.stdout);
        let said = said.lines().next().unwrap_or_default();
        match said.strip_prefix(name.as_str()).map(str::trim) {
            Some(VERSION) => Ok(found),
            Some(other) => Err(found.refused(&format!(
                "the program has version {other}, and onbeat has {VERSION}"
            ))),
            None => Err(found.refused("the program does not report its version")),
        }
    }
}

fn refused(path: &Path, why: &str) -> CliError {
    CliError::Failed(format!(
        "{} is not started: {why}. Install the program again beside onbeat",
        path.display()
    ))
}

struct Found {
    path: PathBuf,
    file: File,
}

impl Found {
    fn open(path: PathBuf) -> Option<Found> {
        let directory = Directory::open(path.parent()?).ok()?;
        let file = directory.open_program(path.file_name()?, true).ok()?;
        Meta::of(&file)
            .ok()?
            .is_file
            .then_some(Found { path, file })
    }

    fn refused(&self, why: &str) -> CliError {
        refused(&self.path, why)
    }

    fn started_as(&self, name: &str) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0(name);
        command
    }
}

/// Opens a program that may get the rights of this process. Refuses a file that other users may
/// change.
fn open_trusted(directory: &Path, name: &str) -> io::Result<File> {
    let denied = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let own = Meta::of(File::open("/proc/self/exe")?)?;
    let belongs = |meta: &Meta| meta.uid == 0 || meta.uid == own.uid;
    let directory = Directory::open(directory)?;
    let above = directory.meta()?;
    // The group may have write access: members of the group of /usr/local/bin could replace
    // `onbeat` itself, too.
    if !belongs(&above) || above.mode & 0o002 != 0 {
        return Err(denied(
            "everybody, or another user, can write to the program's directory".into(),
        ));
    }
    let file = directory.open_program(name, false)?;
    let meta = Meta::of(&file)?;
    if !meta.is_file {
        return Err(denied("the file is not a regular file".into()));
    }
    if !belongs(&meta) {
        return Err(denied(format!("the file belongs to user {}", meta.uid)));
    }
    if meta.others_may_write() {
        return Err(denied("other users can write to the file".into()));
    }
    Ok(file)
}
