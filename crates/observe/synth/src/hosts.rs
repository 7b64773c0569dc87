//! Joins the traces of several hosts into one stream. The clock offset between two hosts is
//! estimated from the messages that they exchanged; then all events get the time of one clock.
//!
//! A message cannot be taken before it was published. Each message from A to B therefore limits
//! from above how far B's clock is ahead of A's. Each message back limits it from below. The
//! fastest messages of both directions give the narrowest interval. As in NTP, its middle is the
//! estimate, and half of its width is the largest possible error.

use onbeat_trace::{Event, EventKind, UNTOLD};
use rustc_hash::FxHashMap;

/// The maximum number of hosts in one model.
pub const MOST_HOSTS: usize = 16;
/// The possible distances between the first CPU numbers of two hosts: the CPUs of host `k` (from 0)
/// begin at `k` times the distance. onbeat uses the largest distance for which all CPU numbers stay
/// below 256, the limit of a model.
const CPUS: [u16; 4] = [100, 50, 25, 16];
const LINUX_IDS: u32 = 1 << 22;
/// The number of parts into which a recording is divided. The clock offset is estimated in each
/// part. The estimates show whether the clocks run at different rates.
const PARTS: usize = 16;
/// The minimum number of messages in each direction between two hosts for which one part of the
/// recording gives an estimate of the clock offset.
const FEW: usize = 5;

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    #[error("no messages went between host '{0}' and the other hosts, so the offset of the host's clock is unknown. Join traces that were recorded at the same time.")]
    Apart(String),
    #[error("{0} hosts are too many: a model can have at most {MOST_HOSTS}. Join the traces of fewer hosts.")]
    TooMany(usize),
    #[error(
        "host '{0}' has more than {1} CPUs, the limit per host for this number of hosts. Join fewer hosts."
    )]
    Cpus(String, u16),
}

/// The messages that a host published or took, with their source time stamps and the times on the
/// host's own clock. Grows with the recording, by 24 bytes per message.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    pub name: String,
    /// The id of the host's boot. Two traces of one boot share one clock.
    pub boot: String,
    published: FxHashMap<i64, u64>,
    taken: Vec<(i64, u64)>,
    unstamped: u64,
    cpus: u16,
}

impl Exchange {
    /// Creates an exchange without messages. `name` and `boot` are empty if they are unknown.
    pub fn new(name: &str, boot: &str) -> Self {
        Exchange {
            name: name.into(),
            boot: boot.into(),
            ..Exchange::default()
        }
    }

    /// Processes an event of the host.
    pub fn push(&mut self, event: &Event) {
        self.cpus = self.cpus.max(event.cpu);
        match event.kind {
            EventKind::Publish {
                source_ns: Some(stamp),
                ..
            } => drop(self.published.insert(stamp, event.time_ns)),
            EventKind::Publish { .. } => self.unstamped += 1,
            EventKind::Take {
                source_ns,
                taken: true,
                ..
            } => self.taken.push((source_ns, event.time_ns)),
            _ => {}
        }
    }

    /// Returns the messages of the host `from` that this host took. Each pair has the time of the
    /// take, and the difference to the time of the publication in ns. The two times are on
    /// different clocks, so the difference contains their offset.
    fn from<'a>(&'a self, from: &'a Exchange) -> impl Iterator<Item = (u64, i64)> + 'a {
        let here = |stamp: &i64| self.published.contains_key(stamp);
        let taken = self.taken.iter().filter(move |(stamp, _)| !here(stamp));
        taken.filter_map(|&(stamp, at)| {
            let published = *from.published.get(&stamp)?;
            Some((at, (i128::from(at) - i128::from(published)) as i64))
        })
    }
}

/// The clock of a host, compared with the clock of the first host.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// The time by which the host's clock is ahead of the first host's clock, in ns. Valid at
    /// `at_ns`.
    pub ahead_ns: i64,
    /// The largest possible error of `ahead_ns`, or `None` if messages went in one direction only.
    pub within_ns: Option<u64>,
    /// The difference of the clock rates: the number of ns that the host's clock gains on the first
    /// host's clock in each ns.
    pub drift: f64,
    /// The time on the host's own clock for which `ahead_ns` holds: the middle of the time in which
    /// the host exchanged messages.
    pub at_ns: u64,
    /// The number of messages that this host took from the host `beside`, and the number of
    /// messages that the host `beside` took from this host.
    pub messages: (usize, usize),
    /// The index of the host with whose clock this clock was compared directly.
    pub beside: usize,
    /// The number that the host's first CPU has in the model.
    pub first_cpu: u16,
    /// Counts items that this host published without a time stamp. onbeat cannot match takes on
    /// other hosts with these items.
    pub unstamped: u64,
}

