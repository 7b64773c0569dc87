//! Links by the fastest backend that both ends have: shared memory on one machine, RDMA if both
//! have a device, else TCP.
//!
//! The two ends connect over TCP, with the handshake of [`crate::tcp`], and exchange sealed offers
//! of what they have. Both choose by the same function. Then they link by the chosen backend. The
//! address is always one of TCP.
//!
//! **No silent fall-back.** If only one end has a faster backend, both ends learn about it.
//! [`OnFallBack`] says whether an end prints a warning, accepts, or refuses. If one refuses, both
//! get [`Refusal::FallBack`]. [`Auto::chosen`] returns the choice. If the chosen backend fails
//! later, that is an error, and no other backend is tried.
//!
//! Not real-time safe. The returned halves are those of the chosen backend, with its guarantees.

mod offer;

pub use offer::{choose, Choice, End, Lack, Offer, Passed, Place, Way};

use crate::interface::{
    Backend, Halves, Incoming, Memory, Outgoing, Refusal, SendError, SetupError, Shown, Sizes,
};
use crate::quiet::Waking;
use crate::sealed::{self, Counter};
use crate::tcp::door::Keeper;
use crate::tcp::handshake::{Agreed, Hello};
use crate::tcp::supervise::Terms;
use crate::tcp::{self, Key, Tcp};
use crate::Shm;
use onbeat_flow::clock::now_ns;
use onbeat_flow::events::LinkId;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The chunk size by which a peer recognises the hello, the first record of the handshake, of an
/// [`Auto`] end. No plain TCP end has chunks of this size, so a plain TCP end refuses this hello.
const ANY_BACKEND: usize = u32::MAX as usize;
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without a peer, in ns, after which both ends connect and choose a backend again. One
/// end may have missed the last record of the previous choice.
const CHOOSE_AGAIN_NS: u64 = 10_000_000_000;

/// The largest number of times that an end chooses a backend again because its peer refused it for
/// different options. The peer may have missed the last choice. A further refusal is an error.
const MOST_REFUSALS: u32 = 3;

/// The reaction of an end if only one of the two ends has a faster backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFallBack {
    /// The end prints a warning on standard error and uses the slower backend.
    Say,
    /// The end uses the slower backend without a warning. [`Auto::chosen`] returns the choice.
    Accept,
    /// The end refuses the link, and both ends get an error.
    Refuse,
}

/// A backend that connects two ends by the fastest backend that both of them have.
#[derive(Debug)]
pub struct Auto {
    tcp: Tcp,
    on_fall_back: OnFallBack,
    chosen: Mutex<Option<Choice>>,
}

impl Auto {
    /// Makes the end that listens at `address` for one peer.
    ///
    /// # Errors
    /// The address is in use or does not belong to this machine.
    pub fn listen(address: SocketAddr, key: Key) -> Result<Auto, SetupError> {
        Ok(Auto::of(Tcp::listen(address, key)?))
    }

    /// Makes the end that connects to `address`. `key` must be the key of the listening end.
    pub fn connect(address: SocketAddr, key: Key) -> Auto {
        Auto::of(Tcp::connect(address, key))
    }

    /// Makes an end with the address of `tcp`. The options of `tcp` apply if TCP is chosen.
    pub fn of(tcp: Tcp) -> Auto {
        Auto {
            tcp,
            on_fall_back: OnFallBack::Say,
            chosen: Mutex::new(None),
        }
    }

    /// Sets what this end does if only one end has a faster backend; [`OnFallBack::Say`] by
    /// default.
    pub fn on_fall_back(mut self, what: OnFallBack) -> Auto {
        self.on_fall_back = what;
        self
    }

    /// Returns the address at which this end listens, or to which it connects.
    pub fn address(&self) -> SocketAddr {
        self.tcp.address()
    }

    /// Returns the latest choice of a backend, or `None` before the first one.
    pub fn chosen(&self) -> Option<Choice> {
        self.chosen
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .clone()
    }

    fn error(&self, what: &'static str) -> impl FnOnce(Error) -> SetupError {
        tcp::system(self.address(), what)
    }

