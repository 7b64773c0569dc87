//! Channels for C: by name across processes, or within one process.

use crate::arguments::text;
use crate::error::{guarded, Failure, OnbeatCode, Outcome};
use crate::handle::{give, opaque, take_back, Handle};
use onbeat_flow::{Channel, OnDeath, OpenError, Options, Policy};
use onbeat_link::LinkError;
use std::ffi::c_char;

/// The policy of a channel for a consumer that is slower than the producer.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnbeatPolicy {
    /// A consumer gets the newest complete value. Neither producer nor consumer waits for the
    /// other.
    Latest = 0,
    /// A new item replaces the oldest of `items` waiting items. Replaced items are counted: see
    /// onbeat_consumer_dropped().
    DropOldest = 1,
    /// The producer waits while a consumer has not consumed `items` items. Nothing is lost.
    Credit = 2,
    /// The producer and each consumer have a buffer of `items` items each, and exchange full
    /// buffers for empty ones. Nothing is lost.
    Swap = 3,
}

/// The reaction to the death of a participant in another process.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnbeatOnDeath {
    /// After a participant's death, the other participants continue.
    Continue = 0,
    /// After a consumer's death, the producer waits until as many consumers as expected are
    /// attached again.
    Pause = 1,
    /// After a participant's death, the other side gets an error. Sending fails. Receiving fails
    /// once all items are received.
    Fail = 2,
}

/// The options that a channel is created with. Call onbeat_channel_options() for defaults, then
/// change single fields.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OnbeatChannelOptions {
    /// The policy for a slow consumer, as a number: a value of OnbeatPolicy.
    pub policy: u32,
    /// The number `items` that the values of OnbeatPolicy describe. ONBEAT_POLICY_LATEST ignores
    /// it.
    pub items: usize,
    /// Lets an idle consumer also get a buffer that is not full yet. Only ONBEAT_POLICY_SWAP uses
    /// it.
    pub flush: bool,
    /// The size of the largest payload in bytes.
    pub payload_bytes: usize,
    /// The largest number of consumers, 1 to 64.
    pub consumers: usize,
    /// The largest number of items that one consumer borrows at a time.
    pub borrowed: usize,
    /// The number of consumers that must attach before the first item is sent, so that no consumer
    /// misses that item.
    pub expected: usize,
    /// The reaction to a participant's death, as a number: a value of OnbeatOnDeath.
    pub on_death: u32,
}

/// Returns options for a channel with at most four consumers, one of which is expected.
/// ONBEAT_POLICY_LATEST ignores `items`.
#[no_mangle]
pub extern "C" fn onbeat_channel_options(
    policy: u32,
    items: usize,
    payload_bytes: usize,
) -> OnbeatChannelOptions {
    let usual = Options::new(Policy::Latest, payload_bytes);
    OnbeatChannelOptions {
        policy,
        items,
        flush: false,
        payload_bytes,
        consumers: usual.consumers,
        borrowed: usual.borrowed,
        expected: usual.expected,
        on_death: OnbeatOnDeath::Continue as u32,
    }
}

impl OnbeatChannelOptions {
    fn policy(&self) -> Outcome<Policy> {
        let (items, flush) = (self.items, self.flush);
        let of = |policy: OnbeatPolicy| policy as u32;
        Ok(match self.policy {
            p if p == of(OnbeatPolicy::Latest) => Policy::Latest,
            p if p == of(OnbeatPolicy::DropOldest) => Policy::DropOldest { depth: items },
            p if p == of(OnbeatPolicy::Credit) => Policy::Credit { credits: items },
            p if p == of(OnbeatPolicy::Swap) => Policy::Swap {
                length: items,
                flush,
            },
            other => {
                let text = format!("policy {other} is not a value of OnbeatPolicy. Give 0 to 3.");
                return Err(Failure::new(OnbeatCode::Argument, text));
            }
        })
    }

