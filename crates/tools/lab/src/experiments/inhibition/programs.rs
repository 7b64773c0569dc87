//! Builds the measured programs on this machine and makes their commands.

use crate::frame::report::Report;
use crate::frame::{Context, LabError, Result};
use crate::measure::middleware::Source;
use crate::measure::ros;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Middleware {
    Cyclone,
    Fast,
    Ros2,
}

pub const MIDDLEWARES: [Middleware; 3] = [Middleware::Cyclone, Middleware::Fast, Middleware::Ros2];

/// The settings of Cyclone DDS, with which it uses only the loopback interface and looks for few
/// participants.
const CYCLONE_URI: &str = "<CycloneDDS><Domain id=\"77\"><General><Interfaces>\
    <NetworkInterface name=\"lo\"/></Interfaces><AllowMulticast>false</AllowMulticast></General>\
    <Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>4\
    </MaxAutoParticipantIndex><Peers><Peer Address=\"127.0.0.1\"/></Peers></Discovery></Domain>\
    </CycloneDDS>";

impl Middleware {
    pub fn name(self) -> &'static str {
        match self {
            Middleware::Cyclone => "Cyclone DDS",
            Middleware::Fast => "Fast DDS",
            Middleware::Ros2 => "ROS 2 Kilted, rmw_fastrtps_cpp",
        }
    }

    pub fn part(self) -> &'static str {
        match self {
            Middleware::Cyclone => "cyclonedds",
            Middleware::Fast => "fastdds",
            Middleware::Ros2 => "ros2",
        }
    }
}

pub struct Programs {
    built: Vec<(Middleware, PathBuf)>,
    ros: Option<PathBuf>,
    inhibitor: PathBuf,
}

impl Programs {
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
            "no Python wheel contains this middleware. Cyclone DDS is measured through its own C API",
        );
        let inhibitor = source(&sources, "inhibition-inhibitor", "inhibitor.c").plain()?;
        Ok(Programs {
            built,
            ros: ros.ok(),
            inhibitor,
        })
    }

    pub fn has(&self, middleware: Middleware) -> bool {
        self.built.iter().any(|(m, _)| *m == middleware)
    }

    pub fn ping_pong_command(&self, middleware: Middleware) -> Result<Command> {
        let found = self.built.iter().find(|(m, _)| *m == middleware);
        let (_, path) = found.ok_or_else(|| {
            LabError::unexpected(
                "the program",
                "the program was not built. The report gives the reason",
            )
        })?;
        let mut command = Command::new(path);
        command.env("CYCLONEDDS_URI", CYCLONE_URI);
        if let (Middleware::Ros2, Some(env)) = (middleware, &self.ros) {
            ros::enter(&mut command, env);
            command.env("ROS_DOMAIN_ID", "87");
            command.env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST");
        }
        Ok(command)
    }

    pub fn inhibitor_command(&self) -> Command {
        Command::new(&self.inhibitor)
    }
}

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
