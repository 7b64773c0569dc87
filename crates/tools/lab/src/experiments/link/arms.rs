//! What is compared, and what each needs.

use crate::frame::report::Report;
use crate::frame::{cache_dir, Context, LabError, Result};
use crate::measure::hosts::{Host, Limit};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rate of the limited link.
pub const RATE: u64 = 1_000_000_000;

/// For how long less urgent bytes of a host keep a more urgent message waiting with our flow control:
/// the time of its window on the limited link, ns.
pub const WINDOW_NS: u64 = 1_000_000;
/// Bytes of a segment on the wire, with its heads.
pub const SEGMENT: u64 = 1514;

/// A program behind arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// `peer-link`.
    Link,
    /// `zenoh_peer.py`, in an environment with zenoh.
    Zenoh,
    /// `cyclonedds.cpp`.
    Cyclone,
    /// `fastdds.cpp`.
    Fast,
    /// `libfabric.cpp`.
    Fabric,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// Its name in tables and plots.
    pub name: &'static str,
    /// As its program knows it, and as a part of names of figures.
    pub id: &'static str,
    /// Number of its colour.
    pub colour: usize,
    program: Program,
    /// It sets `SO_PRIORITY`, and needs `tc prio` on the link.
    sorted: bool,
    /// What it sends can be told on the wire.
    pub in_clear: bool,
}

const fn arm(name: &'static str, id: &'static str, colour: usize) -> Arm {
    Arm {
        name,
        id,
        colour,
        program: Program::Link,
        sorted: false,
        in_clear: true,
    }
}

/// A TCP connection for each stream.
pub const TCP: Arm = arm("plain TCP", "tcp", 0);
/// The same, sorted by the sender's kernel.
pub const PRIO: Arm = Arm {
    sorted: true,
    ..arm("TCP, tc prio", "prio", 1)
};
/// A link for each stream, without flow control between them.
pub const INTERFACE: Arm = arm("interface layer", "interface", 2);
/// The same, encrypted.
pub const SEALED: Arm = Arm {
    in_clear: false,
    ..arm("interface, sealed", "sealed", 3)
};
/// zenoh with priorities.
pub const ZENOH: Arm = Arm {
    program: Program::Zenoh,
    ..arm("zenoh", "zenoh", 4)
};

/// Cyclone DDS, which has no priorities on the wire.
pub const CYCLONE: Arm = Arm {
    program: Program::Cyclone,
    ..arm("Cyclone DDS", "cyclonedds", 6)
};
/// Fast DDS with a flow controller that sends the more urgent first.
pub const FAST: Arm = Arm {
    program: Program::Fast,
    ..arm("Fast DDS", "fastdds", 7)
};
/// libfabric over TCP: a connection for each stream.
pub const FABRIC: Arm = Arm {
    program: Program::Fabric,
    ..arm("libfabric, tcp", "libfabric", 8)
};
/// The same as the interface layer, with flow control over all streams of the host.
pub const OURS: Arm = arm("ours", "ours", 5);
/// All streams of a process over one connection, the most urgent chunk first, with a socket's buffer
/// of a window: only beside [`OURS`], in `connections`.
pub const MULTIPLEXED: Arm = arm("one for all classes", "multiplexed", 8);
/// A channel of flow, with several consumers on the other host: only in `consumers`.
pub const CHANNELS: Arm = arm("channel", "channels", 5);
/// All of them but [`MULTIPLEXED`] and [`CHANNELS`].
pub const ALL: [Arm; 9] = [
    TCP, PRIO, FABRIC, INTERFACE, SEALED, OURS, ZENOH, CYCLONE, FAST,
];
/// Cyclone DDS over the link's interface alone, with fragments as large as UDP takes, as its makers
/// advise for large messages.
const CYCLONE_URI: &str = r#"<CycloneDDS><Domain>
<General><Interfaces><NetworkInterface name="link0"/></Interfaces>
<MaxMessageSize>65500B</MaxMessageSize></General>
<Internal><SocketReceiveBufferSize min="4MB"/></Internal>
</Domain></CycloneDDS>"#;

