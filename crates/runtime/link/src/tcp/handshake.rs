//! The handshake: both ends prove that they have the key, and agree on version and sizes.
//!
//! The protocol is Noise with pattern NNpsk0. The key is mixed in before the first message, so an
//! end without the key gets no answer but *refused*. Both ends contribute a fresh Diffie-Hellman
//! share. So a recording cannot be replayed, and a key that is stolen later does not decrypt it.
//! (KK or IK would need a name for each machine, and more keys to distribute; a link has two ends
//! only.)
//!
//! | step | from | content |
//! |---|---|---|
//! | 1 | connecting | its hello, under the key |
//! | 2 | listening | its hello, or why it refuses, under the key and both shares |
//! | 3 | connecting | nothing, under the keys of this session: now the listening end trusts it |
//!
//! Step 1 alone can be replayed, so the listening end changes nothing before step 3. Until then an
//! existing session keeps its connection. If the connection breaks in step 3, one end has a session
//! and the other has none. The connecting end then says that it has heard nothing in its session
//! yet, and a listening end without a session takes it. Each step has a head in clear (magic,
//! version, step, length), which the prologue binds to the session. At most 256 bytes are read per
//! step.

use super::key::{Key, PATTERN};
use crate::interface::{Refusal, Sizes};
use snow::{HandshakeState, StatelessTransportState};
use std::io::{ErrorKind, Read, Write};
use thiserror::Error;

/// The version of the protocol. Ends with different versions refuse each other.
pub const VERSION: u16 = 2;
const MAGIC: [u8; 4] = *b"onbL";
const STEP_HEAD_BYTES: usize = 9;
const MOST_STEP_BYTES: usize = 256;
const HELLO_BYTES: usize = 61;

/// The first message of each end: the sizes, options and session that it proposes.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    pub sizes: Sizes,
    /// The size of a chunk's content, in bytes.
    pub chunk: usize,
    pub sealed: bool,
    /// The session that the end wants to resume. `None` asks for a new one.
    pub session: Option<Session>,
    /// The end has received nothing from its peer in this session, and therefore has sent nothing.
    /// A peer that has no session may accept an end in this state.
    pub is_unheard: bool,
}

/// The name of a session: the hash of its first handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session(pub(super) [u8; 32]);

impl Session {
    /// Returns the hash as bytes. Only a holder of the key can compute it.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The result of a finished handshake.
#[allow(missing_docs)]
pub struct Agreed {
    pub peer: Hello,
    /// The session of this connection. It is new, or it is the one that the peer resumes.
    pub session: Session,
    pub keys: StatelessTransportState,
}

/// The reason why a handshake failed.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum Failed {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the connection broke during the handshake: {0}")]
    Broken(#[from] std::io::Error),
}

impl Hello {
    pub(super) fn bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let sizes = self.sizes;
        let numbers = [
            sizes.credits as u64,
            sizes.message_bytes as u64,
            sizes.value_bytes as u64,
        ];
        for (at, number) in numbers.iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[24..28].copy_from_slice(&(self.chunk as u32).to_le_bytes());
        if let Some(session) = self.session {
            bytes[28..60].copy_from_slice(&session.0);
        }
        let flags = [self.sealed, self.session.is_some(), self.is_unheard];
        for (at, flag) in flags.into_iter().enumerate() {
            bytes[60] |= u8::from(flag) << at;
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Hello> {
        let bytes: &[u8; HELLO_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]));
        let size = |at| usize::try_from(number(at)).ok();
        let (chunk, flags) = (bytes[24..28].try_into().ok()?, bytes[60]);
        if flags > 7 {
            return None;
        }
        let session = Session(bytes[28..60].try_into().ok()?);
        Some(Hello {
            sizes: Sizes {
                credits: size(0)?,
                message_bytes: size(8)?,
                value_bytes: size(16)?,
            },
            chunk: u32::from_le_bytes(chunk) as usize,
            sealed: flags & 1 != 0,
            session: (flags & 2 != 0).then_some(session),
            is_unheard: flags & 4 != 0,
        })
    }

    /// Reports whether the end that sends this hello can continue with the peer that sent `theirs`.
    /// Both hellos must name the same session, unless both ask for a new one. An end without a
    /// session also accepts a peer that has received nothing in its session yet.
    pub fn takes(&self, theirs: &Hello) -> bool {
        let is_first = self.session.is_none() && theirs.is_unheard;
        is_first || self.session == theirs.session
    }

