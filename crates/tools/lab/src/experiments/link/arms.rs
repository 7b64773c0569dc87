//! The compared transports, and the programs and settings that each needs.

use crate::frame::report::Report;
use crate::frame::{cache_dir, Context, LabError, Result};
use crate::measure::hosts::{Host, Limit};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const RATE: u64 = 1_000_000_000;

/// The longest time in ns for which a message waits behind less urgent bytes of its own host under
/// onbeat's flow control. It equals the time that one window takes on the limited link.
pub const WINDOW_NS: u64 = 1_000_000;
pub const SEGMENT: u64 = 1514;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Link,
    Zenoh,
    Cyclone,
    Fast,
    Fabric,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    pub name: &'static str,
    pub id: &'static str,
    pub colour: usize,
    program: Program,
    /// Whether the arm sets `SO_PRIORITY`, so that the link must sort packets with `tc prio`.
    needs_tc_prio: bool,
    pub is_plaintext: bool,
}

const fn arm(name: &'static str, id: &'static str, colour: usize) -> Arm {
    Arm {
        name,
        id,
        colour,
        program: Program::Link,
        needs_tc_prio: false,
        is_plaintext: true,
    }
}

pub const TCP: Arm = arm("plain TCP", "tcp", 0);
/// The arm with one TCP connection for each stream, in which the sender's kernel sorts packets by
/// priority.
pub const PRIO: Arm = Arm {
    needs_tc_prio: true,
    ..arm("TCP, tc prio", "prio", 1)
};
/// The arm with one link of onbeat for each stream, without flow control between the links.
pub const INTERFACE: Arm = arm("interface layer", "interface", 2);
pub const SEALED: Arm = Arm {
    is_plaintext: false,
    ..arm("interface, sealed", "sealed", 3)
};
pub const ZENOH: Arm = Arm {
    program: Program::Zenoh,
    ..arm("zenoh", "zenoh", 4)
};

pub const CYCLONE: Arm = Arm {
    program: Program::Cyclone,
    ..arm("Cyclone DDS", "cyclonedds", 6)
};
pub const FAST: Arm = Arm {
    program: Program::Fast,
    ..arm("Fast DDS", "fastdds", 7)
};
pub const FABRIC: Arm = Arm {
    program: Program::Fabric,
    ..arm("libfabric, tcp", "libfabric", 8)
};
pub const OURS: Arm = arm("ours", "ours", 5);
/// The arm with all streams of a process on one connection, on which the most urgent chunk leaves
/// first. The socket's send buffer has the size of one window of flow control ([`WINDOW_NS`]). Only
/// the part `connections` of the experiment measures this arm, and compares it with [`OURS`].
pub const MULTIPLEXED: Arm = arm("one connection for all priority classes", "multiplexed", 8);
/// The arm with a channel of onbeat-flow that has several consumers on the other host. Only the
/// part `consumers` of the experiment measures this arm.
pub const CHANNELS: Arm = arm("channel", "channels", 5);
pub const ALL: [Arm; 9] = [
    TCP, PRIO, FABRIC, INTERFACE, SEALED, OURS, ZENOH, CYCLONE, FAST,
];
/// The settings of Cyclone DDS: only the interface of the link, and fragments as large as UDP
/// allows, which its developers recommend for large messages.
const CYCLONE_URI: &str = r#"<CycloneDDS><Domain>
<General><Interfaces><NetworkInterface name="link0"/></Interfaces>
<MaxMessageSize>65500B</MaxMessageSize></General>
<Internal><SocketReceiveBufferSize min="4MB"/></Internal>
</Domain></CycloneDDS>"#;

pub struct Arms {
    available: Vec<Arm>,
    link: PathBuf,
    zenoh: PathBuf,
    key: PathBuf,
}

