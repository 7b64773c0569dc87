//! `onbeat-store`: the program behind `onbeat store`, which keeps traces and models of many runs in
//! one place, and behind `onbeat export --to parquet`.

mod parquet;
mod show;
mod tables;

use onbeat_store::{Id, Kind, Query, Store, StoreError};
use onbeat_terminal::units::parse_duration;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, summary, term, ExitStatus};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Keep traces and models of many runs: query them, and merge each new run at little cost.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat store init runs
  onbeat store put runs model.json trace --build 1.4.2
  onbeat store list runs --build 1.4.2 --mode urban --from 2026-11-01
  onbeat store merge runs --build 1.4.2 -o all.json      reads new models and earlier merges
  onbeat store get runs 4f1c2a -o model.json
  onbeat store check runs
  onbeat store list s3://robots/runs                     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
                                                         AWS_REGION or AWS_ENDPOINT_URL are set

The index, and figures of callbacks, edges and chains, are Parquet files: DuckDB, pandas and others
read them without onbeat (docs/store-format.md).

Exit codes: 0 done; 1 failed, or `check` found damage; 2 wrong command line; 3 nothing fits.")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a store in an empty directory, or below an unused prefix of a bucket
    Init {
        /// Directory, or s3://BUCKET/PREFIX
        store: String,
    },
    Put(PutArgs),
    List(ListArgs),
    Get(GetArgs),
    Merge(MergeArgs),
    Tidy(TidyArgs),
    /// Read every object in the store and compare it with its id; exit code 1 if one is damaged
    Check {
        /// Directory, or s3://BUCKET/PREFIX
        store: String,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    #[command(hide = true)]
    Parquet(parquet::Args),
    #[command(hide = true)]
    Tables(tables::Args),
}