    /// Checks that the sizes and options of the two ends are the same.
    ///
    /// # Errors
    /// Fails with the first difference.
    pub fn check(&self, theirs: &Hello) -> Result<(), Refusal> {
        if self.sizes != theirs.sizes {
            let (ours, theirs) = (self.sizes, theirs.sizes);
            return Err(Refusal::Sizes { ours, theirs });
        }
        if self.sealed != theirs.sealed || self.chunk != theirs.chunk {
            return Err(Refusal::Options);
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Hello = 1,
    Answer = 2,
    Proof = 3,
    /// The key or the version is wrong. This step is not encrypted, because the ends have no common
    /// key.
    Refused = 4,
}

fn write_step(stream: &mut impl Write, step: Step, body: &[u8]) -> Result<(), Failed> {
    let mut bytes = Vec::with_capacity(STEP_HEAD_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.push(step as u8);
    bytes.extend((body.len() as u16).to_le_bytes());
    bytes.extend(body);
    stream.write_all(&bytes)?;
    Ok(stream.flush()?)
}

fn silent(error: std::io::Error) -> Failed {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Refusal::Silent.into(),
        _ => error.into(),
    }
}

fn read_step(
    stream: &mut impl Read,
    expected: Step,
    body: &mut [u8; MOST_STEP_BYTES],
) -> Result<usize, Failed> {
    let mut head = [0; STEP_HEAD_BYTES];
    stream.read_exact(&mut head).map_err(silent)?;
    if head[..4] != MAGIC {
        return Err(Refusal::Garbage.into());
    }
    let theirs = u16::from_le_bytes([head[4], head[5]]);
    if theirs != VERSION {
        let ours = VERSION;
        return Err(Refusal::Version { ours, theirs }.into());
    }
    let length = usize::from(u16::from_le_bytes([head[7], head[8]]));
    if head[6] == Step::Refused as u8 && expected != Step::Hello {
        return Err(Refusal::Key.into());
    }
    if head[6] != expected as u8 || length > MOST_STEP_BYTES {
        return Err(Refusal::Garbage.into());
    }
    stream.read_exact(&mut body[..length]).map_err(silent)?;
    Ok(length)
}

fn noise(key: &Key) -> snow::Builder<'_> {
    // These calls cannot fail: the pattern is known, and the key has 32 bytes.
    let builder = snow::Builder::new(PATTERN.parse().expect("a known pattern"));
    let builder = builder.psk(0, &key.0).expect("32 bytes");
    builder
        .prologue(b"onbeat link, version 1")
        .expect("set once")
}

fn agreed(noise: HandshakeState, peer: Hello) -> Result<Agreed, Failed> {
    let mut session = [0; 32];
    session.copy_from_slice(noise.get_handshake_hash());
    let keys = noise.into_stateless_transport_mode();
    Ok(Agreed {
        peer,
        session: Session(session),
        keys: keys.map_err(|_| Refusal::Garbage)?,
    })
}

/// Shakes hands as the connecting end.
///
/// # Errors
/// One end refuses the other, or the connection broke.
pub fn connect<S: Read + Write>(stream: &mut S, key: &Key, ours: Hello) -> Result<Agreed, Failed> {
    let mut noise = noise(key).build_initiator().map_err(|_| Refusal::Key)?;
    let (mut body, mut payload) = ([0; MOST_STEP_BYTES], [0; MOST_STEP_BYTES]);
    let written = noise.write_message(&ours.bytes(), &mut body);
    let length = written.map_err(|_| Refusal::Garbage)?;
    write_step(stream, Step::Hello, &body[..length])?;

    let length = read_step(stream, Step::Answer, &mut body)?;
    let read = noise.read_message(&body[..length], &mut payload);
    let length = read.map_err(|_| Refusal::Key)?;
    let (&status, hello) = payload[..length].split_first().ok_or(Refusal::Garbage)?;
    let peer = Hello::parse(hello).ok_or(Refusal::Garbage)?;
    match status {
        0 => {}
        1 => return Err(Refusal::InUse.into()),
        _ => {
            ours.check(&peer)?;
            return Err(Refusal::Options.into());
        }
    }
    ours.check(&peer)?;
    let agreed = agreed(noise, peer)?;
    let proof = agreed.keys.write_message(PROOF_NONCE, &[], &mut body);
    let length = proof.map_err(|_| Refusal::Garbage)?;
    write_step(stream, Step::Proof, &body[..length])?;
    Ok(agreed)
}

/// The nonce of the message that proves the key. No later message of the session uses it.
const PROOF_NONCE: u64 = u64::MAX - 1;

/// Shakes hands as the listening end. `answer` gets the peer's hello, and returns this end's hello
/// and, if this end refuses the peer, the reason.
///
/// # Errors
/// The errors of [`connect`].
pub fn accept<S: Read + Write>(
    stream: &mut S,
    key: &Key,
    answer: impl FnOnce(&Hello) -> (Hello, Option<Refusal>),
) -> Result<Agreed, Failed> {
    let mut noise = noise(key).build_responder().map_err(|_| Refusal::Key)?;
    let (mut body, mut payload) = ([0; MOST_STEP_BYTES], [0; MOST_STEP_BYTES]);
    let length = match read_step(stream, Step::Hello, &mut body) {
        Err(Failed::Refused(reason @ Refusal::Version { .. })) => {
            // The head contains this end's version.
            write_step(stream, Step::Refused, &[])?;
            return Err(reason.into());
        }
        other => other?,
    };
    let Ok(length) = noise.read_message(&body[..length], &mut payload) else {
        write_step(stream, Step::Refused, &[])?;
        return Err(Refusal::Key.into());
    };
    let peer = Hello::parse(&payload[..length]).ok_or(Refusal::Garbage)?;
    let (ours, refusal) = answer(&peer);
    let refusal = refusal.or(ours.check(&peer).err());
    let mut reply = [0; HELLO_BYTES + 1];
    reply[0] = match refusal {
        None => 0,
        Some(Refusal::InUse) => 1,
        Some(_) => 2,
    };
    reply[1..].copy_from_slice(&ours.bytes());
    let written = noise.write_message(&reply, &mut body);
    let length = written.map_err(|_| Refusal::Garbage)?;
    write_step(stream, Step::Answer, &body[..length])?;
    if let Some(reason) = refusal {
        return Err(reason.into());
    }
    let mut agreed = agreed(noise, peer)?;
    agreed.session = peer.session.unwrap_or(agreed.session);
    let length = read_step(stream, Step::Proof, &mut body)?;
    let proof = agreed
        .keys
        .read_message(PROOF_NONCE, &body[..length], &mut payload);
    proof.map_err(|_| Refusal::Key)?;
    Ok(agreed)
}
