//! `onbeat report`: writes a model as one HTML page.

mod pages;

use crate::late::{self, Wanted};
use onbeat_document::schema::Chain;
use onbeat_document::Model;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use onbeat_views::report::{ProcessNames, Recordings};
use std::io::Write as _;
use std::path::PathBuf;

/// Write a report of a model: one HTML file that loads nothing from elsewhere
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat report
  onbeat report model.json --trace trace
  onbeat report model.json -o parking.html --title 'Parking demo'
  onbeat report model.json --trace trace --pages   with a page for each chain in report.why/

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model has no callback.")]
pub struct Args {
    /// Model file [default: model.json]
    #[arg(
        value_name = "MODEL",
        default_value = "model.json",
        hide_default_value = true
    )]
    pub model: PathBuf,
    /// File to write the result to ('-': standard output)
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    pub output: PathBuf,
    /// Add the recorder's own figures from these trace directories, what the late executions of
    /// each chain have in common, and the causes of losses. Name the traces from which the model
    /// was made
    #[arg(long, value_name = "TRACE")]
    pub trace: Vec<PathBuf>,
    /// Write the page of `onbeat why` for each of the 20 slowest chains into a directory beside the
    /// report, and link the pages. Needs exactly one --trace. The pages have the 1000 longest
    /// executions of their chains
    #[arg(long, requires = "trace")]
    pub pages: bool,
    /// Show whole command lines of processes, which may contain secrets [default: program names]
    #[arg(long, requires = "trace")]
    pub command_lines: bool,
    /// Title of the report [default: the model's file name]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let model = files::load_model(&args.model, "`onbeat report`")?;
    let title = args.title.clone().unwrap_or_else(|| {
        args.model
            .file_stem()
            .map_or("model".into(), |n| n.to_string_lossy().into_owned())
    });
    let directory = args.pages.then(|| pages::directory(&args)).transpose()?;
    let mut recordings = Vec::new();
    for path in &args.trace {
        let reader = files::open_trace(path, "--trace", "")?;
        recordings.push(reader.manifest().clone());
    }
    let (late, pages) = match &directory {
        Some(directory) => pages::write(&model, &args.trace[0], directory)?,
        None => (late(&model, &args.trace)?, Vec::new()),
    };
    let lost = lost(&args.trace)?;
    let process_names = if args.command_lines {
        ProcessNames::CommandLines
    } else {
        ProcessNames::Programs
    };
    let recordings = Recordings {
        manifests: &recordings,
        process_names,
        late: &late,
        pages: &pages,
        lost: &lost,
    };
    let page = onbeat_views::report::html(&model, &title, recordings);
    files::write_whole(&args.output, |out| out.write_all(page.as_bytes()))?;
    if args.output.as_os_str() != "-" {
        let _ = writeln!(std::io::stderr(), "{}", args.output.display());
    }
    Ok(ExitStatus::of_model(&model))
}

fn lost(traces: &[PathBuf]) -> Result<Vec<String>, CliError> {
    let mut all = Vec::new();
    for path in traces {
        let losses = late::losses(path, "--trace")?;
        let topics = losses.topics.iter().flat_map(|t| t.sentences());
        let services = losses.services.iter().flat_map(|s| s.sentences());
        all.extend(topics.chain(services).map(|said| match traces.len() {
            1 => said,
            _ => format!("{}: {said}", path.display()),
        }));
    }
    Ok(all)
}

fn late(model: &Model, traces: &[PathBuf]) -> Result<Vec<(String, String)>, CliError> {
    let wanted = |c: &Chain| Wanted {
        id: c.id.clone(),
        over_ns: None,
        kept: 0,
    };
    let wanted: Vec<Wanted> = model.chains.iter().map(wanted).collect();
    let mut all = Vec::new();
    for path in traces {
        let said = late::sentences(path, "--trace", &wanted)?;
        for (chain, said) in wanted.iter().zip(said) {
            let Some(said) = said else { continue };
            let said = match traces.len() {
                1 => said,
                _ => format!("{}: {said}", path.display()),
            };
            all.push((chain.id.clone(), said));
        }
    }
    Ok(all)
}