impl Clock {
    fn first(of: &Exchange) -> Clock {
        Clock {
            ahead_ns: 0,
            within_ns: Some(0),
            drift: 0.0,
            at_ns: 0,
            messages: (0, 0),
            beside: 0,
            first_cpu: 0,
            unstamped: of.unstamped,
        }
    }

    /// Converts a time on this host's clock to the first host's clock.
    pub fn common_ns(&self, time_ns: u64) -> u64 {
        let since = time_ns as f64 - self.at_ns as f64;
        let ahead = i128::from(self.ahead_ns) + (since * self.drift).round() as i128;
        u64::try_from(i128::from(time_ns) - ahead).unwrap_or(0)
    }

    /// Converts an event of host number `host` to the first host's clock, and gives it ids that no
    /// other host has. Returns `None` for an event that concerns the host's own clock only.
    pub fn common(&self, mut event: Event, host: usize) -> Option<Event> {
        if host == 0 {
            return Some(event);
        }
        let shift = host as u32 * LINUX_IDS;
        let id = |id: u32| if id == 0 { 0 } else { id.saturating_add(shift) };
        event.time_ns = self.common_ns(event.time_ns);
        event.cpu = event.cpu.saturating_add(self.first_cpu);
        event.pid = id(event.pid);
        event.tid = id(event.tid);
        match &mut event.kind {
            // This offset dates items without stamps, which are matched on the first host only.
            EventKind::ClockOffset { .. } => return None,
            EventKind::SwitchIn { prev_tid, .. } => *prev_tid = id(*prev_tid),
            EventKind::Occupied { prev_tid, .. } if *prev_tid != UNTOLD => {
                *prev_tid = id(*prev_tid);
            }
            EventKind::SwitchOut { next_tid, .. } => *next_tid = id(*next_tid),
            EventKind::Wake { waker_tid } => *waker_tid = id(*waker_tid),
            EventKind::Fork {
                parent_pid,
                parent_tid,
                ..
            } => (*parent_pid, *parent_tid) = (id(*parent_pid), id(*parent_tid)),
            _ => {}
        }
        Some(event)
    }

    /// Returns a sentence that states the offset of this clock. The sentence is meant for the
    /// model's list of assumptions.
    pub fn sentence(&self, host: usize, hosts: &[Exchange]) -> String {
        let (name, beside) = (&hosts[host].name, &hosts[self.beside].name);
        let cpus = format!(
            "CPU n of host {name} has the number {} + n in this model.",
            self.first_cpu
        );
        if hosts[host].boot == hosts[self.beside].boot && !hosts[host].boot.is_empty() {
            return format!(
                "{name} and {beside} share one clock, because both were recorded in the same boot of one machine. {cpus}"
            );
        }
        let off = match self.within_ns {
            Some(within) => format!(
                "The error of the clock offset, and of latencies between {beside} and {name}, is at most {:.3} ms.",
                within as f64 / 1e6
            ),
            None => format!(
                "The clock offset is only a bound, because messages went in one direction only: the fastest message is assumed \
                 to have taken no time. Latencies between {beside} and {name} are too short by the time that this message \
                 really took."
            ),
        };
        let (to, back) = self.messages;
        let drift = match self.drift {
            0.0 => String::new(),
            d => format!(" and {:.2} ppm faster", d * 1e6),
        };
        let unstamped = match self.unstamped {
            0 => String::new(),
            n => format!(" {n} messages of {name} have no time stamp (Humble) and are not followed to other hosts."),
        };
        format!(
            "The clock of host {name} is assumed to be {:.3} ms ahead of the first host's clock{drift}. This offset was estimated from {to} messages from host {beside} to host {name} and {back} messages back. {off} {cpus}{unstamped}",
            self.ahead_ns as f64 / 1e6
        )
    }
}

