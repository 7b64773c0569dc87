//! The peer programs of the transport experiments, and what each one needs to run.

use crate::frame::children::{self, Guarded};
use crate::frame::report::Report;
use crate::frame::{cache_dir, Context, LabError, Result};
use crate::measure::middleware::Source;
use crate::measure::ros;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The SCHED_FIFO priority of all measured programs. Programs without real-time priority do not
/// disturb the measured programs.
const REAL_TIME_PRIORITY: i32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    Futex,
    Cyclone,
    CyclonePipeline,
    Fast,
    Ros2,
    Iceoryx2,
    Onbeat,
}

const ALL: [Program; 7] = [
    Program::Futex,
    Program::Cyclone,
    Program::CyclonePipeline,
    Program::Fast,
    Program::Ros2,
    Program::Iceoryx2,
    Program::Onbeat,
];

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Futex => "futex",
            Program::Cyclone => "Cyclone DDS",
            Program::CyclonePipeline => "the pipeline on Cyclone DDS",
            Program::Fast => "Fast DDS",
            Program::Ros2 => "ROS 2 Kilted",
            Program::Iceoryx2 => "iceoryx2",
            Program::Onbeat => "onbeat",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arm {
    pub name: &'static str,
    pub program: Program,
    pub spins: bool,
    pub shares_memory: bool,
    /// Whether the middleware copies the payload, so that large messages cannot be sent often.
    pub copies: bool,
    pub colour: usize,
    /// The `role=` argument of the arm's program for runs in which one thread both sends and
    /// receives.
    pub thread_role: &'static str,
}

const fn arm(name: &'static str, program: Program, colour: usize) -> Arm {
    Arm {
        name,
        program,
        spins: false,
        shares_memory: false,
        copies: false,
        colour,
        thread_role: "thread",
    }
}

const fn busy(arm: Arm) -> Arm {
    Arm { spins: true, ..arm }
}

const fn copying(arm: Arm) -> Arm {
    Arm {
        copies: true,
        ..arm
    }
}

/// The arm that only makes the system call that wakes a thread. No transport that wakes its
/// receiver can be faster.
pub const FUTEX: Arm = arm("futex", Program::Futex, 0);
pub const CYCLONE: Arm = copying(arm("Cyclone DDS, loopback", Program::Cyclone, 6));
pub const CYCLONE_ICEORYX: Arm = Arm {
    shares_memory: true,
    ..arm("Cyclone DDS, iceoryx", Program::Cyclone, 5)
};
pub const FAST: Arm = arm("Fast DDS, data sharing", Program::Fast, 7);
pub const ROS2: Arm = copying(arm("ROS 2 Kilted", Program::Ros2, 8));
pub const ICEORYX2: Arm = arm("iceoryx2, event", Program::Iceoryx2, 3);
pub const ICEORYX2_BUSY: Arm = busy(arm("iceoryx2, busy", Program::Iceoryx2, 4));
pub const ONBEAT: Arm = arm("onbeat", Program::Onbeat, 1);
pub const ONBEAT_BUSY: Arm = busy(arm("onbeat, busy", Program::Onbeat, 2));
pub const ONBEAT_CHAIN: Arm = Arm {
    thread_role: "chained",
    ..busy(arm("onbeat, chain", Program::Onbeat, 2))
};

pub const BETWEEN_PROCESSES: [Arm; 9] = [
    FUTEX,
    ONBEAT,
    ONBEAT_BUSY,
    ICEORYX2,
    ICEORYX2_BUSY,
    CYCLONE_ICEORYX,
    CYCLONE,
    FAST,
    ROS2,
];

pub struct Peers {
    programs: BTreeMap<Program, PathBuf>,
    ros: Option<PathBuf>,
    real_time: bool,
    roudi: Option<Roudi>,
    names: std::cell::Cell<u32>,
}

