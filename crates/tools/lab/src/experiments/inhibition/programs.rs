//! The programs that are measured: built where they run, and what each needs.

use crate::frame::report::Report;
use crate::frame::{Context, LabError, Result};
use crate::measure::middleware::Source;
use crate::measure::ros;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    pub fn prepare(context: &mut Context, report: &mut Report) -> Result<Programs> {
        context.step("build the programs", 600);
        let sources = context.source("crates/tools/lab/peers/inhibition")?;
        let ros = context.ros_env("kilted");
        let mut built = Vec::new();
        for middleware in MIDDLEWARES {
            match build(&sources, middleware, &ros) {
                Ok(path) => built.push((middleware, path)),
                Err(e) => report.skip(middleware.name(), e),
            }
        }
        report.skip(
            "rmw_cyclonedds_cpp",
            "no wheel has it: Cyclone DDS is measured by its own C API",
        );
        let inhibitor = source(&sources, "inhibition-inhibitor", "inhibitor.c").plain()?;
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
    pub fn command(&self, middleware: Middleware) -> Result<Command> {
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

/// A program of this folder.
fn source<'a>(sources: &Path, name: &'a str, file: &str) -> Source<'a> {
    Source {
        name,
        files: vec![sources.join(file)],
        included: ["pingpong.h", "../protocol.h"]
            .map(|h| sources.join(h))
            .to_vec(),
    }
}

fn build(sources: &Path, middleware: Middleware, ros: &Result<PathBuf>) -> Result<PathBuf> {
    let name = format!("inhibition-{}", middleware.part());
    let of = |file| source(sources, &name, file);
    match middleware {
        Middleware::Cyclone => {
            of("cyclonedds.c").on_cyclone(&sources.join("message.idl"), "inhibition")
        }
        Middleware::Fast => of("fastdds.cpp").on_fast("inhibition"),
        Middleware::Ros2 => match ros {
            Ok(env) => of("ros2.c").on_rcl(env),
            Err(e) => Err(LabError::unexpected("the environment", e)),
        },
    }
}