    fn connect_and_choose(
        &self,
        sizes: Sizes,
        own_memory: bool,
        deadline_ns: Option<u64>,
    ) -> Result<(Choice, Hello), SetupError> {
        let mut terms = Terms {
            key: self.tcp.key.clone(),
            hello: Hello {
                sizes,
                chunk: ANY_BACKEND,
                sealed: true,
                session: None,
                is_unheard: false,
            },
            resume_within_ns: 0,
            // The chosen backend has a status page of its own.
            page: None,
        };
        let (mut wake, _waking) = Waking::new().map_err(self.error("create a pipe"))?;
        loop {
            let (stream, agreed) = self.tcp.meet(&terms, &mut wake, deadline_ns)?;
            let met = self.exchange_offers(&stream, &agreed, own_memory);
            let (choice, refused) = match met {
                Ok(met) => met,
                Err(e) if e.kind() == ErrorKind::InvalidData => {
                    return Err(self.tcp.refused(Refusal::Garbage))
                }
                // The connection was cut. The peer connects again if it still runs.
                Err(_) if deadline_ns.is_none_or(|d| now_ns() < d) => continue,
                Err(e) => return Err(self.error("choose a backend")(e)),
            };
            if refused {
                let what = choice.to_string();
                return Err(self.tcp.refused(Refusal::FallBack { what }));
            }
            terms.hello.session = Some(agreed.session);
            return Ok((choice, terms.hello));
        }
    }

    fn exchange_offers(
        &self,
        stream: &TcpStream,
        agreed: &Agreed,
        own_memory: bool,
    ) -> std::io::Result<(Choice, bool)> {
        stream.set_read_timeout(Some(RECORD_TIMEOUT))?;
        let ours = offer(stream, own_memory, self.on_fall_back == OnFallBack::Refuse)?;
        let (mut sent, mut received) = (Counter::new(), Counter::new());
        sealed::send(&mut &*stream, &agreed.keys, &mut sent, &ours.bytes())?;
        let theirs = sealed::receive(&mut &*stream, &agreed.keys, &mut received, Offer::parse)?;
        let choice = match self.tcp.listener() {
            Some(_) => choose(&ours, &theirs),
            None => choose(&theirs, &ours),
        };
        let refuses = ours.refuses || theirs.refuses;
        let refused = refuses && !choice.passed.is_empty();
        Ok((choice, refused))
    }

    fn backend(&self, way: Way, name: &str) -> Result<Box<dyn Backend>, SetupError> {
        let again = || self.tcp.again().map_err(self.error("use the socket"));
        Ok(match way {
            Way::Shm if self.tcp.listener().is_some() => Box::new(Shm::listen(name)),
            Way::Shm => Box::new(Shm::connect(name)),
            #[cfg(feature = "verbs")]
            Way::Verbs => Box::new(crate::Verbs::over(again()?)),
            // Never chosen without the feature.
            #[cfg(not(feature = "verbs"))]
            Way::Verbs => Box::new(again()?),
            Way::Tcp => Box::new(again()?),
        })
    }

    fn note(&self, choice: Choice) {
        if self.on_fall_back == OnFallBack::Say && !choice.passed.is_empty() {
            eprintln!("onbeat: link {}: {choice}", self.address());
        }
        *self.chosen.lock().unwrap_or_else(|e| e.into_inner()) = Some(choice);
    }
}

fn own_place() -> Option<Place> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = boot.trim().split('-').collect();
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let capabilities = status.lines().find_map(|l| l.strip_prefix("CapPrm:"))?;
    let inode = |kind: &str| {
        let path = format!("/proc/thread-self/ns/{kind}");
        std::fs::metadata(path).ok().map(|found| found.ino())
    };
    Some(Place {
        boot: u128::from_str_radix(&digits, 16).ok()?.to_be_bytes(),
        user: nix::unistd::geteuid().as_raw(),
        namespaces: [inode("pid")?, inode("net")?, inode("user")?],
        capabilities: u64::from_str_radix(capabilities.trim(), 16).ok()?,
    })
}

fn is_memory_findable() -> bool {
    // SAFETY: the call only reads a flag.
    unsafe { nix::libc::prctl(nix::libc::PR_GET_DUMPABLE) == 1 }
}

#[cfg(feature = "verbs")]
fn no_verbs(stream: &TcpStream) -> std::io::Result<Option<Lack>> {
    let address = stream.local_addr()?.ip().to_canonical();
    Ok((!crate::verbs::is_on(address)).then_some(Lack::Device))
}

#[cfg(not(feature = "verbs"))]
fn no_verbs(_: &TcpStream) -> std::io::Result<Option<Lack>> {
    Ok(Some(Lack::Feature))
}

