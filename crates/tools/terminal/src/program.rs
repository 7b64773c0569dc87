//! A program's way from its start to its exit code: rights first, then words, then the command.

use crate::{term, CliError};
use clap::Parser;
use std::ffi::{CString, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// The version of all programs of onbeat: they work together only if it is the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How a command ended when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Exit code 0.
    Success,
    /// Exit code 3: there was nothing in the trace or the model.
    NothingFound,
    /// Exit code 5: a promise of the plan was broken, or a requirement violated.
    PromiseBroken,
    /// Exit code 6: the model does not tell of a requirement; two models tell nothing of a change.
    NotKnown,
    /// Exit code 7: two models differ.
    Changed,
    /// The exit code of the command that was recorded or shaped.
    Command(i32),
}

impl ExitStatus {
    /// The status of a command that makes or shows something of this model.
    pub fn of_model(model: &onbeat_document::Model) -> ExitStatus {
        if model.callbacks.is_empty() {
            ExitStatus::NothingFound
        } else {
            ExitStatus::Success
        }
    }

    fn code(self) -> ExitCode {
        match self {
            ExitStatus::Success => ExitCode::SUCCESS,
            ExitStatus::NothingFound => ExitCode::from(3),
            ExitStatus::PromiseBroken => ExitCode::from(5),
            ExitStatus::NotKnown => ExitCode::from(6),
            ExitStatus::Changed => ExitCode::from(7),
            ExitStatus::Command(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        }
    }
}

/// Runs a program: gives up rights with `confine` before anything is read, reads `words`, carries the
/// command out with `command`, and prints an error in one line.
pub fn run<W: Parser>(
    words: Vec<OsString>,
    confine: impl FnOnce() -> io::Result<()>,
    command: impl FnOnce(W) -> Result<ExitStatus, CliError>,
) -> ExitCode {
    let say = |text: &str| {
        let _ = writeln!(io::stderr(), "onbeat: {text}");
    };
    // Who it acts for is not who called it: it would read, write and start commands as one of them
    // for the other.
    if onbeat_rights::is_between_users() {
        say(
            "its file has a set-user-id or set-group-id bit, with which it does not run: take \
             it away (chmod ug-s), then use sudo, or give capabilities to a group (docs/security.md)",
        );
        return ExitCode::from(4);
    }
    if let Err(error) = confine() {
        say(&format!(
            "cannot give up capabilities: {error}: is there a filter on system calls?"
        ));
        return ExitCode::FAILURE;
    }
    onbeat_rights::forget_environment();
    match command(W::parse_from(words)) {
        Ok(status) => status.code(),
        // The reader of the output went away (`onbeat show | head`): no failure of this command.
        Err(e) if e.is_broken_pipe() => ExitCode::SUCCESS,
        Err(e) => {
            say(&term::one_line(&e.to_string()));
            ExitCode::from(e.exit_code())
        }
    }
}

/// Runs the program `onbeat-NAME`, which carries out `onbeat NAME`. `W` reads the words of the whole
/// command, `onbeat NAME ...`, so that help and errors show it as it is typed.
///
/// Called by its own name with `--version`, it prints what `onbeat` compares with its own version.
pub fn helper<W: Parser>(
    name: &str,
    confine: impl FnOnce() -> io::Result<()>,
    command: impl FnOnce(W) -> Result<ExitStatus, CliError>,
) -> ExitCode {
    let own = format!("onbeat-{name}");
    let mut given = std::env::args_os();
    let called = given.next().unwrap_or_default();
    let rest: Vec<OsString> = given.collect();
    // It was started from a descriptor, whose number is its name until here.
    if let Ok(text) = CString::new(own.as_str()) {
        let _ = rustix::thread::set_name(&text);
    }
    if Path::new(&called).file_name().is_some_and(|n| *n == *own) && rest == ["--version"] {
        return match writeln!(io::stdout(), "{own} {VERSION}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let words = ["onbeat", name].map(OsString::from).into_iter();
    run(words.chain(rest).collect(), confine, command)
}
