//! The thread that hears what peers have acknowledged, for all connections of a process on a port. A
//! writer that waits for its own bytes alone hears of them itself.

use super::page::SEATS;
use super::transfer::Transfer;
use crate::helper;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io::Result;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;

/// The event that ends the thread.
const STOP: u64 = u64::MAX;

/// What the thread watches.
pub struct Watched {
    epoll: Epoll,
    stop: EventFd,
    transfers: Mutex<[Weak<Transfer>; SEATS]>,
}

/// The thread; ends with this value.
pub struct Watch {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

impl Watched {
    fn transfers(&self) -> MutexGuard<'_, [Weak<Transfer>; SEATS]> {
        self.transfers.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn run(&self) {
        let mut events = [EpollEvent::empty(); SEATS];
        loop {
            // Interrupted: nothing is lost.
            let count = self
                .epoll
                .wait(&mut events, EpollTimeout::NONE)
                .unwrap_or(0);
            for event in &events[..count] {
                if event.data() == STOP {
                    return;
                }
                let seat = event.data() as usize % SEATS;
                let transfer = self.transfers()[seat].upgrade();
                // A connection that has ended tells nothing else.
                let goes_on = !event.events().contains(EpollFlags::EPOLLHUP);
                if let Some(transfer) = transfer.filter(|t| t.heard() && goes_on) {
                    self.hear(&transfer);
                }
            }
        }
    }

    /// From now on the transfer's connection is this one.
    pub fn begin(&self, transfer: &Arc<Transfer>, stream: &TcpStream) -> Result<()> {
        self.end(transfer);
        self.transfers()[transfer.seat()] = Arc::downgrade(transfer);
        // The same descriptor as later: the kernel knows what is watched by its number.
        let own = stream.try_clone()?;
        self.epoll.add(&own, Watched::next(transfer))?;
        transfer.begin(own);
        Ok(())
    }

    /// The next error or report of a connection, which is told without being asked for, and no other.
    fn next(transfer: &Transfer) -> EpollEvent {
        EpollEvent::new(EpollFlags::EPOLLONESHOT, transfer.seat() as u64)
    }

    /// Hears the transfer's next report; at once, if it is there already. Its posting thread waits
    /// for something else now.
    pub fn hear(&self, transfer: &Transfer) {
        // Not there any more: there is nothing to hear.
        let _ = transfer.watch(|stream| self.epoll.modify(stream, &mut Watched::next(transfer)));
    }

    /// The transfer has no connection any more.
    pub fn end(&self, transfer: &Transfer) {
        if let Some(stream) = transfer.end() {
            // Not there if it could not be added.
            let _ = self.epoll.delete(stream);
        }
    }
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel gives no thread or descriptor.
    pub fn start() -> Result<Watch> {
        let watched = Watched {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            stop: EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?,
            transfers: Mutex::new([const { Weak::new() }; SEATS]),
        };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, STOP);
        watched.epoll.add(&watched.stop, event)?;
        let watched = Arc::new(watched);
        let its = Arc::clone(&watched);
        let thread = Some(helper::start("link-port", move || its.run())?);
        Ok(Watch { watched, thread })
    }

    pub fn watched(&self) -> Arc<Watched> {
        Arc::clone(&self.watched)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.watched.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
