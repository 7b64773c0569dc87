//! Finds channels by name, within a process, a machine or a network.
//!
//! A program names its medium in one place, and its parts can then run in one process or on several
//! hosts. A medium for a network gives each host a [`Channel`] of its own: an item that one host
//! sends into its channel comes out of the other host's channel. So a program always sends and
//! receives with the same types.

use super::attach::Channel;
use super::description::OpenError;
use super::events::LinkId;
use super::options::{CreateError, Options};
use std::collections::HashMap;
use std::sync::Mutex;
use thiserror::Error;

/// A set of channels with names: those of this process, or those in the shared memory of a machine.
pub trait Medium {
    /// The error of [`Medium::channel`].
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns the channel with that name. The first call creates it with these options. Later
    /// calls fail if their options differ. Not real-time safe.
    fn channel(&self, name: &str, options: Options) -> Result<Channel, Self::Error>;
}

/// The reason why [`InProcess`] could not return a channel.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InProcessError {
    #[error("channel '{name}': {reason}")]
    Create { name: String, reason: CreateError },
    #[error("channel '{name}': {reason}")]
    Open { name: String, reason: OpenError },
}

/// The channels of this process by name. Until this value is dropped, each name refers to the same
/// channel.
#[derive(Debug, Default)]
pub struct InProcess {
    channels: Mutex<HashMap<String, Channel>>,
}

impl InProcess {
    /// Creates a medium without channels.
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
