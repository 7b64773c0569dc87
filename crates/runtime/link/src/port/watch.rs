//! The thread that hears of acknowledgements for all connections of a process on a port. A writer
//! that waits for its own bytes only hears of them itself.

use super::page::SEATS;
use super::transfer::Transfer;
use crate::helper;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io::Result;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;

const STOP: u64 = u64::MAX;

pub struct Watched {
    epoll: Epoll,
    stop: EventFd,
    transfers: Mutex<[Weak<Transfer>; SEATS]>,
}

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
            // An interrupted call loses no event.
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
                // A connection that has ended reports nothing else.
                let goes_on = !event.events().contains(EpollFlags::EPOLLHUP);
                if let Some(transfer) = transfer.filter(|t| t.on_socket_event() && goes_on) {
                    self.hear(&transfer);
                }
            }
        }
    }

    pub fn begin(&self, transfer: &Arc<Transfer>, stream: &TcpStream) -> Result<()> {
        self.end(transfer);
        self.transfers()[transfer.seat()] = Arc::downgrade(transfer);
        // Later calls use the same descriptor, because the kernel identifies a watched file by its
        // number.
        let own = stream.try_clone()?;
        self.epoll.add(&own, Watched::next(transfer))?;
        transfer.begin(own);
        Ok(())
    }

    /// Returns the epoll registration with which the port's thread wakes up once for the transfer's
    /// connection. It names no event, because the kernel always reports errors, and a report in the
    /// socket's error queue counts as an error.
    fn next(transfer: &Transfer) -> EpollEvent {
        EpollEvent::new(EpollFlags::EPOLLONESHOT, transfer.seat() as u64)
    }

    /// Makes the port's thread handle the next acknowledgement report of the transfer's connection.
    /// The thread wakes at once if the report is already there.
    pub fn hear(&self, transfer: &Transfer) {
        // If the connection has gone, there is nothing to hear.
        let _ = transfer.watch(|stream| self.epoll.modify(stream, &mut Watched::next(transfer)));
    }

    pub fn end(&self, transfer: &Transfer) {
        if let Some(stream) = transfer.end() {
            // The connection is not registered if it could not be added.
            let _ = self.epoll.delete(stream);
        }
    }
}

impl Watch {
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