/// Estimates each host's clock in comparison with the first host's clock.
///
/// Each host is compared with a host whose clock is already known. The pair with the smallest
/// possible error comes first.
///
/// # Errors
///
/// Returns [`HostsError`] if a host has no messages with the others, or if there are too many hosts
/// or CPUs.
pub fn clocks(hosts: &[Exchange]) -> Result<Vec<Clock>, HostsError> {
    if hosts.len() > MOST_HOSTS {
        return Err(HostsError::TooMany(hosts.len()));
    }
    let fits = |n: &&u16| usize::from(**n) * hosts.len() <= 256;
    let cpus = CPUS.iter().find(fits).copied().unwrap_or(0);
    if let Some(host) = hosts.iter().find(|h| h.cpus >= cpus) {
        return Err(HostsError::Cpus(host.name.clone(), cpus));
    }
    let mut clocks: Vec<Option<Clock>> = vec![None; hosts.len()];
    if let Some(first) = hosts.first() {
        clocks[0] = Some(Clock::first(first));
    }
    while let Some(missing) = clocks.iter().position(Option::is_none) {
        let known = clocks
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((i, c.as_ref()?)));
        let pairs = known.flat_map(|(i, known)| {
            let open = (0..hosts.len()).filter(|&j| clocks[j].is_none());
            open.filter_map(move |j| Some((j, beside(hosts, (i, known), j)?)))
        });
        let sure = |c: &Clock| c.within_ns.unwrap_or(u64::MAX);
        let best = pairs.min_by_key(|(_, clock)| sure(clock));
        let (host, clock) = best.ok_or_else(|| HostsError::Apart(hosts[missing].name.clone()))?;
        clocks[host] = Some(clock);
    }
    let mut clocks: Vec<Clock> = clocks.into_iter().flatten().collect();
    for (host, clock) in (0..).zip(&mut clocks) {
        clock.first_cpu = cpus * host;
    }
    Ok(clocks)
}

/// Estimates the clock of host `j` from its messages with host `i`, whose clock is `known`. Returns
/// `None` if the two hosts exchanged no messages.
fn beside(hosts: &[Exchange], (i, known): (usize, &Clock), j: usize) -> Option<Clock> {
    if !hosts[i].boot.is_empty() && hosts[i].boot == hosts[j].boot {
        return Some(Clock {
            unstamped: hosts[j].unstamped,
            beside: i,
            first_cpu: 0,
            ..known.clone()
        });
    }
    // Times are on the common clock for the known host and on the own clock for the other one.
    let on_common = |own_known: u64| i128::from(own_known) - i128::from(known.common_ns(own_known));
    let there: Vec<(f64, f64)> = hosts[j]
        .from(&hosts[i])
        .map(|(at, delay)| {
            let published = (i128::from(at) - i128::from(delay)) as u64;
            (at as f64, (i128::from(delay) + on_common(published)) as f64)
        })
        .collect();
    let back: Vec<(f64, f64)> = hosts[i]
        .from(&hosts[j])
        .map(|(at, delay)| {
            let published = i128::from(at) - i128::from(delay);
            (
                published as f64,
                (-i128::from(delay) + on_common(at)) as f64,
            )
        })
        .collect();
    let times = || there.iter().chain(&back).map(|m| m.0);
    let (first, last) = (
        times().fold(f64::MAX, f64::min),
        times().fold(0.0, f64::max),
    );
    if there.is_empty() && back.is_empty() {
        return None;
    }
    let middle = (first + last) / 2.0;
    let drift = drift(&there, &back, (first, last)).unwrap_or(0.0);
    // The rest without the drift limits the offset from above and from below.
    let rest = |m: &(f64, f64)| m.1 - (m.0 - middle) * drift;
    let most = there.iter().map(rest).reduce(f64::min);
    let least = back.iter().map(rest).reduce(f64::max);
    let (ahead, within) = match (most, least) {
        (Some(most), Some(least)) => ((most + least) / 2.0, Some((most - least).abs() / 2.0)),
        (one, other) => (one.or(other)?, None),
    };
    let within = within
        .zip(known.within_ns)
        .map(|(w, k)| (w.ceil() as u64).saturating_add(k));
    Some(Clock {
        ahead_ns: ahead.round() as i64,
        within_ns: within,
        drift,
        at_ns: middle as u64,
        messages: (there.len(), back.len()),
        beside: i,
        first_cpu: 0,
        unstamped: hosts[j].unstamped,
    })
}

