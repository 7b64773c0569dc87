//! The options of `onbeat shape`, and the shaper's request made from them.

use crate::limits::LimitArgs;
use onbeat_record::User;
use onbeat_shape::{
    AdaptOptions, ApplicationOptions, Choice, EnforcementOptions, GateKind, HoldAt, ShapeOptions,
};
use onbeat_terminal::units::parse_duration;
use onbeat_terminal::CliError;
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_FIND_WITHIN: Duration = Duration::from_secs(60);
const DEFAULT_DRY_RUN_WITHIN: Duration = Duration::from_secs(10);

/// Run an application under a plan, so that its chain always takes the same time
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo onbeat shape plan.yaml -- ros2 launch my_robot all.launch.py
  sudo onbeat shape plan.yaml                     an application that is already running
  sudo onbeat shape plan.yaml --verify 60s -- python3 app.py
  sudo onbeat shape --status                      the running sessions and their figures
  sudo onbeat shape plan.yaml --dry-run           the planned changes, and the machine's settings
  sudo onbeat shape plan.yaml --adapt -- python3 app.py
  sudo onbeat shape plan.yaml --diagnostics       its status on /diagnostics too
  sudo onbeat shape --reload                      read the running session's plan file again
  sudo onbeat shape plan.yaml --cgroup /sys/fs/cgroup/system.slice/robot.service

The command first records the application. When it has seen every callback of the plan and knows
the period of the first one, it assigns the threads to their servers. Ctrl-C restores everything;
if this command is killed, its guard does so.

With COMMAND, topics that the plan holds back are remapped on its command line (behind
--ros-args). An application that is already running must have been started with these arguments;
--remap prints them.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 nothing was shaped; 4 this kernel or user may
not; 5 --verify: a promise of the plan was broken. With COMMAND: its own code where that is not 0.")]
pub struct Args {
    /// Plan file, made by onbeat plan
    #[arg(value_name = "PLAN", default_value = "plan.yaml")]
    pub plan: PathBuf,
    #[command(flatten)]
    pub end: EndArgs,
    #[command(flatten)]
    pub application: ApplicationArgs,
    #[command(flatten)]
    pub enforcement: EnforcementArgs,
    #[command(flatten)]
    pub bands: BandArgs,
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub instead: InsteadArgs,
    /// Print the result as JSON. The output of COMMAND then goes to the standard error
    #[arg(long)]
    pub json: bool,
    /// Start this application and shape it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(clap::Args)]
pub struct EndArgs {
    /// Shape for this time, then compare the result with the plan's promises
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub verify: Option<Duration>,
    /// Stop shaping after this time, for example 60s or 2h
    #[arg(long, value_name = "T", value_parser = parse_duration, conflicts_with = "verify")]
    pub duration: Option<Duration>,
}

#[derive(clap::Args)]
pub struct ApplicationArgs {
    /// Wait at most this time until every callback of the plan has run [default: 60s; with
    /// --dry-run 10s]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub find: Option<Duration>,
    /// Observe only the process with this id; repeatable
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Vec<u32>,
    /// Shape a running application of this user [default: root's, and yours under sudo]
    #[arg(long, value_name = "NAME", value_parser = user_id, conflicts_with_all = ["command", "pid"])]
    pub user: Vec<u32>,
    #[command(flatten)]
    pub limits: LimitArgs,
}

#[derive(clap::Args)]
pub struct EnforcementArgs {
    /// Run the dispatcher on this CPU [default: the CPU of the middleware's threads]
    #[arg(long, value_name = "CPU")]
    pub dispatcher_cpu: Option<u16>,
    /// Keep threads in their slots with cgroup freezers, or with a sched_ext scheduler in the
    /// kernel. sched_ext needs Linux 6.13. Under sched_ext, normal threads run before the servers'
    /// threads, so keep normal threads off the servers' CPUs
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub enforcer: EnforcerChoice,
    /// Choose what happens to a thread that is still working at the end of its slot. soft lowers
    /// its priority, and freezes it when it next waits for work; hard freezes it at once, with the
    /// locks that it holds
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub gate: GateChoice,
    /// Hold outputs back in a process beside the application, or inside the application's own
    /// processes. inside remaps no topics and adds no hop. inside needs COMMAND and ROS 2 Jazzy or
    /// later
    #[arg(long, value_name = "PLACE", value_enum, default_value_t)]
    pub hold: HoldChoice,
    /// Stop if a thread cannot be shaped, or if a second instance of a node runs. Without this
    /// option, onbeat reports the problem and continues
    #[arg(long)]
    pub strict: bool,
    /// Let idle CPUs sleep deeply. This saves power, but slots open less precisely
    #[arg(long)]
    pub idle: bool,
}

#[derive(clap::Args)]
pub struct BandArgs {
    /// Move the bands when the load changes, within the chain's slot (onbeat plan --room)
    #[arg(long)]
    pub adapt: bool,
    /// Let no band end later than this time after the start of its cycle (with --adapt)
    #[arg(long, value_name = "T", value_parser = parse_duration, requires = "adapt")]
    pub deadline: Option<Duration>,
    /// Write the bands and each change to this file, with --adapt (CSV; '-': standard output)
    #[arg(long, value_name = "FILE", requires = "adapt")]
    pub record_bands: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct FileArgs {
    /// Keep the recording of the shaped application in this directory
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Write every execution of the chain to this file (CSV; '-': standard output)
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,
    /// Write figures as Prometheus text every five seconds. For the node exporter, name the file
    /// onbeat.prom in its directory
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Publish the status as ROS 2 diagnostics once a second, on /diagnostics in the application's
    /// domain
    #[arg(long, conflicts_with_all = ["dry_run", "remap"])]
    pub diagnostics: bool,
}

#[derive(clap::Args)]
pub struct InsteadArgs {
    /// Change nothing; print where each thread would run, which callbacks share the thread, and the
    /// risks
    #[arg(long, conflicts_with_all = ["command", "verify", "duration", "trace", "samples", "remap"])]
    pub dry_run: bool,
    /// Only print the arguments that remap the plan's topics
    #[arg(long)]
    pub remap: bool,
    /// Print the status of all running sessions, or of the sessions that --pid names
    #[arg(long, conflicts_with_all = ["command", "verify", "duration", "trace", "samples", "remap", "dry_run", "metrics", "diagnostics"])]
    pub status: bool,
    /// Make all running sessions, or those that --pid names, read their plan file again, and print
    /// the result
    #[arg(long, conflicts_with_all = ["command", "verify", "duration", "trace", "samples", "remap", "dry_run", "metrics", "diagnostics", "status"])]
    pub reload: bool,
    /// Print the status as Prometheus text (with --status)
    #[arg(long, requires = "status", conflicts_with = "json")]
    pub prometheus: bool,
    /// Directory of status sockets [default: /run/onbeat]
    #[arg(long, value_name = "DIR", hide = true)]
    pub sockets: Option<PathBuf>,
}

impl Args {
    /// Makes the options of a shaping session from the command line. `caller` is the user who
    /// called sudo.
    pub fn options(&self, caller: Option<&User>) -> Result<ShapeOptions, CliError> {
        let (application, enforcement) = (&self.application, &self.enforcement);
        let find_within = if self.instead.dry_run {
            DEFAULT_DRY_RUN_WITHIN
        } else {
            DEFAULT_FIND_WITHIN
        };
        Ok(ShapeOptions {
            application: ApplicationOptions {
                users: self.users(caller),
                command: self.command.clone(),
                pids: application.pid.clone(),
                limits: application.limits.limits(),
                find_within: application.find.unwrap_or(find_within),
                command_to_stderr: self.json,
            },
            enforcement: EnforcementOptions {
                dispatcher_cpu: enforcement.dispatcher_cpu,
                idle: enforcement.idle,
                enforcer: enforcement.enforcer.into(),
                gate: enforcement.gate.into(),
                hold: enforcement.hold.into(),
                strict: enforcement.strict,
                adapt: self.bands.adapt.then(|| self.bands.options()),
            },
            duration: self.end.verify.or(self.end.duration),
            trace: self.files.trace.clone(),
            program: std::env::current_exe().map_err(|source| CliError::Read {
                path: PathBuf::from("/proc/self/exe"),
                source,
            })?,
            diagnostics: self.files.diagnostics,
            hangup: None,
        })
    }

