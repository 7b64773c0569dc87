//! The compared arms: the paper's concepts on onbeat's channels, and ROS 1 and ROS 2 as peers.

use super::seat::Seat;
use crate::frame::files;
use crate::frame::{cache_dir, Context, LabError, Result};
use crate::measure::peer::Peer;
use crate::measure::ros;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const DEPTH: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Onbeat,
    Nodes,
    Nodelets,
    Ros2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    pub name: &'static str,
    pub title: &'static str,
    pub program: Program,
    /// The `role=` argument of the arm's program if one process does everything. `None` if each
    /// side of each stream has a process of its own.
    pub role: Option<&'static str>,
    pub policy: &'static str,
}

impl Arm {
    pub fn lossless(&self) -> bool {
        self.program == Program::Onbeat && self.policy != "drop-oldest"
    }
}

const fn ours(
    name: &'static str,
    title: &'static str,
    role: Option<&'static str>,
    policy: &'static str,
) -> Arm {
    Arm {
        name,
        title,
        program: Program::Onbeat,
        role,
        policy,
    }
}

const fn peer(
    name: &'static str,
    title: &'static str,
    program: Program,
    policy: &'static str,
) -> Arm {
    Arm {
        name,
        title,
        program,
        role: None,
        policy,
    }
}

pub const ARMS: [Arm; 16] = [
    ours(
        "drop-processes",
        "the paper's concept 1: drop-oldest, two processes",
        None,
        "drop-oldest",
    ),
    ours(
        "drop",
        "the paper's concept 2: drop-oldest, one process",
        Some("both"),
        "drop-oldest",
    ),
    ours(
        "credit",
        "the paper's concept 3: credit, one process",
        Some("both"),
        "credit",
    ),
    ours(
        "credit-processes",
        "the paper's concept 3: credit, two processes",
        None,
        "credit",
    ),
    ours(
        "swap",
        "the paper's concept 4: swap, one process",
        Some("both"),
        "swap",
    ),
    ours(
        "swap-flush",
        "swap that also hands over buffers that are not full (flush), one process",
        Some("both"),
        "swap-flush",
    ),
    ours(
        "credit-shared",
        "credit, one thread for all consumers",
        Some("both-shared"),
        "credit",
    ),
    ours(
        "credit-chain",
        "credit, one thread for everything",
        Some("chain"),
        "credit",
    ),
    ours(
        "bare",
        "no queue: the waiting thread processes the message",
        Some("bare"),
        "none",
    ),
    peer(
        "ros1-nodes",
        "ROS 1 nodes: the paper's own program for concept 1 (drop-oldest)",
        Program::Nodes,
        "topic",
    ),
    peer(
        "ros1-nodes-nodelay",
        "ROS 1 nodes with tcpNoDelay",
        Program::Nodes,
        "topic-nodelay",
    ),
    peer(
        "ros1-nodelets",
        "ROS 1 nodelets: the paper's own program for concept 2 (drop-oldest)",
        Program::Nodelets,
        "topic",
    ),
    peer(
        "ros1-token",
        "ROS 1 nodelets with tokens: the paper's own program for concept 3 (credit)",
        Program::Nodelets,
        "token",
    ),
    peer(
        "ros1-service",
        "ROS 1 nodelets with a service: the paper's own program for concept 4 (swap)",
        Program::Nodelets,
        "service",
    ),
    peer(
        "ros2-keep-last",
        "ROS 2 Kilted, KEEP_LAST",
        Program::Ros2,
        "keep-last",
    ),
    peer(
        "ros2-keep-all",
        "ROS 2 Kilted, KEEP_ALL",
        Program::Ros2,
        "keep-all",
    ),
];

pub fn index(name: &str) -> usize {
    ARMS.iter().position(|a| a.name == name).unwrap_or(0)
}

fn build_path(what: &str) -> PathBuf {
    cache_dir().join("lab/queues").join(what)
}

const MANAGERS: [&str; 2] = [
    "/usr/lib/nodelet/nodelet",
    "/opt/ros/noetic/lib/nodelet/nodelet",
];

pub struct Programs {
    ros2_env: Result<PathBuf, String>,
    ros1: Result<Ros1, String>,
}

struct Ros1 {
    uri: String,
    home: PathBuf,
    manager: PathBuf,
    // Dropping it ends the master.
    _master: Peer,
}

impl Programs {
    /// Finds the programs of all arms. If ROS 1 is installed, starts a ROS 1 master on the core of
    /// `seat`.
    pub fn find(context: &Context, work: &Path, seat: &Seat) -> Programs {
        let ros2_env = check_built(&build_path("ros2/queues-ros2"), "ros2")
            .and_then(|()| context.ros_env("kilted").map_err(|e| e.to_string()));
        let ros1 = check_built(&build_path("ros1/queues-ros1"), "ros1")
            .and_then(|()| start_master(context, work, seat).map_err(|e| e.to_string()));
        Programs { ros2_env, ros1 }
    }

    pub fn obstacle(&self, arm: &Arm) -> Option<String> {
        match arm.program {
            Program::Onbeat => {
                check_built(&build_path("onbeat/release/queues-onbeat"), "onbeat").err()
            }
            Program::Nodes | Program::Nodelets => self.ros1.as_ref().err().cloned(),
            Program::Ros2 => self.ros2_env.as_ref().err().cloned(),
        }
    }

