//! The places of the two ends in tests over RDMA: two addresses that RDMA devices have, each in a
//! network namespace or `-`: `ONBEAT_RDMA="10.9.0.1 /run/netns/a 10.9.0.2 /run/netns/b"`. `./dev
//! test link-verbs` boots a guest that has them.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

#[derive(Clone)]
pub struct Place {
    pub address: IpAddr,
    namespace: String,
}

pub fn places() -> [Place; 2] {
    let text = std::env::var("ONBEAT_RDMA").expect("no RDMA devices: run ./dev test link-verbs");
    let words: Vec<_> = text.split(' ').collect();
    let place = |at: usize| Place {
        address: words[at].parse().unwrap(),
        namespace: words[at + 1].into(),
    };
    [place(0), place(2)]
}

fn enter(namespace: &File) {
    // SAFETY: the call affects only this thread.
    let code = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

impl Place {
    /// Runs a function in the network namespace to which this RDMA address belongs. Threads that
    /// the function starts stay in the namespace.
    pub fn within<T>(&self, run: impl FnOnce() -> T) -> T {
        if self.namespace == "-" {
            return run();
        }
        let here = File::open("/proc/thread-self/ns/net").unwrap();
        enter(&File::open(&self.namespace).unwrap());
        let done = run();
        enter(&here);
        done
    }
}