    fn on_death(&self) -> Outcome<OnDeath> {
        Ok(match self.on_death {
            d if d == OnbeatOnDeath::Continue as u32 => OnDeath::Continue,
            d if d == OnbeatOnDeath::Pause as u32 => OnDeath::Pause,
            d if d == OnbeatOnDeath::Fail as u32 => OnDeath::Fail,
            other => {
                let text =
                    format!("on_death {other} is not a value of OnbeatOnDeath. Give 0 to 2.");
                return Err(Failure::new(OnbeatCode::Argument, text));
            }
        })
    }

    fn options(&self) -> Outcome<Options> {
        Ok(Options {
            consumers: self.consumers,
            borrowed: self.borrowed,
            expected: self.expected,
            on_death: self.on_death()?,
            ..Options::new(self.policy()?, self.payload_bytes)
        })
    }
}

/// A handle of a channel, which has one producer, and one or more consumers.
#[derive(Debug)]
pub struct OnbeatChannel(Handle<Channel>);

opaque!(OnbeatChannel, Channel);

fn link_failure(error: LinkError) -> Failure {
    let code = match &error {
        LinkError::Name { .. } | LinkError::Create { .. } => OnbeatCode::Argument,
        LinkError::NotThere { .. } => OnbeatCode::NotThere,
        LinkError::Exists { .. } | LinkError::Several { .. } | LinkError::Busy { .. } => {
            OnbeatCode::InUse
        }
        LinkError::Open {
            reason: OpenError::Unfinished,
            ..
        } => OnbeatCode::NotThere,
        LinkError::Open { .. } | LinkError::Unsealed { .. } => OnbeatCode::Mismatch,
        LinkError::System { .. } => OnbeatCode::System,
    };
    Failure::new(code, error)
}

/// Reads the options that a pointer leads to.
///
/// # Safety
/// The pointer is null or leads to options.
unsafe fn options_at(options: *const OnbeatChannelOptions) -> Outcome<Options> {
    if options.is_null() {
        return Err(Failure::null("the pointer to the options is null"));
    }
    // SAFETY: not null, and the caller promises the rest.
    unsafe { options.read() }.options()
}

/// Opens the channel with this name, for processes of the same user. The first call creates it.
/// Later calls fail if their options differ. Not for a real-time thread: searches all processes of
/// the machine.
///
/// # Safety
/// `name` ends with 0, `options` can be read and `channel` can be written. Null is refused.
#[no_mangle]
pub unsafe extern "C" fn onbeat_channel_open(
    name: *const c_char,
    options: *const OnbeatChannelOptions,
    channel: *mut *mut OnbeatChannel,
) -> OnbeatCode {
    // SAFETY: the caller promises it, here and below.
    guarded(|| unsafe {
        give(channel, || {
            let (name, options) = (text(name)?, options_at(options)?);
            let found = onbeat_link::channel(name, options).map_err(link_failure)?;
            Ok(OnbeatChannel(Handle::from(found)))
        })
    })
}

/// Opens an existing channel with this name, with the options that it has. Returns
/// ONBEAT_CODE_NOT_THERE if there is none.
///
/// # Safety
/// The rules of onbeat_channel_open() apply.
#[no_mangle]
pub unsafe extern "C" fn onbeat_channel_attach(
    name: *const c_char,
    channel: *mut *mut OnbeatChannel,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(channel, || {
            let found = onbeat_link::attach(text(name)?, None).map_err(link_failure)?;
            Ok(OnbeatChannel(Handle::from(found)))
        })
    })
}

/// Creates a channel within this process.
///
/// # Safety
/// The rules of onbeat_channel_open() apply.
#[no_mangle]
pub unsafe extern "C" fn onbeat_channel_new(
    options: *const OnbeatChannelOptions,
    channel: *mut *mut OnbeatChannel,
) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe {
        give(channel, || {
            let made = Channel::new(options_at(options)?);
            let made = made.map_err(|e| Failure::new(OnbeatCode::Argument, e))?;
            Ok(OnbeatChannel(Handle::from(made)))
        })
    })
}

/// Closes the handle. Producers and consumers of the channel stay. Null is allowed.
///
/// # Safety
/// The handle is null or open.
#[no_mangle]
pub unsafe extern "C" fn onbeat_channel_close(channel: *mut OnbeatChannel) -> OnbeatCode {
    // SAFETY: the caller promises it.
    guarded(|| unsafe { take_back(channel) })
}