    /// Returns the users whose processes may be shaped, besides root and the user of this process.
    /// A limit is needed, because any user can give a node the plan's names, and shaped threads get
    /// real-time priorities.
    fn users(&self, caller: Option<&User>) -> Option<Vec<u32>> {
        let ApplicationArgs { pid, user, .. } = &self.application;
        let is_chosen = !self.command.is_empty() || !pid.is_empty();
        let caller = caller.map(|user| user.uid);
        (!is_chosen).then(|| user.iter().copied().chain(caller).collect())
    }
}

impl BandArgs {
    fn options(&self) -> AdaptOptions {
        let nanoseconds = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        AdaptOptions {
            deadline_ns: self.deadline.map(nanoseconds),
        }
    }
}

fn user_id(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    let id = number.or_else(|| onbeat_record::user_id(text));
    id.ok_or_else(|| "there is no such user".into())
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum EnforcerChoice {
    /// Cgroup freezers; version 1 is preferred to version 2
    #[default]
    Freezer,
    /// A sched_ext scheduler in the kernel
    SchedExt,
}

impl From<EnforcerChoice> for Choice {
    fn from(choice: EnforcerChoice) -> Choice {
        match choice {
            EnforcerChoice::Freezer => Choice::Auto,
            EnforcerChoice::SchedExt => Choice::SchedExt,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GateChoice {
    /// Lower the thread's priority until the thread waits for work, then freeze it
    #[default]
    Soft,
    /// Freeze the thread at once, with the locks that it holds
    Hard,
}

impl From<GateChoice> for GateKind {
    fn from(choice: GateChoice) -> GateKind {
        match choice {
            GateChoice::Soft => GateKind::Soft,
            GateChoice::Hard => GateKind::Hard,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HoldChoice {
    /// A process that takes the outputs from remapped topics and publishes them again
    #[default]
    Outside,
    /// A library of onbeat that the application's processes load
    Inside,
    /// Inside if possible, otherwise outside. onbeat prints its choice and the reason
    Auto,
}

impl From<HoldChoice> for HoldAt {
    fn from(choice: HoldChoice) -> HoldAt {
        match choice {
            HoldChoice::Outside => HoldAt::Outside,
            HoldChoice::Inside => HoldAt::Inside,
            HoldChoice::Auto => HoldAt::Auto,
        }
    }
}
