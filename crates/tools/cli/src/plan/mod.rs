//! `onbeat plan`: makes the plan of a chain, compares strategies, or checks a plan file.

mod request;
pub(crate) mod show;

use onbeat_plan::{compare, file, plan, Plan, Request, Strategy};
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use request::RequestArgs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Make a plan for a chain: servers, slots, latency bands, and their promises
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat plan                                           one band for the model's only chain
  onbeat plan model.json --chain 664e --bands auto -o plan.yaml
  onbeat plan model.json --chain 664e --miss 1e-3 --average 6%    by bounds, from many starts
  onbeat plan model.json --chain 664e --compare         what each strategy would promise
  onbeat plan model.json --chain 664e --strategy server-per-callback --cpu 1 --cpu /fusion=2
  onbeat plan model.json --chain 664e --throttle /lidar/points@/rosbag2_player --cycle 100
  onbeat plan model.json --from /lidar --to /objects    a part of a chain (as in the model)
  onbeat plan model.json --chain d060 --beside a.yaml -o b.yaml    another chain, beside a.yaml
  onbeat plan --check plan.yaml                         after editing: is it still valid?

Times are milliseconds. Without --miss the last slot begins 1 % after the slowest execution that
the plan keeps, at least 0.5 ms. The plan says which executions it leaves out. The default of
--slot is the 99th percentile of the time from a publication to its executor, from 0.5 to 2 ms.

Exit codes: 0 done; 1 failed, or no such plan is possible; 2 wrong command line.")]
pub struct Args {
    /// Model file, made by onbeat model
    #[arg(value_name = "MODEL", default_value = "model.json")]
    pub model: PathBuf,
    #[command(flatten)]
    request: RequestArgs,
    /// File to write the result to ('-': standard output)
    #[arg(short, long, value_name = "FILE", default_value = "plan.yaml")]
    pub output: PathBuf,
    /// Write no plan, but show what each strategy would promise
    #[arg(long, conflicts_with_all = ["output", "strategy", "bands", "random", "average"])]
    pub compare: bool,
    /// Make no plan, but check this plan file and show it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "chain", "from", "to", "through", "output"])]
    pub check: Option<PathBuf>,
    /// Print the result as JSON, for programs
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let mut out = BufWriter::new(io::stdout().lock());
    if let Some(path) = &args.check {
        let plan = load(path)?;
        return show::plan(&mut out, &plan, args.json).map(|()| ExitStatus::Success);
    }
    let request = args.request.request()?;
    if let Some(outdated) = args.request.outdated() {
        let _ = writeln!(io::stderr(), "onbeat: warning: {outdated}");
    }
    let model = files::load_model(&args.model, "`onbeat plan`")?;
    if args.compare {
        // The request is checked once here, so that its errors are not repeated for each strategy.
        let mut fifo = Request {
            strategy: Strategy::Fifo,
            ..request.clone()
        };
        fifo.outputs.miss = None;
        plan(&model, &fifo).map_err(CliError::in_file(&args.model))?;
        show::comparison(&mut out, &compare(&model, &request), args.json)?;
        return Ok(ExitStatus::Success);
    }
    let plan = plan(&model, &request).map_err(CliError::in_file(&args.model))?;
    let text = file::write(&plan).map_err(CliError::in_file(&args.output))?;
    files::write_whole(&args.output, |out| out.write_all(text.as_bytes()))?;
    if args.output == Path::new("-") {
        return Ok(ExitStatus::Success);
    }
    show::plan(&mut out, &plan, args.json)?;
    if !args.json {
        let written = format!("written to {}", args.output.display());
        writeln!(out, "{}", onbeat_terminal::term::one_line(&written)).map_err(CliError::Stdout)?;
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(ExitStatus::Success)
}

pub fn load(path: &Path) -> Result<Plan, CliError> {
    let bytes = files::read_at_most(path, file::MAX_BYTES)?;
    file::read(&bytes).map_err(CliError::in_file(path))
}
