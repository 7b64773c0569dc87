//! Channels by name, in whatever connects their participants: a program says in one line whether
//! its parts share a process, a machine or a network.
//!
//! A medium of a network gives each host a [`Channel`] of its own: an item that is sent into the
//! local one comes out of the remote one. So a program always sends and receives with the same
//! types.

use super::attach::Channel;
use super::description::OpenError;
use super::events::LinkId;
use super::options::{CreateError, Options};
use std::collections::HashMap;
use std::sync::Mutex;
use thiserror::Error;

/// A place where channels have names.
pub trait Medium {
    /// Why there is no such channel.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The channel of that name. The first call creates it with these options, and later calls
    /// check that theirs are the same. Not real-time safe.
    fn channel(&self, name: &str, options: Options) -> Result<Channel, Self::Error>;
}

/// Why there is no such channel within a process.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InProcessError {
    /// It could not be created.
    #[error("channel '{name}': {reason}")]
    Create {
        /// Name of the channel.
        name: String,
        /// What is wrong with the options.
        reason: CreateError,
    },
    /// It was created with other options.
    #[error("channel '{name}': {reason}")]
    Open {
        /// Name of the channel.
        name: String,
        /// The difference.
        reason: OpenError,
    },
}

/// Channels of this process. They live as long as this value.
#[derive(Debug, Default)]
pub struct InProcess {
    channels: Mutex<HashMap<String, Channel>>,
}

impl InProcess {
    /// A medium without channels yet.
    pub fn new() -> InProcess {
        InProcess::default()
    }
}

impl Medium for InProcess {
    type Error = InProcessError;

    fn channel(&self, name: &str, options: Options) -> Result<Channel, InProcessError> {
        let mut channels = self.channels.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(channel) = channels.get(name) {
            channel.check(&options).map_err(|reason| {
                let name = name.into();
                InProcessError::Open { name, reason }
            })?;
            return Ok(channel.clone());
        }
        let channel = Channel::new(options).map_err(|reason| {
            let name = name.into();
            InProcessError::Create { name, reason }
        })?;
        let channel = channel.known_as(LinkId::within_process(name));
        channels.insert(name.into(), channel.clone());
        Ok(channel)
    }
}
