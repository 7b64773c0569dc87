//! The programs that are measured: built where they run, and what each needs.

use crate::frame::files;
use crate::frame::report::Report;
use crate::frame::{cache_dir, Context, LabError};
use crate::measure::{native, ros};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A middleware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Middleware {
    /// Cyclone DDS by its C API.
    Cyclone,
    /// Fast DDS by its C++ API.
    Fast,
    /// rcl on rmw_fastrtps_cpp.
    Ros2,
}

/// All.
pub const MIDDLEWARES: [Middleware; 3] = [Middleware::Cyclone, Middleware::Fast, Middleware::Ros2];

/// Cyclone's settings: the loopback interface, and few participants to look for.
const CYCLONE_URI: &str = "<CycloneDDS><Domain id=\"77\"><General><Interfaces>\
    <NetworkInterface name=\"lo\"/></Interfaces><AllowMulticast>false</AllowMulticast></General>\
    <Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>4\
    </MaxAutoParticipantIndex><Peers><Peer Address=\"127.0.0.1\"/></Peers></Discovery></Domain>\
    </CycloneDDS>";

impl Middleware {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Middleware::Cyclone => "Cyclone DDS",
            Middleware::Fast => "Fast DDS",
            Middleware::Ros2 => "ROS 2 Kilted, rmw_fastrtps_cpp",
        }
    }

    /// The part of the experiment, and its name in figures.
    pub fn part(self) -> &'static str {
        match self {
            Middleware::Cyclone => "cyclonedds",
            Middleware::Fast => "fastdds",
            Middleware::Ros2 => "ros2",
        }
    }
}

/// The programs that could be built.
pub struct Programs {
    built: Vec<(Middleware, PathBuf)>,
    ros: Option<PathBuf>,
    inhibitor: PathBuf,
}

impl Programs {
    /// Builds what can be built, and says what cannot.
    pub fn prepare(context: &mut Context, report: &mut Report) -> Result<Programs, LabError> {
        context.step("build the programs", Duration::from_secs(600));
        let sources = context.source("crates/tools/lab/peers/inhibition")?;
        let ros = context.ros_env("kilted");
        let mut built = Vec::new();
        for middleware in MIDDLEWARES {
            let program = match (middleware, &ros) {
                (Middleware::Cyclone, _) => cyclone(&sources),
                (Middleware::Fast, _) => fast(&sources),
                (Middleware::Ros2, Ok(env)) => ros2(&sources, env),
                (Middleware::Ros2, Err(e)) => Err(LabError::unexpected("the environment", e)),
            };
            match program {
                Ok(path) => built.push((middleware, path)),
                Err(e) => report.skip(middleware.name(), e),
            }
        }
        report.skip(
            "rmw_cyclonedds_cpp",
            "no wheel has it: Cyclone DDS is measured by its own C API",
        );
        let inhibitor = build(
            "inhibitor",
            "cc",
            &[sources.join("inhibitor.c")],
            &sources,
            &[],
        )?;
        Ok(Programs {
            built,
            ros: ros.ok(),
            inhibitor,
        })
    }

    /// Whether a middleware can be measured.
    pub fn has(&self, middleware: Middleware) -> bool {
        self.built.iter().any(|(m, _)| *m == middleware)
    }

    /// The ping-pong's command on a middleware.
    pub fn command(&self, middleware: Middleware) -> Result<Command, LabError> {
        let found = self.built.iter().find(|(m, _)| *m == middleware);
        let (_, path) =
            found.ok_or_else(|| LabError::unexpected("the program", "it is not built"))?;
        let mut command = Command::new(path);
        command.env("CYCLONEDDS_URI", CYCLONE_URI);
        if let (Middleware::Ros2, Some(env)) = (middleware, &self.ros) {
            ros::enter(&mut command, env);
            command.env("ROS_DOMAIN_ID", "87");
            command.env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST");
        }
        Ok(command)
    }

    /// The inhibitor's command.
    pub fn inhibitor(&self) -> Command {
        Command::new(&self.inhibitor)
    }
}

fn build(
    name: &str,
    compiler: &str,
    files: &[PathBuf],
    sources: &Path,
    arguments: &[String],
) -> Result<PathBuf, LabError> {
    let also = [sources.join("pingpong.h"), sources.join("../protocol.h")];
    native::build(
        &format!("inhibition-{name}"),
        compiler,
        files,
        &also,
        arguments,
    )
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|w| w.to_string()).collect()
}

fn missing(what: &str, packages: &str) -> LabError {
    LabError::Missing {
        what: what.into(),
        fix: format!("install {packages}, or run `./dev bench inhibition`"),
    }
}

/// The type is generated first.
fn cyclone(sources: &Path) -> Result<PathBuf, LabError> {
    let missing = || missing("Cyclone DDS", "cyclonedds-dev and cyclonedds-tools");
    let generated = cache_dir().join("lab/inhibition-idl");
    files::make_dir(&generated)?;
    let status = Command::new("idlc")
        .args(["-x", "final"])
        .arg(sources.join("message.idl"))
        .current_dir(&generated)
        .status()
        .map_err(|_| missing())?;
    if !status.success() {
        return Err(LabError::program("idlc", status));
    }
    let mut arguments = words(&["-std=gnu11", "-lddsc"]);
    arguments.push(format!("-I{}", generated.display()));
    let files = [sources.join("cyclonedds.c"), generated.join("message.c")];
    build("cyclonedds", "cc", &files, sources, &arguments)
}

fn fast(sources: &Path) -> Result<PathBuf, LabError> {
    if !Path::new("/usr/include/fastrtps").is_dir() {
        return Err(missing("Fast DDS", "libfastrtps-dev"));
    }
    let arguments = words(&["-std=c++17", "-lfastrtps", "-lfastcdr"]);
    build(
        "fastdds",
        "c++",
        &[sources.join("fastdds.cpp")],
        sources,
        &arguments,
    )
}

fn ros2(sources: &Path, env: &Path) -> Result<PathBuf, LabError> {
    let stubs = cache_dir().join("lab/inhibition-python-symbols.c");
    let text = ros::with_python_symbols("// Symbols that have to be there.", env)?;
    std::fs::create_dir_all(cache_dir().join("lab"))
        .and_then(|()| std::fs::write(&stubs, text))
        .map_err(LabError::file("writing", &stubs))?;
    let mut arguments = words(&["-std=gnu11"]);
    let types = [
        "std_msgs__rosidl_typesupport_c",
        "std_msgs__rosidl_generator_c",
    ];
    arguments.extend(ros::link_arguments(env, &types)?);
    build(
        "ros2",
        "cc",
        &[sources.join("ros2.c"), stubs],
        sources,
        &arguments,
    )
}