/// Returns the difference of the rates of two clocks, in ns per ns. This is the slope of a line
/// through the clock offsets that were estimated in [`PARTS`] parts of the time from `first` to
/// `last`. Returns `None` if there are fewer than four estimates, or if the slope is not more than
/// four times its standard error.
///
/// `there` and `back` have the messages of the two directions. Each pair has the time of a message,
/// and the limit that it sets for the clock offset.
fn drift(there: &[(f64, f64)], back: &[(f64, f64)], (first, last): (f64, f64)) -> Option<f64> {
    let length = (last - first) / PARTS as f64;
    let mut points = Vec::new();
    for i in 0..PARTS {
        let from = first + i as f64 * length;
        let within = |m: &&(f64, f64)| m.0 >= from && m.0 < from + length;
        let (a, b) = (there.iter().filter(within), back.iter().filter(within));
        if a.clone().count() >= FEW && b.clone().count() >= FEW {
            let most = a.map(|m| m.1).fold(f64::MAX, f64::min);
            let least = b.map(|m| m.1).fold(f64::MIN, f64::max);
            points.push((from + length / 2.0, (most + least) / 2.0));
        }
    }
    let n = points.len() as f64;
    if points.len() < 4 {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
    let rest = points.iter().map(|p| (p.1 - y - (p.0 - x) * slope).powi(2));
    let error = (rest.sum::<f64>() / (n - 2.0) / spread).sqrt();
    (slope.abs() > 4.0 * error).then_some(slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        ahead: i64,
        drift: f64,
        seen: Exchange,
    }

    impl Machine {
        fn new(name: &str, ahead: i64, drift: f64) -> Self {
            let seen = Exchange::new(name, name);
            Machine { ahead, drift, seen }
        }

        fn own(&self, true_ns: u64) -> u64 {
            let drifted = (true_ns as f64 * self.drift) as i64;
            true_ns.saturating_add_signed(self.ahead + drifted)
        }

        fn push(&mut self, true_ns: u64, kind: EventKind) {
            let (pid, tid) = (7, 7);
            let time_ns = self.own(true_ns);
            let event = Event {
                time_ns,
                cpu: 1,
                pid,
                tid,
                kind,
            };
            self.seen.push(&event);
        }
    }

    fn message(from: &mut Machine, to: &mut Machine, at: u64, takes: u64) {
        // Two machines never publish in the same nanosecond.
        let own = u64::from(from.seen.name.as_bytes()[0]);
        let source_ns = (from.own(at) + 1_000 + own) as i64;
        let (rmw, message) = (1, 2);
        from.push(
            at,
            EventKind::Publish {
                rmw,
                message,
                source_ns: Some(source_ns),
            },
        );
        to.push(
            at + takes,
            EventKind::Take {
                rmw,
                message,
                source_ns,
                taken: true,
            },
        );
    }

    const START: u64 = 1_000_000_000_000;
    const MS: u64 = 1_000_000;

    /// Sends messages in both directions for a minute. The fastest take 100 µs from `a` to `b` and
    /// `back` µs from `b` to `a`.
    fn minute(a: &mut Machine, b: &mut Machine, back: u64) {
        let mut random = 12_345_u64;
        for i in 0..600 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let queue = (random >> 40) % 3_000_000;
            message(a, b, START + i * 100 * MS, 100_000 + queue * (i % 3));
            message(
                b,
                a,
                START + i * 100 * MS + 30 * MS,
                back * 1_000 + queue * ((i + 1) % 3),
            );
        }
    }

    #[test]
    fn messages_in_both_directions_limit_the_clock_offset() {
        for ahead in [0, 37_000_000_123, -5_000_000_000] {
            let (mut a, mut b) = (Machine::new("a", 0, 0.0), Machine::new("b", ahead, 0.0));
            minute(&mut a, &mut b, 140);
            let found = &clocks(&[a.seen, b.seen]).unwrap()[1];
            // The limit is half of the difference between the two directions.
            assert!((found.ahead_ns - ahead).abs() <= 20_001, "{found:?}");
            let within = found.within_ns.unwrap();
            assert!((119_000..=121_000).contains(&within), "{found:?}");
            assert_eq!((found.drift, found.messages), (0.0, (600, 600)));
        }
    }

    #[test]
    fn the_drift_of_a_faster_clock_is_estimated() {
        let (mut a, mut b) = (
            Machine::new("a", 0, 0.0),
            Machine::new("b", 2_000_000_000, 40e-6),
        );
        minute(&mut a, &mut b, 100);
        let found = clocks(&[a.seen.clone(), b.seen.clone()]).unwrap().remove(1);
        assert!((found.drift - 40e-6).abs() < 1e-6, "{found:?}");
        for at in [START, START + 30_000 * MS, START + 59_000 * MS] {
            let off = found.common_ns(b.own(at)).abs_diff(at);
            // Without the drift, the error would be 1.2 ms at both ends.
            assert!(off < 30_000, "{off} at {at}");
        }
    }

    #[test]
    fn messages_in_one_direction_limit_the_clock_offset_from_one_side_and_the_model_says_so() {
        let (mut a, mut b) = (Machine::new("a", 0, 0.0), Machine::new("b", 5_000_000, 0.0));
        (0..100).for_each(|i| message(&mut a, &mut b, START + i * MS, 80_000 + i));
        let hosts = [a.seen, b.seen];
        let found = clocks(&hosts).unwrap();
        assert_eq!((found[1].ahead_ns, found[1].within_ns), (5_080_000, None));
        assert!(found[1].sentence(1, &hosts).contains("one direction only"));
    }

    #[test]
    fn clocks_are_compared_pairwise_by_smallest_error_and_a_host_without_messages_is_refused() {
        let mut m = [
            Machine::new("a", 0, 0.0),
            Machine::new("b", 700_000_000, 0.0),
            Machine::new("c", -300_000_000, 0.0),
        ];
        let [a, b, c] = &mut m;
        minute(a, b, 100);
        minute(b, c, 100);
        let hosts = m.map(|m| m.seen);
        let found = clocks(&hosts).unwrap();
        assert_eq!((found[1].beside, found[2].beside), (0, 1));
        assert_eq!((found[1].first_cpu, found[2].first_cpu), (50, 100));
        assert!((found[2].ahead_ns + 300_000_000).abs() < 1_000, "{found:?}");
        let within: Vec<u64> = found.iter().filter_map(|c| c.within_ns).collect();
        assert!(
            within[2] > within[1],
            "the possible errors add up: {within:?}"
        );
        let strangers = [hosts[0].clone(), hosts[2].clone()];
        assert_eq!(clocks(&strangers), Err(HostsError::Apart("c".into())));
    }

    #[test]
    fn traces_of_one_boot_share_one_clock() {
        let of = |name: &str, boot: &str| Exchange::new(name, boot);
        let hosts = [of("a", "b1"), of("c", "b1")];
        let found = clocks(&hosts).unwrap();
        assert_eq!((found[1].ahead_ns, found[1].within_ns), (0, Some(0)));
        assert!(found[1].sentence(1, &hosts).contains("same boot"));
        assert!(
            clocks(&[of("a", ""), of("c", "")]).is_err(),
            "unknown boots are not the same boot"
        );
    }

    #[test]
    fn ids_of_two_hosts_differ_and_the_idle_thread_stays_0() {
        let clock = Clock {
            ahead_ns: 5,
            first_cpu: 200,
            ..Clock::first(&Exchange::default())
        };
        let kind = EventKind::SwitchIn {
            prev_tid: 0,
            priority: 120,
            policy: 0,
        };
        let event = Event {
            time_ns: 100,
            cpu: 3,
            pid: 8,
            tid: 9,
            kind,
        };
        let moved = clock.common(event.clone(), 2).unwrap();
        assert_eq!((moved.time_ns, moved.cpu), (95, 203));
        assert_eq!(
            (moved.pid, moved.tid),
            (8 + 2 * LINUX_IDS, 9 + 2 * LINUX_IDS)
        );
        assert!(matches!(
            moved.kind,
            EventKind::SwitchIn { prev_tid: 0, .. }
        ));
        assert_eq!(clock.common(event.clone(), 0), Some(event));
    }
}
