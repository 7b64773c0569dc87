//! Traces of several hosts as one stream: how far the hosts' clocks are apart, from the messages that they
//! exchanged, and events with the times of one clock.
//!
//! A message cannot be taken before it was published. So each message from A to B says by how much B's clock is
//! ahead of A's at most, and each one back by how much at least: the fastest of both directions leave the
//! smallest room, and the middle of it is the estimate, as in NTP. Half of the room is how far it can be off.

use onbeat_trace::{Event, EventKind, UNTOLD};
use rustc_hash::FxHashMap;

/// Most hosts of one model.
pub const MOST_HOSTS: usize = 16;
/// CPU `n` of the host number `k` (from 0) has so many times `k` plus `n` as its number in a model of several
/// hosts: the largest with which all numbers are among the 256 that a model tells apart.
const CPUS: [u16; 4] = [100, 50, 25, 16];
/// Processes' and threads' ids are smaller than this on Linux.
const IDS: u32 = 1 << 22;
/// Stretches of a recording, each with an estimate of its own, for clocks of different rates.
const STRETCHES: usize = 16;
/// Messages of each direction that a stretch needs.
const FEW: usize = 5;

/// Why traces of several hosts cannot be joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// No message went between them.
    #[error("no message of '{0}' was taken on another of the hosts, or sent to it: without one, nothing says how far their clocks are apart (were they recorded at one time?)")]
    Apart(String),
    /// More than are told apart.
    #[error("{0} hosts are too many: at most {MOST_HOSTS} can be joined")]
    TooMany(usize),
    /// Its CPUs have numbers of another host.
    #[error(
        "'{0}' has more than the {1} CPUs that a model of so many hosts tells apart: join fewer"
    )]
    Cpus(String, u16),
}

/// What a host published and took: stamps and the times on its own clock. Grows with the recording, by 24
/// bytes a message.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    /// The host's name, for messages.
    pub name: String,
    /// Id of its boot: two of one boot have one clock.
    pub boot: String,
    published: FxHashMap<i64, u64>,
    taken: Vec<(i64, u64)>,
    unstamped: u64,
    cpus: u16,
}

impl Exchange {
    /// A host of this name and boot; empty where it is not known.
    pub fn new(name: &str, boot: &str) -> Self {
        Exchange {
            name: name.into(),
            boot: boot.into(),
            ..Exchange::default()
        }
    }

    /// Looks at an event of the host.
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

    /// When messages of `from` were taken here: that, and by how much later than they were published, on two clocks.
    fn from<'a>(&'a self, from: &'a Exchange) -> impl Iterator<Item = (u64, i64)> + 'a {
        let here = |stamp: &i64| self.published.contains_key(stamp);
        let taken = self.taken.iter().filter(move |(stamp, _)| !here(stamp));
        taken.filter_map(|&(stamp, at)| {
            let published = *from.published.get(&stamp)?;
            Some((at, (i128::from(at) - i128::from(published)) as i64))
        })
    }
}

