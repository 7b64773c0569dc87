//! Runs a program from its start to its exit code. It gives up rights first, then reads its
//! arguments, then carries out the command.

use crate::{term, CliError};
use clap::Parser;
use std::ffi::{CString, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// The version of onbeat's programs. The programs work together only if their versions are equal.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The result of a command that did not fail.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Success,
    /// The trace or the model contains nothing to show. Exit code 3.
    NothingFound,
    /// A promise of the plan was broken, or a requirement violated. Exit code 5.
    PromiseBroken,
    /// The models do not have enough data to decide a requirement or a comparison. Exit code 6.
    NotKnown,
    /// The two models or recordings differ. Exit code 7.
    Changed,
    /// The command that onbeat recorded or shaped ended with this exit code.
    Command(i32),
}

impl ExitStatus {
    /// Returns [`ExitStatus::NothingFound`] for a model without callbacks, otherwise
    /// [`ExitStatus::Success`].
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

/// Runs a program and returns its exit code. First calls `confine`, which gives up rights, then
/// parses `words`, then calls `command`. Prints an error on one line of standard error.
pub fn run<W: Parser>(
    words: Vec<OsString>,
    confine: impl FnOnce() -> io::Result<()>,
    command: impl FnOnce(W) -> Result<ExitStatus, CliError>,
) -> ExitCode {
    let say = |text: &str| {
        let _ = writeln!(io::stderr(), "onbeat: {text}");
    };
    // With a set-user-id bit, the program would read, write and start commands with the rights of
    // its file's owner, on behalf of whoever called it.
    if onbeat_rights::is_between_users() {
        say(
            "onbeat does not run while its file has a set-user-id or set-group-id bit. Remove this \
             bit (chmod ug-s), then use sudo, or give capabilities to a group (docs/security.md)",
        );
        return ExitCode::from(4);
    }
    if let Err(error) = confine() {
        say(&format!(
            "cannot give up capabilities: {error}. Check for a filter on system calls"
        ));
        return ExitCode::FAILURE;
    }
    onbeat_rights::forget_environment();
    match command(W::parse_from(words)) {
        Ok(status) => status.code(),
        // The reader of the output has closed it (`onbeat show | head`). This is not a failure of
        // the command.
        Err(e) if e.is_broken_pipe() => ExitCode::SUCCESS,
        Err(e) => {
            say(&term::one_line(&e.to_string()));
            ExitCode::from(e.exit_code())
        }
    }
}

/// Runs the program `onbeat-NAME`, which carries out the command `onbeat NAME`. `W` parses the
/// words of the whole command, `onbeat NAME ...`, so help and errors show the command as the user
/// typed it.
///
/// `given` are the words of the process's command line. Its first word is the name under which the
/// program was started. `names` are the commands that the program carries out. The name of the program contains the
/// first of these commands. For another command, `onbeat` starts the program under the name
/// `onbeat-COMMAND`. `confine` gives up the rights that the command with the given name does not
/// need.
///
/// If the program is started directly with `--version`, it prints its version, which `onbeat`
/// compares with its own.
pub fn helper<W: Parser>(
    given: Vec<OsString>,
    names: &[&str],
    confine: impl FnOnce(&str) -> io::Result<()>,
    command: impl FnOnce(W) -> Result<ExitStatus, CliError>,
) -> ExitCode {
    let first = names.first().copied().unwrap_or_default();
    let own = format!("onbeat-{first}");
    let mut given = given.into_iter();
    let called = given.next().unwrap_or_default();
    let rest: Vec<OsString> = given.collect();
    // The program was started from a file descriptor. Until here its name is the descriptor's
    // number.
    if let Ok(text) = CString::new(own.as_str()) {
        let _ = rustix::thread::set_name(&text);
    }
    if Path::new(&called).file_name().is_some_and(|n| *n == *own) && rest == ["--version"] {
        return match writeln!(io::stdout(), "{own} {VERSION}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let mut others = names.iter().skip(1);
    let other = others.find(|other| called == *format!("onbeat-{other}"));
    let name = other.copied().unwrap_or(first);
    let words = ["onbeat", name].map(OsString::from).into_iter();
    run(words.chain(rest).collect(), || confine(name), command)
}