/// Put models and traces into a store; putting the same file again changes nothing
#[derive(clap::Args)]
struct PutArgs {
    /// Directory, or s3://BUCKET/PREFIX
    store: String,
    /// Model files and trace directories
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name of the build that was recorded, for example a version or a commit
    #[arg(long, value_name = "NAME", default_value = "")]
    build: String,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Which {
    /// Select only runs of this build; repeatable
    #[arg(long = "build", value_name = "NAME")]
    builds: Vec<String>,
    /// Select only runs of this mode; repeatable
    #[arg(long = "mode", value_name = "NAME")]
    modes: Vec<String>,
    /// Select only runs of this host; repeatable
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Select only runs that started at this time or later: 2026-11-24, 2026-11-24T15:00 (UTC)
    #[arg(long, value_name = "TIME", value_parser = onbeat_terminal::date::parse)]
    from: Option<u64>,
    /// Select only runs that started before this time
    #[arg(long, value_name = "TIME", value_parser = onbeat_terminal::date::parse)]
    to: Option<u64>,
    /// Leave out the object whose id begins with these digits
    #[arg(long, value_name = "OBJECT")]
    without: Vec<String>,
}

/// Show the content of a store, one line for each run
#[derive(clap::Args)]
struct ListArgs {
    /// Directory, or s3://BUCKET/PREFIX
    store: String,
    #[command(flatten)]
    which: Which,
    /// Select only models, or only traces
    #[arg(long, value_name = "KIND", value_parser = ["model", "trace"])]
    kind: Option<String>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Get a model or a trace out of a store
#[derive(clap::Args)]
struct GetArgs {
    /// Directory, or s3://BUCKET/PREFIX
    store: String,
    /// First digits of the object's id; `list` shows the ids
    object: String,
    /// File for the model, or new directory for the trace
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
}

/// Merge all selected models, and reuse earlier merges
#[derive(clap::Args)]
#[command(after_help = "\
The result equals that of `onbeat merge` over the same models, byte for byte. Intermediate merges
are kept in the store and reused. The command names each damaged model and leaves it out.")]
struct MergeArgs {
    /// Directory, or s3://BUCKET/PREFIX
    store: String,
    #[command(flatten)]
    which: Which,
    /// File to write ('-': standard output)
    #[arg(short, long, default_value = "merged.json", value_name = "FILE")]
    output: PathBuf,
}

/// Join the index into one file, and remove old merges and the leftovers of killed writers
#[derive(clap::Args)]
struct TidyArgs {
    /// Directory, or s3://BUCKET/PREFIX
    store: String,
    /// Keep merges that are younger than this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "720h")]
    keep: Duration,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

struct Failed(CliError);

impl From<CliError> for Failed {
    fn from(error: CliError) -> Failed {
        Failed(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed(CliError::failed(error))
    }
}

#[derive(clap::Parser)]
#[command(name = "onbeat", max_term_width = 100)]
enum Words {
    Store(Args),
}

/// Runs the program with these words of its command line. The first word is the name under which
/// `onbeat` started it.
pub fn main(words: Vec<OsString>) -> ExitCode {
    let confine = || onbeat_rights::give_up(&[]);
    onbeat_terminal::helper(
        words,
        &["store"],
        |_| confine(),
        |Words::Store(args)| run(args).map_err(|failed| failed.0),
    )
}

fn run(args: Args) -> Result<ExitStatus, Failed> {
    match args.command {
        Command::Init { store } => init(&store),
        Command::Put(args) => put(args),
        Command::List(args) => list(args),
        Command::Get(args) => get(args),
        Command::Merge(args) => merge(args),
        Command::Tidy(args) => tidy(args),
        Command::Check { store, json } => check(&store, json),
        Command::Parquet(args) => Ok(parquet::run(args)?),
        Command::Tables(args) => Ok(tables::run(args)?),
    }
}

fn say(line: &str) -> Result<(), CliError> {
    writeln!(io::stdout(), "{}", term::one_line(line)).map_err(CliError::Stdout)
}

fn warn(lines: &[String]) {
    for line in lines {
        let _ = writeln!(io::stderr(), "onbeat: warning: {}", term::one_line(line));
    }
}

fn init(place: &str) -> Result<ExitStatus, Failed> {
    match Store::init(place)? {
        true => say(&format!("{place}: created an empty store"))?,
        false => say(&format!("{place}: already a store, nothing changed"))?,
    }
    Ok(ExitStatus::Success)
}

fn put(args: PutArgs) -> Result<ExitStatus, Failed> {
    let store = Store::open(&args.store)?;
    let paths: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let mut progress = onbeat_terminal::progress::Progress::new("putting");
    let mut count = 0;
    let all = onbeat_store::put(&store, &paths, &args.build, |_| {
        count += 1;
        progress.count(count, paths.len(), "files");
    })?;
    drop(progress);
    match args.json {
        true => term::write_json(&mut io::stdout().lock(), &all)?,
        false => show::put(&paths, &all)?,
    }
    Ok(ExitStatus::Success)
}

fn query(
    store: &Store,
    index: &onbeat_store::Index,
    which: &Which,
    kind: Option<Kind>,
) -> Result<Query, StoreError> {
    let without: Result<Vec<Id>, StoreError> = which
        .without
        .iter()
        .map(|begin| store.find(index, begin))
        .collect();
    Ok(Query {
        kind,
        builds: which.builds.clone(),
        modes: which.modes.clone(),
        hosts: which.hosts.clone(),
        from_ns: which.from,
        to_ns: which.to,
        without: without?,
    })
}

fn list(args: ListArgs) -> Result<ExitStatus, Failed> {
    let store = Store::open(&args.store)?;
    let index = store.index()?;
    warn(&index.damaged);
    let kind = args.kind.as_deref().and_then(Kind::parse);
    let found = query(&store, &index, &args.which, kind)?.of(&index.rows);
    match args.json {
        true => term::write_json(&mut io::stdout().lock(), &found)?,
        false => show::found(&found)?,
    }
    Ok(match found.rows.is_empty() {
        true => ExitStatus::NothingFound,
        false => ExitStatus::Success,
    })
}

fn get(args: GetArgs) -> Result<ExitStatus, Failed> {
    let store = Store::open(&args.store)?;
    let index = store.index()?;
    warn(&index.damaged);
    let object = store.find(&index, &args.object)?;
    let row = index.rows.iter().find(|r| r.object == object);
    let kind = row.map_or(Kind::Model, |r| r.kind);
    let got = onbeat_store::get(&store, object, kind, &args.output)?;
    let (name, kind) = (args.output.display(), got.kind.word());
    say(&format!(
        "{name}: {kind} {}, {} files, {} bytes",
        object.short(),
        got.files,
        got.bytes
    ))?;
    Ok(ExitStatus::Success)
}

fn merge(args: MergeArgs) -> Result<ExitStatus, Failed> {
    let store = Store::open(&args.store)?;
    let index = store.index()?;
    warn(&index.damaged);
    let found = query(&store, &index, &args.which, Some(Kind::Model))?.of(&index.rows);
    let merged = onbeat_store::merge(&store, &found)?;
    warn(&merged.damaged);
    if let Some(why) = &merged.not_kept {
        warn(&[format!("merges are not kept for later use: {why}")]);
    }
    show::merged(&found, &merged)?;
    let Some(model) = &merged.model else {
        return Ok(ExitStatus::NothingFound);
    };
    files::write_model(&args.output, model)?;
    summary::print(&args.output, model)?;
    Ok(ExitStatus::of_model(model))
}

fn tidy(args: TidyArgs) -> Result<ExitStatus, Failed> {
    let store = Store::open(&args.store)?;
    let tidied = onbeat_store::tidy(&store, args.keep)?;
    warn(&tidied.damaged);
    match args.json {
        true => term::write_json(&mut io::stdout().lock(), &tidied)?,
        false => say(&format!(
            "index: {} parts now, {} parts before; removed: {} unused files and {} old merges ({} bytes)",
            tidied.parts_after,
            tidied.parts_before,
            tidied.removed,
            tidied.merges_removed,
            tidied.bytes
        ))?,
    }
    Ok(ExitStatus::Success)
}

fn check(place: &str, json: bool) -> Result<ExitStatus, Failed> {
    let store = Store::open(place)?;
    let checked = onbeat_store::check(&store)?;
    match json {
        true => term::write_json(&mut io::stdout().lock(), &checked)?,
        false => {
            warn(&checked.damaged);
            say(&format!(
                "{} models and {} traces in the store; {} objects read; {} damaged files",
                checked.models,
                checked.traces,
                checked.objects,
                checked.damaged.len()
            ))?;
        }
    }
    match checked.damaged.len() {
        0 => Ok(ExitStatus::Success),
        n => Err(Failed(CliError::Failed(format!(
            "damaged files in {place}: {n}. Put the models and traces of these files into the \
             store again, or use the rest of the store: other commands leave damaged files out."
        )))),
    }
}
