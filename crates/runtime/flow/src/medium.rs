//! What carries a channel from one participant to the other, by name: so that a program says in one
//! line whether its parts share a process, a machine or a network.
//!
//! A medium of a network gives each host a [`Channel`] of its own: what is sent into it here comes
//! out of it there. So whoever sends or receives always does it with the same types.

use crate::channel::Channel;
use crate::options::{CreateError, OpenError, Options};
use std::collections::HashMap;
use std::sync::Mutex;
use thiserror::Error;

/// Where channels are found by name.
pub trait Medium {
    /// Why a channel could not be had.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The channel of that name: made from these options by who comes first, and held against them
    /// for everybody after. Not real-time safe.
    fn channel(&self, name: &str, options: Options) -> Result<Channel, Self::Error>;
}

/// Why a channel within a process could not be had.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InProcessError {
    /// It could not be made.
    #[error("channel '{name}': {reason}")]
    Create {
        /// Its name.
        name: String,
        /// Why.
        reason: CreateError,
    },
    /// It was made from other options.
    #[error("channel '{name}': {reason}")]
    Open {
        /// Its name.
        name: String,
        /// Why.
        reason: OpenError,
    },
}

/// Channels of this process, which live as long as this value.
#[derive(Debug, Default)]
pub struct InProcess {
    channels: Mutex<HashMap<String, Channel>>,
}

impl InProcess {
    /// Without channels.
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
        channels.insert(name.into(), channel.clone());
        Ok(channel)
    }
}