    pub fn start(
        &self,
        context: &Context,
        arm: &Arm,
        streams: usize,
        words: &[String],
        seat: &Seat,
        log: &Path,
    ) -> Result<Vec<Peer>> {
        let start = |mut command: Command, name: String| {
            command.args(words).arg(format!("policy={}", arm.policy));
            seat.apply(&mut command);
            Peer::start(context, &mut command, &name)
        };
        if arm.program == Program::Nodelets {
            return self.start_nodelets(context, arm, streams, words, seat, log);
        }
        let program = || self.command(arm);
        if let Some(role) = arm.role {
            let mut command = program()?;
            command.args([
                format!("role={role}"),
                "first=0".into(),
                format!("count={streams}"),
            ]);
            return Ok(vec![start(command, arm.name.into())?]);
        }
        let mut peers = vec![];
        for k in 0..streams {
            for role in ["receive", "send"] {
                let mut command = program()?;
                command.args([
                    format!("role={role}"),
                    format!("first={k}"),
                    "count=1".into(),
                ]);
                peers.push(start(command, format!("{}-{role}{k}", arm.name))?);
            }
        }
        Ok(peers)
    }

    fn command(&self, arm: &Arm) -> Result<Command> {
        let missing = |e: &String| LabError::program(arm.name, e);
        Ok(match arm.program {
            Program::Onbeat => Command::new(build_path("onbeat/release/queues-onbeat")),
            Program::Nodes | Program::Nodelets => {
                let ros1 = self.ros1.as_ref().map_err(missing)?;
                ros1.enter(Command::new(build_path("ros1/queues-ros1")))
            }
            Program::Ros2 => {
                let env = self.ros2_env.as_ref().map_err(missing)?;
                let mut command = Command::new(build_path("ros2/queues-ros2"));
                ros::enter(&mut command, env);
                // This keeps the nodes apart from other ROS 2 programs on this machine or its
                // network.
                command
                    .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
                    .env("ROS_DOMAIN_ID", (1 + std::process::id() % 100).to_string());
                command
            }
        })
    }

    /// Starts the ROS 1 nodelets and returns their manager, the process to measure. The program
    /// that loads the nodelets into the manager has ended when this function returns.
    fn start_nodelets(
        &self,
        context: &Context,
        arm: &Arm,
        streams: usize,
        words: &[String],
        seat: &Seat,
        log: &Path,
    ) -> Result<Vec<Peer>> {
        let missing = |e: &String| LabError::program(arm.name, e);
        let ros1 = self.ros1.as_ref().map_err(missing)?;
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("/manager_{}", name.replace(['-', '.'], "_"));
        let mut manager = ros1.enter(Command::new(&ros1.manager));
        manager.args(["manager", &format!("__name:={}", &name[1..])]);
        seat.apply(&mut manager);
        let manager = Peer::start(context, &mut manager, arm.name)?;
        let mut load = self.command(arm)?;
        load.args(words).args([
            "role=load".into(),
            format!("policy={}", arm.policy),
            format!("count={streams}"),
            format!("manager={name}"),
        ]);
        seat.apply(&mut load);
        let loader = Peer::start(context, &mut load, "ros1-load")?;
        let failed = |why: String| {
            LabError::program(
                arm.name,
                format!("{why}; the manager{}", manager.last_error()),
            )
        };
        match loader.succeed(Duration::from_secs(60)) {
            Ok(true) => Ok(vec![manager]),
            Ok(false) => Err(failed(
                "the program did not load its nodelets within 60 s".into(),
            )),
            Err(e) => Err(failed(e.to_string())),
        }
    }
}

fn check_built(program: &Path, log: &str) -> Result<(), String> {
    if program.is_file() {
        return Ok(());
    }
    let said = std::fs::read_to_string(build_path(&format!("{log}.log"))).unwrap_or_default();
    Err(match said.lines().rfind(|l| !l.trim().is_empty()) {
        Some(line) => format!("building failed: {line}"),
        None => "the program was not built. Run `./dev bench queues`".into(),
    })
}

impl Ros1 {
    fn enter(&self, mut command: Command) -> Command {
        command
            .env("ROS_MASTER_URI", &self.uri)
            .env("ROS_IP", "127.0.0.1")
            .env("ROS_HOME", &self.home)
            .env("ROS_LOG_DIR", &self.home)
            .env(
                "CMAKE_PREFIX_PATH",
                format!("{}:/usr:/opt/ros/noetic", build_path("ros1").display()),
            )
            .env(
                "ROS_PACKAGE_PATH",
                format!(
                    "{}/share:/usr/share:/opt/ros/noetic/share",
                    build_path("ros1").display()
                ),
            );
        command
    }
}

fn start_master(context: &Context, work: &Path, seat: &Seat) -> Result<Ros1> {
    let manager = MANAGERS
        .iter()
        .map(PathBuf::from)
        .find(|p| p.is_file())
        .ok_or_else(|| LabError::Missing {
            what: "the nodelet manager".into(),
            fix: "install libnodeletlib-tools".into(),
        })?;
    // This finds a free port. Dropping the listener frees it for the master.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .map_err(|e| LabError::program("the ROS 1 master", e))?
        .port();
    let home = work.join("ros");
    files::make_dir(&home)?;
    let mut command = Command::new("rosmaster");
    command
        .args(["--core", "-p", &port.to_string()])
        .env("ROS_MASTER_URI", format!("http://127.0.0.1:{port}"))
        .env("ROS_IP", "127.0.0.1")
        .env("ROS_HOME", &home)
        .env("ROS_LOG_DIR", &home);
    seat.apply(&mut command);
    let mut master = Peer::start(context, &mut command, "rosmaster")?;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    for _ in 0..1500 {
        if std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
            return Ok(Ros1 {
                uri: format!("http://127.0.0.1:{port}"),
                home,
                manager,
                _master: master,
            });
        }
        if !master.running() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(LabError::program(
        "rosmaster",
        format!("the ROS 1 master does not answer{}", master.last_error()),
    ))
}
