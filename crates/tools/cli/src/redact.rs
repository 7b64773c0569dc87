//! `onbeat redact`: removes the names and the structure from a model that its owner keeps secret.

use onbeat_redact::{Key, Policy, Redacted};
use onbeat_terminal::CliError;
use onbeat_terminal::{files, term, ExitStatus};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Hide the names and structure of a model, except for an interface
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  head -c 32 /dev/urandom > redact.key
  onbeat model trace --policy policy.yaml -o model.json      measures the hidden parts, too
  onbeat redact model.json --policy policy.yaml --key redact.key -o out.json
  onbeat check out.json requirements.yaml

policy.yaml:
  visible:
    topics: [/points, /trajectory]
    nodes: [/driver]

Everything that the policy does not name is hidden: names are replaced, and hidden callbacks between
visible topics become parts with their timing. Under one key a name always becomes the same name.
Keep the key secret: with it, names can be guessed and tested. docs/how-to/redact.md lists what is
left of a model.

Exit codes: 0 done; 1 failed, nothing was written; 2 wrong command line; 3 done, but nothing is
left.")]
pub struct Args {
    /// Model file, made by onbeat model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Policy file: the names that stay visible
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Key file for the new names, 16 bytes or more. Without this option, onbeat uses a random key
    /// and does not store it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// File to write the result to ('-': standard output)
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

const MOST_KEY: usize = 4096;

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let model = files::load_model(&args.model, "`onbeat redact`")?;
    let policy = read_policy(&args.policy)?;
    let key = key(args.key.as_deref())?;
    let redacted = onbeat_redact::redact(&model, &policy, &key).map_err(CliError::failed)?;
    for name in &redacted.unknown {
        let line = format!(
            "{}: '{name}' does not occur in the model",
            args.policy.display()
        );
        let _ = writeln!(io::stderr(), "onbeat: warning: {}", term::one_line(&line));
    }
    files::write_model(&args.output, &redacted.model)?;
    let said = said(&args, &model, &redacted);
    match args.output.as_os_str() == "-" {
        true => io::stderr().write_all(said.as_bytes()),
        false => io::stdout().write_all(said.as_bytes()),
    }
    .map_err(CliError::Stdout)?;
    Ok(ExitStatus::of_model(&redacted.model))
}

pub fn read_policy(path: &Path) -> Result<Policy, CliError> {
    let bytes = files::read_at_most(path, onbeat_redact::MAX_BYTES)?;
    onbeat_redact::read(&bytes).map_err(CliError::in_file(path))
}

fn key(path: Option<&Path>) -> Result<Key, CliError> {
    let (path, bytes) = match path {
        Some(path) => (path, files::read_at_most(path, MOST_KEY)?),
        None => {
            let path = Path::new("/dev/urandom");
            let mut bytes = vec![0; 32];
            let read = File::open(path).and_then(|mut f| f.read_exact(&mut bytes));
            read.map_err(|source| CliError::Read {
                path: path.into(),
                source,
            })?;
            (path, bytes)
        }
    };
    if bytes.len() > MOST_KEY {
        let why = format!("a key has at most {MOST_KEY} bytes");
        return Err(CliError::in_file(path)(why));
    }
    Key::new(&bytes).map_err(CliError::in_file(path))
}

fn said(args: &Args, model: &onbeat_document::Model, redacted: &Redacted) -> String {
    let name = |path: &Path| term::one_line(&path.display().to_string());
    let mut said = format!(
        "{file}: {hidden} of {callbacks} callbacks hidden; the redacted model has {left} callbacks (with parts), and {chains_left} of {chains} chains\n",
        file = name(&args.output),
        hidden = redacted.hidden,
        callbacks = model.callbacks.len(),
        left = redacted.model.callbacks.len(),
        chains_left = redacted.model.chains.len(),
        chains = model.chains.len()
    );
    if redacted.unmeasured > 0 {
        said += &format!(
            "{} paths through hidden parts have no distribution of their latency. Measure this latency with `onbeat model TRACE --policy {}`\n",
            redacted.unmeasured,
            name(&args.policy)
        );
    }
    if args.key.is_none() {
        said +=
            "The names were made with a new key, which is not kept. Use --key if the names of several models must agree.\n";
    }
    said
}