impl Peers {
    /// Builds the programs of all arms and starts iceoryx's daemon. If a program cannot be built or
    /// started, the report lists its arms as skipped.
    pub fn prepare(context: &mut Context, report: &mut Report) -> Result<Peers> {
        let mut peers = Peers::of_programs(context, report, &ALL)?;
        match Roudi::start(context) {
            Ok(roudi) => peers.roudi = Some(roudi),
            Err(e) => {
                eprintln!("   skipped: {}: {e}", CYCLONE_ICEORYX.name);
                report.skip(CYCLONE_ICEORYX.name, e);
            }
        }
        Ok(peers)
    }

    pub fn of_programs(
        context: &mut Context,
        report: &mut Report,
        wanted: &[Program],
    ) -> Result<Peers> {
        context.step("build the peers", 600);
        let sources = context.source("crates/tools/lab/peers")?;
        let ros = context.ros_env("kilted");
        let mut programs = BTreeMap::new();
        for &program in wanted {
            match build(program, &sources, &ros) {
                Ok(path) => {
                    programs.insert(program, path);
                }
                Err(e) => {
                    eprintln!("   skipped: {}: {e}", program.name());
                    report.skip(program.name(), e);
                }
            }
        }
        let mut probe = Command::new("true");
        children::real_time(&mut probe, REAL_TIME_PRIORITY);
        let real_time = probe.status().is_ok_and(|s| s.success());
        if !real_time {
            report.note(
                "SCHED_FIFO is not allowed here: all threads had normal priority, so other programs may have disturbed them",
            );
        }
        Ok(Peers {
            programs,
            ros: ros.ok(),
            real_time,
            roudi: None,
            names: std::cell::Cell::new(0),
        })
    }

    pub fn has(&self, arm: &Arm) -> bool {
        self.programs.contains_key(&arm.program) && (!arm.shares_memory || self.roudi.is_some())
    }

    pub fn of(&self, arms: &[Arm]) -> Vec<Arm> {
        arms.iter().copied().filter(|a| self.has(a)).collect()
    }

    pub fn has_program(&self, program: Program) -> bool {
        self.programs.contains_key(&program)
    }

    pub fn name(&self) -> String {
        self.names.set(self.names.get() + 1);
        format!("onbeat_lab_{}_{}", std::process::id(), self.names.get())
    }

    pub fn roudi(&self) -> Option<u32> {
        self.roudi.as_ref().map(|r| r.child.pid())
    }

    pub fn command(&self, program: Program, shares_memory: bool) -> Result<Command> {
        let mut command = self.normal_command(program, shares_memory)?;
        if self.real_time {
            children::real_time(&mut command, REAL_TIME_PRIORITY);
        }
        Ok(command)
    }

    pub fn normal_command(&self, program: Program, shares_memory: bool) -> Result<Command> {
        let path = self.programs.get(&program).ok_or_else(|| {
            LabError::unexpected(
                "the peer",
                "the program was not built. The report gives the reason",
            )
        })?;
        let mut command = Command::new(path);
        match program {
            Program::Cyclone | Program::CyclonePipeline => {
                command.env("CYCLONEDDS_URI", cyclone_uri(program, shares_memory));
                if shares_memory {
                    command.env("PEER_SHARED_MEMORY", "1");
                }
            }
            Program::Ros2 => {
                if let Some(env) = &self.ros {
                    ros::enter(&mut command, env);
                }
                command
                    .env("ROS_DOMAIN_ID", "86")
                    .env("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST");
            }
            _ => {}
        }
        Ok(command)
    }
}