impl Arms {
    pub fn prepare(context: &Context, report: &mut Report) -> Result<Arms> {
        let link = cache_dir().join("peers/release/peer-link");
        if !link.is_file() {
            return Err(LabError::Missing {
                what: link.display().to_string(),
                fix: "run `./dev bench link`, which builds this program".into(),
            });
        }
        let key = context.dir().join("link.key");
        let _ = std::fs::remove_file(&key);
        write_key(&key)?;
        let mut arms = Arms {
            available: vec![TCP, PRIO, INTERFACE, SEALED, OURS],
            link,
            zenoh: cache_dir().join("lab/link/venv/bin/python"),
            key,
        };
        if arms.zenoh.is_file() {
            arms.available.push(ZENOH);
        } else {
            report.skip(
                ZENOH.name,
                "the Python package could not be installed. Run `./dev bench link` with network access",
            );
        }
        for (arm, folder) in [
            (CYCLONE, "cyclonedds"),
            (FAST, "fastdds"),
            (FABRIC, "libfabric"),
        ] {
            match built(folder) {
                Ok(()) => arms.available.push(arm),
                Err(why) => report.skip(arm.name, why),
            }
        }
        for (name, why) in UNAVAILABLE {
            report.skip(name, why);
        }
        Ok(arms)
    }
    pub fn available_among(&self, wanted: &[Arm]) -> Vec<Arm> {
        let mut wanted = wanted.to_vec();
        wanted.retain(|arm| self.available.contains(arm));
        wanted
    }

    pub fn plaintext(&self) -> Vec<Arm> {
        let mut all = self.available_among(&ALL);
        all.retain(|arm| arm.is_plaintext);
        all
    }
    pub fn memory_hog_command(&self, cpu: usize) -> Command {
        let mut command = Command::new(&self.link);
        command.args(["side=hog".to_string(), format!("cpu={cpu}")]);
        command
    }

    pub fn command(
        &self,
        context: &Context,
        arm: &Arm,
        host: Host,
        limited: bool,
    ) -> Result<Command> {
        let mut command = match arm.program {
            Program::Link => Command::new(&self.link),
            Program::Zenoh => {
                let mut python = Command::new(&self.zenoh);
                python
                    .arg("-B")
                    .arg(context.source("crates/tools/lab/peers/link/zenoh_peer.py")?);
                python
            }
            Program::Cyclone => {
                let mut cyclone = Command::new(cache_dir().join(CYCLONE_PEER));
                cyclone.env("CYCLONEDDS_URI", CYCLONE_URI);
                cyclone
            }
            Program::Fast => Command::new(cache_dir().join(FAST_PEER)),
            Program::Fabric => Command::new(cache_dir().join(FABRIC_PEER)),
        };
        let side = match host {
            Host::Sender => "send",
            Host::Receiver => "receive",
        };
        command
            .arg(format!("side={side}"))
            .arg(format!("arm={}", arm.id))
            .arg(format!("host={}", Host::Receiver.address()))
            .arg(format!("rate={}", if limited { RATE } else { 0 }))
            .arg(format!("key={}", self.key.display()));
        Ok(command)
    }
}

impl Drop for Arms {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.key);
    }
}

impl Arm {
    pub fn is_foreign(&self) -> bool {
        self.program != Program::Link
    }

    pub fn is_ours(&self) -> bool {
        *self == OURS
    }
    pub fn limit(&self, limited: bool) -> Limit {
        match (limited, self.needs_tc_prio) {
            (false, _) => Limit::None,
            (true, false) => Limit::Rate {
                bits_per_second: RATE,
            },
            (true, true) => Limit::Sorted {
                bits_per_second: RATE,
            },
        }
    }
}

const UNAVAILABLE: [(&str, &str); 1] = [
    (
    "RDMA verbs, and libfabric over verbs",
    "this kernel has no rdma_rxe. The virtual machine of `./dev test link-verbs` has it. Its processor is emulated, so the virtual machine can show that links work, but not how fast they are",
    ),
];

const CYCLONE_PEER: &str = "lab/link/cyclonedds/peer";
const FAST_PEER: &str = "lab/link/fastdds/peer";
const FABRIC_PEER: &str = "lab/link/libfabric/peer";

fn built(folder: &str) -> Result<(), String> {
    let made = cache_dir().join("lab/link").join(folder);
    if made.join("peer").is_file() {
        return Ok(());
    }
    let log = std::fs::read_to_string(made.with_extension("log")).unwrap_or_default();
    match log.lines().next() {
        Some(why) => Err(format!("building failed: {why}")),
        None => Err("the program was not built. Run `./dev bench link`".into()),
    }
}

fn write_key(path: &Path) -> Result<()> {
    use std::io::{Read, Write};
    use std::os::unix::fs::OpenOptionsExt;
    let failed = |e| LabError::file("writing", path)(e);
    let mut random = [0u8; 32];
    let source = std::fs::File::open("/dev/urandom");
    source
        .and_then(|mut s| s.read_exact(&mut random))
        .map_err(failed)?;
    let text: String = random.iter().map(|b| format!("{b:02x}")).collect();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut f| writeln!(f, "{text}")).map_err(failed)
}
