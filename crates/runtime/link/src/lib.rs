//! Channels of `onbeat-flow` across processes of one machine, by name.
//!
//! ```
//! use onbeat_flow::{Options, Policy};
//!
//! // The same line in both processes; who comes first makes the channel.
//! # let scans = &format!("doc/{}", std::process::id());
//! let channel = onbeat_link::channel(scans, Options::new(Policy::Credit { credits: 4 }, 64))?;
//! let consumer = channel.consumer()?;
//! channel.producer()?.send(b"ahead")?;
//! assert_eq!(*consumer.receive().expect("it was sent"), *b"ahead");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **What it leaves behind.** Nothing: the memory has a name only for those who look into the
//! descriptors of its participants, and is gone with the last of them, however they end.
//!
//! **Who may attach.** Processes of the same user, in the same pid and network namespace, and with the
//! same capabilities: a process with more of them (for example by `setcap cap_sys_nice`) hides its
//! descriptors from others, which then make a channel of their own. Give real-time rights by
//! RLIMIT_RTPRIO, or hand descriptors over ([`descriptor`], [`open`]).
//!
//! **Who has died.** Each participant holds a lock on a byte of the memory that the kernel releases
//! with it, so that death is told from silence. Who waits looks every 100 ms; what the dead one held
//! is taken back, and [`onbeat_flow::OnDeath`] says how the others go on. A process that is forked
//! off without executing another program shares the locks of its parent: do not fork participants.
mod name;
mod shared;

use nix::errno::Errno;
use onbeat_flow::region::Region;
use onbeat_flow::{Channel, CreateError, Medium, OpenError, Options};
use shared::SharedMemory;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long [`attach`] gives somebody who is just making the channel.
const MAKING: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(1);

/// Why a channel could not be had.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The name cannot be one.
    #[error("'{}' is no name for a channel: use 1 to 80 letters, digits and _ . - /", name.escape_default())]
    Name {
        /// As it was given.
        name: String,
    },
    /// Nobody has made it.
    #[error("there is no channel '{name}' that this user may attach to: create it first")]
    NotThere {
        /// Its name.
        name: String,
    },
    /// Somebody has made it.
    #[error("there is a channel '{name}' already, of process {pid}: attach to it, or end that")]
    Exists {
        /// Its name.
        name: String,
        /// Who has it.
        pid: u32,
    },
    /// More than one have it.
    #[error("there are several channels '{name}', of processes {pids:?}: end all but one")]
    Several {
        /// Its name.
        name: String,
        /// Who has them.
        pids: Vec<u32>,
    },
    /// Somebody else has been making one of that name for long.
    #[error("channel '{name}' is being made by somebody who does not get done: is it stopped?")]
    Busy {
        /// Its name.
        name: String,
    },
    /// It could not be made from these options.
    #[error("channel '{name}': {reason}")]
    Create {
        /// Its name.
        name: String,
        /// Why.
        reason: CreateError,
    },
    /// It does not fit, or is none.
    #[error("channel '{name}': {reason}")]
    Open {
        /// Its name.
        name: String,
        /// Why.
        reason: OpenError,
    },
    /// Its size can be changed while we use it.
    #[error("channel '{name}' can be cut off under its users: it was not made by onbeat")]
    Unsealed {
        /// Its name.
        name: String,
    },
    /// The kernel refused something.
    #[error("channel '{name}': cannot {what}: {errno}{}", hint(*errno))]
    System {
        /// Its name.
        name: String,
        /// What was tried.
        what: &'static str,
        /// Why not.
        errno: Errno,
    },
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::ENOMEM | Errno::ENOSPC => " (use fewer, or smaller, payloads)",
        Errno::EMFILE | Errno::ENFILE => " (raise `ulimit -n`)",
        _ => "",
    }
}

/// The channel of that name: made by who comes first, held against the same options for everybody
/// after. Not real-time safe: looks through all processes.
pub fn channel(name: &str, options: Options) -> Result<Channel, LinkError> {
    let making = name::Making::begin(name)?;
    match attach_now(name, Some(options)) {
        Err(LinkError::NotThere { .. }) => create_as(&making, options),
        other => other,
    }
}

/// Makes a channel; an error if there is one of that name.
pub fn create(name: &str, options: Options) -> Result<Channel, LinkError> {
    let making = name::Making::begin(name)?;
    if let Some(found) = name::find(name)? {
        return Err(LinkError::Exists {
            name: name.into(),
            pid: found.pid,
        });
    }
    create_as(&making, options)
}

/// Attaches to the channel of that name; with `options` it must have been made from the same.
pub fn attach(name: &str, options: Option<Options>) -> Result<Channel, LinkError> {
    let since = Instant::now();
    loop {
        match attach_now(name, options) {
            Err(
                LinkError::Unsealed { .. }
                | LinkError::Open {
                    reason: OpenError::Unfinished,
                    ..
                },
            ) if since.elapsed() < MAKING => std::thread::sleep(AGAIN),
            other => return other,
        }
    }
}

/// The same by a descriptor that its holder has handed over, for example to a container.
pub fn open(descriptor: BorrowedFd<'_>, options: Option<Options>) -> Result<Channel, LinkError> {
    let name = "(a descriptor)";
    open_memory(name, descriptor, options)
}

/// What a process needs to attach where names do not reach; for [`open`].
pub fn descriptor(name: &str) -> Result<OwnedFd, LinkError> {
    match name::find(name)? {
        Some(found) => Ok(found.file.into()),
        None => Err(LinkError::NotThere { name: name.into() }),
    }
}

fn attach_now(name: &str, options: Option<Options>) -> Result<Channel, LinkError> {
    let Some(found) = name::find(name)? else {
        return Err(LinkError::NotThere { name: name.into() });
    };
    open_memory(name, found.file.as_fd(), options)
}

fn open_memory(
    name: &str,
    descriptor: BorrowedFd<'_>,
    options: Option<Options>,
) -> Result<Channel, LinkError> {
    let expected = options.and_then(|o| o.memory_bytes().ok());
    let region = SharedMemory::open(name, descriptor, expected)?;
    let region: Box<dyn Region> = Box::new(region);
    Channel::open(region, options).map_err(|reason| LinkError::Open {
        name: name.into(),
        reason,
    })
}

fn create_as(making: &name::Making, options: Options) -> Result<Channel, LinkError> {
    let refused = |reason| LinkError::Create {
        name: making.name().into(),
        reason,
    };
    let size = options.memory_bytes().map_err(refused)?;
    let region = SharedMemory::create(making.name(), size)?;
    Channel::format(Box::new(region), options).map_err(refused)
}

/// The processes of this machine, as a [`Medium`]: every call to [`channel`] with names that begin
/// with the system's.
#[derive(Debug, Clone)]
pub struct Machine {
    system: String,
}

impl Machine {
    /// Channels of the system of that name, so that two that run at once do not meet.
    pub fn new(system: &str) -> Machine {
        Machine {
            system: system.into(),
        }
    }
}

impl Medium for Machine {
    type Error = LinkError;

    fn channel(&self, name: &str, options: Options) -> Result<Channel, LinkError> {
        channel(&format!("{}/{name}", self.system), options)
    }
}