/// Returns settings with which Cyclone DDS uses only the loopback interface. Each kind of arm has a
/// ROS domain of its own, so that arms do not find each other.
fn cyclone_uri(program: Program, shares_memory: bool) -> String {
    let domain = match (program, shares_memory) {
        (Program::CyclonePipeline, _) => 79,
        (_, true) => 78,
        (_, false) => 77,
    };
    let memory = if shares_memory {
        "<SharedMemory><Enable>true</Enable><LogLevel>warn</LogLevel></SharedMemory>"
    } else {
        ""
    };
    format!(
        "<CycloneDDS><Domain id=\"{domain}\"><General><Interfaces><NetworkInterface name=\"lo\"/></Interfaces>\
         <AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>\
         <MaxAutoParticipantIndex>60</MaxAutoParticipantIndex><Peers><Peer Address=\"127.0.0.1\"/></Peers>\
         </Discovery>{memory}</Domain></CycloneDDS>"
    )
}

fn build(program: Program, sources: &Path, ros: &Result<PathBuf>) -> Result<PathBuf> {
    let of = |name, file: &str, included: &[&str]| {
        let always = ["protocol.h", "transport.h"];
        let included = always.iter().chain(included);
        Source {
            name,
            files: vec![sources.join(file)],
            included: included.map(|f| sources.join(f)).collect(),
        }
    };
    let on_cyclone = |name, file: &str| {
        let source = of(name, file, &["pipeline.h", "cyclonedds/endpoints.h"]);
        source.on_cyclone(&sources.join("cyclonedds/message.idl"), "transport")
    };
    match program {
        Program::Futex => of("peer-futex", "futex/futex.c", &[]).plain(),
        Program::Cyclone => on_cyclone("peer-cyclonedds", "cyclonedds/cyclonedds.c"),
        Program::CyclonePipeline => on_cyclone("peer-pipeline", "cyclonedds/pipeline.c"),
        Program::Fast => of("peer-fastdds", "fastdds/fastdds.cpp", &[]).on_fast("transport"),
        Program::Ros2 => match ros {
            Ok(env) => of("peer-ros2", "ros2/ros2.c", &[]).on_rcl(env),
            Err(e) => Err(LabError::unexpected("the environment", e)),
        },
        Program::Iceoryx2 => in_rust("peer-iceoryx2"),
        Program::Onbeat => in_rust("peer-onbeat"),
    }
}

fn in_rust(name: &str) -> Result<PathBuf> {
    let path = cache_dir().join("peers/release").join(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(LabError::Missing {
            what: path.display().to_string(),
            fix: "run `./dev bench transport`".into(),
        })
    }
}

struct Roudi {
    child: Guarded,
}

/// The memory pools of iceoryx: the size of a block in bytes, and the number of blocks. Each size
/// includes room for iceoryx's header.
const POOLS: [(u32, u32); 6] = [
    (1 << 10, 512),
    (4 << 10, 256),
    (128 << 10, 256),
    (512 << 10, 64),
    ((1 << 20) + 8192, 64),
    ((4 << 20) + 8192, 64),
];

impl Roudi {
    fn start(context: &Context) -> Result<Roudi> {
        let config = context.dir().join("roudi.toml");
        let pools: String = POOLS
            .iter()
            .map(|(size, count)| format!("[[segment.mempool]]\nsize = {size}\ncount = {count}\n"))
            .collect();
        std::fs::write(
            &config,
            format!("[general]\nversion = 1\n[[segment]]\n{pools}"),
        )
        .map_err(LabError::file("writing", &config))?;
        let mut command = Command::new("iox-roudi");
        command
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = context.spawn(&mut command)?;
        let (said, heard) = mpsc::channel();
        if let Some(out) = child.child().stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if line.contains("ready for clients") {
                        let _ = said.send(());
                    }
                }
            });
        }
        let ready = heard.recv_timeout(Duration::from_secs(30));
        let _ = std::fs::remove_file(&config);
        if ready.is_err() {
            if child.running() {
                drop(child);
                return Err(LabError::program(
                    "iox-roudi",
                    "the daemon was not ready within 30 s",
                ));
            }
            let said = child.last_error();
            return Err(LabError::program(
                "iox-roudi",
                format!("the daemon ended{said}. Check that no other iox-roudi is running"),
            ));
        }
        Ok(Roudi { child })
    }
}
