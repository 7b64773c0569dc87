//! `onbeat merge`: models of several runs to one.

use crate::error::CliError;
use crate::{files, Outcome};
use std::io;
use std::path::PathBuf;

/// Put the models of several runs together.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat merge run1.json run2.json -o all.json
  onbeat merge urban*.json highway*.json -o all.json   modes stay apart inside the model
  onbeat merge all.json --only-mode urban -o urban.json

Merging models gives the same as one `onbeat model` of all their traces, in any order.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model holds no callback.")]
pub struct Args {
    /// Model files
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<PathBuf>,
    /// File to write ('-': standard output)
    #[arg(short, long, default_value = "merged.json", value_name = "FILE")]
    pub output: PathBuf,
    /// Take all runs as of this mode
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Keep only the runs of this mode
    #[arg(long, value_name = "NAME")]
    pub only_mode: Option<String>,
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    let mut models = Vec::new();
    for path in &args.models {
        models.push(files::load_model(path, "`onbeat merge`")?);
    }
    let mut model = onbeat_model::merge::merge(models)?;
    if let Some(mode) = &args.only_mode {
        model = onbeat_model::merge::filter_mode(model, mode)?;
    }
    if let Some(mode) = &args.mode {
        model = onbeat_model::merge::set_mode(model, mode)?;
    }
    files::write_model(&args.output, &model)?;
    if args.output.as_os_str() == "-" {
        crate::model::summary(&mut io::stderr(), &args.output, &model)
    } else {
        crate::model::summary(&mut io::stdout(), &args.output, &model)
    }
    .map_err(CliError::Stdout)?;
    Ok(if model.callbacks.is_empty() {
        Outcome::NothingFound
    } else {
        Outcome::Done
    })
}