/// How a host's clock goes beside the first one's.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// So much is it ahead, at `at_ns` of its own time, ns.
    pub ahead_ns: i64,
    /// So far the estimate can be off, ns; none where messages went one way only.
    pub within_ns: Option<u64>,
    /// So much faster it goes.
    pub drift: f64,
    /// The middle of its messages, on its own clock.
    pub at_ns: u64,
    /// Messages that it took from the host that it was compared with, and gave to it.
    pub messages: (usize, usize),
    /// Place of the host that it was compared with.
    pub beside: usize,
    /// Number of its first CPU in the model.
    pub first_cpu: u16,
    /// Items that it published without a time stamp: nobody else's takes are known to be of them.
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

    /// A time of this host on the first host's clock.
    pub fn common_ns(&self, time_ns: u64) -> u64 {
        let since = time_ns as f64 - self.at_ns as f64;
        let ahead = i128::from(self.ahead_ns) + (since * self.drift).round() as i128;
        u64::try_from(i128::from(time_ns) - ahead).unwrap_or(0)
    }

    /// An event of the host number `host` on the common clock, with ids that no other host has. None for what
    /// only concerns its own clock.
    pub fn common(&self, mut event: Event, host: usize) -> Option<Event> {
        if host == 0 {
            return Some(event);
        }
        let shift = host as u32 * IDS;
        let id = |id: u32| if id == 0 { 0 } else { id.saturating_add(shift) };
        event.time_ns = self.common_ns(event.time_ns);
        event.cpu = event.cpu.saturating_add(self.first_cpu);
        event.pid = id(event.pid);
        event.tid = id(event.tid);
        match &mut event.kind {
            // It tells when items without stamps were published: on the first host.
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

    /// What is to be said of it: an assumption of the model.
    pub fn sentence(&self, host: usize, hosts: &[Exchange]) -> String {
        let (name, beside) = (&hosts[host].name, &hosts[self.beside].name);
        let cpus = format!("CPU n of {name} is number {} + n.", self.first_cpu);
        if hosts[host].boot == hosts[self.beside].boot && !hosts[host].boot.is_empty() {
            return format!(
                "{name} has the clock of {beside}: they are of one boot of one machine. {cpus}"
            );
        }
        let off = match self.within_ns {
            Some(within) => format!(
                "by at most {:.3} ms off; so can latencies between them be",
                within as f64 / 1e6
            ),
            None => "a bound: messages went one way only, and the fastest is taken to have needed no time, so that \
                latencies between them are too short by what it needed"
                .into(),
        };
        let (to, back) = self.messages;
        let drift = match self.drift {
            0.0 => String::new(),
            d => format!(", going {:.2} ppm faster", d * 1e6),
        };
        let unstamped = match self.unstamped {
            0 => String::new(),
            n => format!(" {n} messages that it published have no time stamp (Humble), and are not followed to other hosts."),
        };
        format!(
            "The clock of {name} is taken to be {:.3} ms ahead of the first host's{drift}, from {to} messages that it took from {beside} and {back} that went back: {off}. {cpus}{unstamped}",
            self.ahead_ns as f64 / 1e6
        )
    }
}

/// How the hosts' clocks go beside the first one's. Each is compared with one that is known already, the pair
/// with the least doubt first.
///
/// # Errors
/// [`HostsError`].
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

/// A host's clock by its messages with one whose clock is known. None without any.
fn beside(hosts: &[Exchange], (i, known): (usize, &Clock), j: usize) -> Option<Clock> {
    if !hosts[i].boot.is_empty() && hosts[i].boot == hosts[j].boot {
        return Some(Clock {
            unstamped: hosts[j].unstamped,
            beside: i,
            first_cpu: 0,
            ..known.clone()
        });
    }
    // On the common clock of the known host, and the own one of the other.
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
    // What is left once the drift is taken out: at most, and at least.
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

/// How much faster a clock goes: the slope of a line through the estimates of stretches, if there are enough of
/// them and it is clearly not level.
fn drift(there: &[(f64, f64)], back: &[(f64, f64)], (first, last): (f64, f64)) -> Option<f64> {
    let length = (last - first) / STRETCHES as f64;
    let mut points = Vec::new();
    for i in 0..STRETCHES {
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

    /// A host whose clock is ahead by this, and goes so much faster.
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

    /// A message at a true time, which takes so long.
    fn message(from: &mut Machine, to: &mut Machine, at: u64, takes: u64) {
        // No two machines publish in the same nanosecond.
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

    /// Messages to and fro for a minute; the fastest take 100 us there and `back` us back.
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
    fn two_ways_bound_the_offset_from_both_sides() {
        for ahead in [0, 37_000_000_123, -5_000_000_000] {
            let (mut a, mut b) = (Machine::new("a", 0, 0.0), Machine::new("b", ahead, 0.0));
            minute(&mut a, &mut b, 140);
            let found = &clocks(&[a.seen, b.seen]).unwrap()[1];
            // Half of what the ways differ by.
            assert!((found.ahead_ns - ahead).abs() <= 20_001, "{found:?}");
            let within = found.within_ns.unwrap();
            assert!((119_000..=121_000).contains(&within), "{found:?}");
            assert_eq!((found.drift, found.messages), (0.0, (600, 600)));
        }
    }

    #[test]
    fn a_clock_that_goes_faster_is_followed_along_a_line() {
        let (mut a, mut b) = (
            Machine::new("a", 0, 0.0),
            Machine::new("b", 2_000_000_000, 40e-6),
        );
        minute(&mut a, &mut b, 100);
        let found = clocks(&[a.seen.clone(), b.seen.clone()]).unwrap().remove(1);
        assert!((found.drift - 40e-6).abs() < 1e-6, "{found:?}");
        for at in [START, START + 30_000 * MS, START + 59_000 * MS] {
            let off = found.common_ns(b.own(at)).abs_diff(at);
            // Without the line it would be 1.2 ms at both ends.
            assert!(off < 30_000, "{off} at {at}");
        }
    }

    #[test]
    fn one_way_gives_a_bound_that_is_said() {
        let (mut a, mut b) = (Machine::new("a", 0, 0.0), Machine::new("b", 5_000_000, 0.0));
        (0..100).for_each(|i| message(&mut a, &mut b, START + i * MS, 80_000 + i));
        let hosts = [a.seen, b.seen];
        let found = clocks(&hosts).unwrap();
        assert_eq!((found[1].ahead_ns, found[1].within_ns), (5_080_000, None));
        assert!(found[1].sentence(1, &hosts).contains("one way only"));
    }

    #[test]
    fn hosts_are_compared_along_the_surest_pairs_and_strangers_refused() {
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
        assert!(within[2] > within[1], "doubts add up: {within:?}");
        let strangers = [hosts[0].clone(), hosts[2].clone()];
        assert_eq!(clocks(&strangers), Err(HostsError::Apart("c".into())));
    }

    #[test]
    fn one_boot_is_one_clock() {
        let of = |name: &str, boot: &str| Exchange::new(name, boot);
        let hosts = [of("a", "b1"), of("c", "b1")];
        let found = clocks(&hosts).unwrap();
        assert_eq!((found[1].ahead_ns, found[1].within_ns), (0, Some(0)));
        assert!(found[1].sentence(1, &hosts).contains("one boot"));
        assert!(
            clocks(&[of("a", ""), of("c", "")]).is_err(),
            "not known is not one"
        );
    }

    #[test]
    fn ids_of_two_hosts_differ_and_idle_is_idle() {
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
        assert_eq!((moved.pid, moved.tid), (8 + 2 * IDS, 9 + 2 * IDS));
        assert!(matches!(
            moved.kind,
            EventKind::SwitchIn { prev_tid: 0, .. }
        ));
        assert_eq!(clock.common(event.clone(), 0), Some(event));
    }
}
