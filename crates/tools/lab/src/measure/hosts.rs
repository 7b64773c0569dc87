//! Two hosts on one machine: network namespaces, a veth pair between them, and a link of a given
//! rate.
//!
//! **Nothing stays behind.** The namespaces have no name. They live in descriptors of this process
//! and in the programs that run in them, which cannot outlive this process. With the last of these,
//! the kernel removes the interfaces and their configuration.

use crate::frame::programs::output;
use crate::frame::{LabError, Result};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const INTERFACE: &str = "link0";
/// The number of bytes that may leave on the limited link at once before the limit of its rate
/// applies. They take 0.13 ms at 1 Gbit/s.
const BURST: u32 = 16 << 10;
const UP_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    Sender,
    Receiver,
}

impl Host {
    pub fn address(self) -> &'static str {
        match self {
            Host::Sender => "10.77.0.1",
            Host::Receiver => "10.77.0.2",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    None,
    Rate {
        bits_per_second: u64,
    },
    /// The link has a limited rate, and `SO_PRIORITY` decides the order of packets. The qdisc
    /// `pfifo_fast` sorts the packets. It works like `tc prio` with three bands and the usual map,
    /// and every kernel has it.
    Sorted {
        bits_per_second: u64,
    },
}

pub struct Hosts {
    sender: File,
    receiver: File,
}

impl Hosts {
    pub fn new() -> Result<Hosts> {
        let hosts = Hosts {
            sender: namespace()?,
            receiver: namespace()?,
        };
        // `ip` finds the other namespace by the path of this process's descriptor.
        let there = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            hosts.receiver.as_raw_fd()
        );
        let pair = [
            "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE,
        ];
        hosts.ip(Host::Sender, &[&pair[..], &["netns", &there]].concat())?;
        for host in [Host::Sender, Host::Receiver] {
            let address = format!("{}/24", host.address());
            hosts.ip(host, &["address", "add", &address, "dev", INTERFACE])?;
            hosts.ip(host, &["link", "set", "lo", "up"])?;
            hosts.ip(host, &["link", "set", INTERFACE, "up"])?;
        }
        hosts.until_running()?;
        Ok(hosts)
    }

    /// Waits until the network interfaces of both hosts are up. The kernel may take a second to
    /// report this, and a middleware that starts earlier does not find the other host.
    fn until_running(&self) -> Result<()> {
        let until = Instant::now() + UP_WITHIN;
        let runs = |host| {
            let mut ip = self.command(host, "ip");
            let output = ip.args(["-o", "link", "show", "dev", INTERFACE]).output();
            output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("state UP"))
        };
        while !(runs(Host::Sender) && runs(Host::Receiver)) {
            if Instant::now() > until {
                let why = format!(
                    "the interfaces did not come up within {} s",
                    UP_WITHIN.as_secs()
                );
                return Err(LabError::unexpected("the hosts", why));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub fn command(&self, host: Host, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.enter(host, &mut command);
        command
    }

    pub fn enter(&self, host: Host, command: &mut Command) {
        let namespace = self.of(host).as_raw_fd();
        // SAFETY: setns is a plain system call and async-signal-safe. The descriptor stays open
        // until the child calls exec.
        unsafe {
            command.pre_exec(move || match libc::setns(namespace, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }

    pub fn run_on<T: Send + 'static>(
        &self,
        host: Host,
        run: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let namespace = self.of(host).try_clone()?;
        let thread = std::thread::spawn(move || {
            // SAFETY: setns takes a live descriptor and changes only this thread.
            match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => run(),
                _ => Err(io::Error::last_os_error()),
            }
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }

    pub fn limit(&self, limit: Limit) -> Result<()> {
        for host in [Host::Sender, Host::Receiver] {
            // This fails if no limit was set before, which is fine.
            let _ = self.tc(host, &["qdisc", "del", "dev", INTERFACE, "root"]);
            let (rate, sorted) = match limit {
                Limit::None => continue,
                Limit::Rate { bits_per_second } => (bits_per_second, false),
                Limit::Sorted { bits_per_second } => (bits_per_second, true),
            };
            let (rate, burst) = (format!("{rate}bit"), BURST.to_string());
            let mut tbf = vec![
                "qdisc", "add", "dev", INTERFACE, "root", "handle", "1:", "tbf",
            ];
            tbf.extend(["rate", &rate, "burst", &burst, "limit", "16mb"]);
            self.tc(host, &tbf)?;
            if sorted {
                let mut bands = vec!["qdisc", "add", "dev", INTERFACE, "parent", "1:1"];
                bands.extend(["handle", "10:", "pfifo_fast"]);
                self.tc(host, &bands)?;
            }
        }
        Ok(())
    }

    pub fn sent_bytes(&self, host: Host) -> Result<u64> {
        let counted = self.run_on(host, || {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
            let line = text.lines().find(|l| l.trim_start().starts_with(INTERFACE));
            let number = line.and_then(|l| l.split_whitespace().nth(9)?.parse().ok());
            number.ok_or_else(|| io::Error::other("no such interface"))
        });
        counted.map_err(|e| LabError::program("counting bytes of the link", e))
    }

    fn of(&self, host: Host) -> &File {
        match host {
            Host::Sender => &self.sender,
            Host::Receiver => &self.receiver,
        }
    }

    pub fn ip(&self, host: Host, words: &[&str]) -> Result<()> {
        self.configure(host, "ip", words)
    }

    fn tc(&self, host: Host, words: &[&str]) -> Result<()> {
        self.configure(host, "tc", words)
    }

    fn configure(&self, host: Host, program: &str, words: &[&str]) -> Result<()> {
        let mut command = self.command(host, program);
        command.args(words).stdin(Stdio::null());
        let what = format!("{program} {}", words.join(" "));
        output(&mut command, &what, "install iproute2").map(drop)
    }
}

fn namespace() -> Result<File> {
    let made = std::thread::spawn(|| {
        // SAFETY: unshare takes a plain number and changes only this thread.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => File::open("/proc/thread-self/ns/net"),
            _ => Err(io::Error::last_os_error()),
        }
    });
    let made = made.join();
    made.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        .map_err(|source| LabError::Kernel {
            action: "making a network namespace".into(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_reach_each_other_over_the_link() {
        let hosts = match Hosts::new() {
            Ok(hosts) => hosts,
            Err(e) => return eprintln!("SKIPPED: {e}"),
        };
        for limit in [
            Limit::Sorted {
                bits_per_second: 1_000_000_000,
            },
            Limit::None,
        ] {
            if let Err(e) = hosts.limit(limit) {
                return eprintln!("SKIPPED: {e}");
            }
        }
        let bind = || std::net::TcpListener::bind((Host::Receiver.address(), 0));
        let listener = hosts.run_on(Host::Receiver, bind).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connect = move || std::net::TcpStream::connect((Host::Receiver.address(), port));
        let connected = hosts.run_on(Host::Sender, connect).unwrap();
        assert!(hosts.sent_bytes(Host::Sender).unwrap() > 0);
        // A socket also keeps its namespace alive.
        drop((listener, connected));
        let before = hosts.receiver.try_clone().unwrap();
        drop(hosts);
        drop(before);
    }
}
