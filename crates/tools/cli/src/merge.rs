//! `onbeat merge`: merges the models of several runs into one.

use onbeat_document::merge::Merger;
use onbeat_terminal::progress::Progress;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, summary, ExitStatus};
use std::path::PathBuf;

/// Merge the models of several runs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat merge run1.json run2.json -o all.json
  onbeat merge urban*.json highway*.json -o all.json   modes stay apart inside the model
  onbeat merge all.json --only-mode urban -o urban.json
  find fleet -name '*.json' | onbeat merge --list - -o all.json

The result is the same as that of one `onbeat model` for all traces: the same bytes, in any order
and with any models merged before. One model is read at a time.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model has no callback.")]
pub struct Args {
    /// Model files to merge, made by onbeat model or onbeat merge
    #[arg(required_unless_present = "list", value_name = "MODEL")]
    pub models: Vec<PathBuf>,
    /// Read the names of more model files from this file, one per line ('-': standard input)
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// File to write the result to ('-': standard output)
    #[arg(short, long, default_value = "merged.json", value_name = "FILE")]
    pub output: PathBuf,
    /// Write JSON without white space. Use it for intermediate results that are merged again
    #[arg(long)]
    pub compact: bool,
    /// Set the mode of all merged runs, for example urban
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Keep only the runs in this mode in the merged model
    #[arg(long, value_name = "NAME")]
    pub only_mode: Option<String>,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let mut models = args.models.clone();
    if let Some(list) = &args.list {
        models.extend(files::read_list(list)?);
    }
    let mut merger = Merger::default();
    let mut progress = Progress::new("onbeat merge");
    for (done, path) in models.iter().enumerate() {
        let model = files::load_model(path, "`onbeat merge`")?;
        merger.add(model).map_err(CliError::in_file(path))?;
        progress.count(done + 1, models.len(), "models");
    }
    let mut model = merger.finish()?;
    if let Some(mode) = &args.only_mode {
        model = onbeat_document::merge::filter_mode(model, mode)?;
    }
    if let Some(mode) = &args.mode {
        model = onbeat_document::merge::set_mode(model, mode)?;
    }
    if args.compact {
        files::write_part(&args.output, &model)?;
    } else {
        files::write_model(&args.output, &model)?;
    }
    summary::print(&args.output, &model)?;
    Ok(ExitStatus::of_model(&model))
}