fn offer(stream: &TcpStream, own_memory: bool, refuses: bool) -> std::io::Result<Offer> {
    let place = own_place();
    let no_shm = match place {
        _ if own_memory => Some(Lack::OwnMemory),
        Some(_) if is_memory_findable() => None,
        _ => Some(Lack::Hidden),
    };
    Ok(Offer {
        place: place.unwrap_or_default(),
        no_shm,
        no_verbs: no_verbs(stream)?,
        refuses,
    })
}

/// Returns the name of the memory that the two ends of a session share. Only a holder of the key
/// can guess this name.
fn memory_name(hello: &Hello) -> String {
    let session = hello.session.map(|s| *s.bytes()).unwrap_or_default();
    let digits = session[..16].iter().map(|b| format!("{b:02x}"));
    format!("auto/{}", digits.collect::<String>())
}

fn check(sizes: Sizes, memory: &Memory) -> Result<(), SetupError> {
    let needed = sizes.memory_bytes()?;
    let given = match memory {
        Memory::Allot => return Ok(()),
        Memory::Given(block) => block.len(),
        Memory::Mapped(block) => block.len(),
    };
    let error = SetupError::Memory { needed, given };
    (given >= needed).then_some(()).ok_or(error)
}

impl Backend for Auto {
    fn initialize(
        &self,
        sizes: Sizes,
        memory: Memory,
        deadline_ns: Option<u64>,
    ) -> Result<Halves, SetupError> {
        check(sizes, &memory)?;
        let own_memory = !matches!(memory, Memory::Allot);
        let (mut memory, mut refusals) = (Some(memory), 0);
        loop {
            let (choice, hello) = self.connect_and_choose(sizes, own_memory, deadline_ns)?;
            let choose_again_ns = now_ns() + CHOOSE_AGAIN_NS;
            // Memory is handed over once, so the application's memory allows only one try.
            let until = match deadline_ns {
                other if own_memory => other,
                Some(deadline) => Some(deadline.min(choose_again_ns)),
                None => Some(choose_again_ns),
            };
            let backend = self.backend(choice.way, &memory_name(&hello))?;
            let memory = memory.take().unwrap_or(Memory::Allot);
            let is_late = || deadline_ns.is_some_and(|d| now_ns() >= d);
            match backend.initialize(sizes, memory, until) {
                Err(SetupError::NoPeer { .. }) if !own_memory && !is_late() => {}
                // The peer missed the choice, and still tries to choose.
                Err(SetupError::Refused { reason, .. })
                    if reason == Refusal::Options && !own_memory && refusals < MOST_REFUSALS =>
                {
                    refusals += 1;
                }
                Err(other) => return Err(other),
                Ok(halves) => {
                    let in_memory = choice.way == Way::Shm;
                    self.note(choice);
                    return match self.tcp.listener() {
                        Some(listener) if in_memory => {
                            let keeper = Keeper::start(listener, &self.tcp.key, hello);
                            let keeper = keeper.map_err(self.error("start threads"))?;
                            Ok(kept(halves, Arc::new(keeper)))
                        }
                        _ => Ok(halves),
                    };
                }
            }
        }
    }
}

/// A half of a link that owns the end's [`Keeper`], a thread that refuses further peers at the
/// listening address.
struct Kept<H: ?Sized> {
    half: Box<H>,
    _keeper: Arc<Keeper>,
}

fn kept((outgoing, incoming): Halves, keeper: Arc<Keeper>) -> Halves {
    let _keeper = Arc::clone(&keeper);
    let half = outgoing;
    let outgoing = Box::new(Kept { half, _keeper });
    let (half, _keeper) = (incoming, keeper);
    (outgoing, Box::new(Kept { half, _keeper }))
}

impl Outgoing for Kept<dyn Outgoing> {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        self.half.send(bytes, deadline_ns, fill)
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        self.half.publish(bytes, fill)
    }

    fn page(&self) -> Option<Arc<dyn Shown>> {
        self.half.page()
    }

    fn unseen(&mut self) -> Option<LinkId> {
        self.half.unseen()
    }
}

impl Incoming for Kept<dyn Incoming> {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, crate::interface::End> {
        self.half.receive(deadline_ns, take)
    }

    fn read(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, crate::interface::End> {
        self.half.read(deadline_ns, take)
    }

    fn unseen(&mut self) -> Option<LinkId> {
        self.half.unseen()
    }
}