/// The arms that can be measured here.
pub struct Arms {
    there: Vec<Arm>,
    link: PathBuf,
    zenoh: PathBuf,
    key: PathBuf,
}

impl Arms {
    /// Looks for the programs; those that are not there are skipped with the reason.
    pub fn prepare(context: &Context, report: &mut Report) -> Result<Arms> {
        let link = cache_dir().join("peers/release/peer-link");
        if !link.is_file() {
            return Err(LabError::Missing {
                what: link.display().to_string(),
                fix: "run `./dev bench link`, which builds it".into(),
            });
        }
        let key = context.dir().join("link.key");
        let _ = std::fs::remove_file(&key);
        write_key(&key)?;
        let mut arms = Arms {
            there: vec![TCP, PRIO, INTERFACE, SEALED, OURS],
            link,
            zenoh: cache_dir().join("lab/link/venv/bin/python"),
            key,
        };
        if arms.zenoh.is_file() {
            arms.there.push(ZENOH);
        } else {
            report.skip(
                ZENOH.name,
                "its Python package could not be set up: run `./dev bench link` with a network",
            );
        }
        for (arm, folder) in [
            (CYCLONE, "cyclonedds"),
            (FAST, "fastdds"),
            (FABRIC, "libfabric"),
        ] {
            match built(folder) {
                Ok(()) => arms.there.push(arm),
                Err(why) => report.skip(arm.name, why),
            }
        }
        for (name, why) in NOT_HAD {
            report.skip(name, why);
        }
        Ok(arms)
    }

    /// Those of the arms that can be measured.
    pub fn of(&self, wanted: &[Arm]) -> Vec<Arm> {
        let mut wanted = wanted.to_vec();
        wanted.retain(|arm| self.there.contains(arm));
        wanted
    }

    /// All whose messages can be told on the wire.
    pub fn in_clear(&self) -> Vec<Arm> {
        let mut all = self.of(&ALL);
        all.retain(|arm| arm.in_clear);
        all
    }

    /// A program that loads the memory from a core.
    pub fn hog(&self, cpu: usize) -> Command {
        let mut command = Command::new(&self.link);
        command.args(["side=hog".to_string(), format!("cpu={cpu}")]);
        command
    }

    /// The command of an arm's process of a host, without its streams.
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
    /// Whether others make it: its failure is not the experiment's.
    pub fn foreign(&self) -> bool {
        self.program != Program::Link
    }

    /// Whether it is what this project makes: targets are for it.
    pub fn ours(&self) -> bool {
        *self == OURS
    }

    /// The link that it needs, limited or not.
    pub fn limit(&self, limited: bool) -> Limit {
        match (limited, self.sorted) {
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

/// Arms that are wanted and that nothing measures here yet.
const NOT_HAD: [(&str, &str); 1] = [
    (
    "verbs, and libfabric over verbs",
    "this kernel has no rdma_rxe; in the guest time is emulated: `./dev test link-verbs` shows function there",
    ),
];

const CYCLONE_PEER: &str = "lab/link/cyclonedds/peer";
const FAST_PEER: &str = "lab/link/fastdds/peer";
const FABRIC_PEER: &str = "lab/link/libfabric/peer";

/// Whether `./dev bench link` has built the peer of that folder; else what went wrong.
fn built(folder: &str) -> Result<(), String> {
    let made = cache_dir().join("lab/link").join(folder);
    if made.join("peer").is_file() {
        return Ok(());
    }
    let log = std::fs::read_to_string(made.with_extension("log")).unwrap_or_default();
    match log.lines().next() {
        Some(why) => Err(format!("it could not be built: {why}")),
        None => Err("it was not built: run `./dev bench link`".into()),
    }
}

/// A key for this run alone.
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
