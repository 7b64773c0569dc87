//! Checks of a reservation before it changes anything: errors and warnings. The checks read only
//! the number of CPUs and the kernel's limit for real-time threads.

use crate::error::{StartError, Warning};
use crate::options::{Choice, Options, MAX_LEAD_NS, MIN_CYCLE_NS};
use crate::server::{Server, MAX_PRIORITY};
use crate::sys;
use crate::table::{Event, Table, TableError};
use std::collections::BTreeMap;

pub(crate) fn refuse(
    cycle_ns: u64,
    servers: &[Server],
    options: &Options,
) -> Result<(), StartError> {
    if cycle_ns < MIN_CYCLE_NS {
        return Err(StartError::Cycle(cycle_ns));
    }
    if options.lead_ns > MAX_LEAD_NS {
        return Err(StartError::Lead(options.lead_ns));
    }
    let last = sys::cpus() - 1;
    let cpu_exists = |who: String, cpu| match cpu <= last {
        true => Ok(()),
        false => Err(StartError::NoCpu { who, cpu, last }),
    };
    cpu_exists("the dispatcher".into(), options.dispatcher_cpu)?;
    for (i, server) in servers.iter().enumerate() {
        if servers[..i].iter().any(|s| s.name == server.name) {
            return Err(StartError::Name(server.name.clone()));
        }
        if server.priority > MAX_PRIORITY || server.priority >= options.dispatcher_priority {
            return Err(StartError::ServerPriority {
                server: server.name.clone(),
                priority: server.priority,
                dispatcher: options.dispatcher_priority,
            });
        }
        cpu_exists(format!("server {:?}", server.name), server.cpu)?;
    }
    Ok(())
}

pub(crate) fn warnings(
    cycle_ns: u64,
    servers: &[Server],
    options: &Options,
) -> Result<Vec<Warning>, TableError> {
    let mut warnings = Vec::new();
    let real_time = || servers.iter().filter(|s| s.priority > 0);
    if real_time().any(|s| s.cpu == options.dispatcher_cpu) {
        warnings.push(Warning::DispatcherAmongServers {
            cpu: options.dispatcher_cpu,
        });
    }
    if options.backend == Choice::SchedExt {
        return Ok(vec![Warning::NormalFirst]);
    }
    let limit = onbeat_proc::system::real_time_share().unwrap_or(f64::INFINITY);
    for (cpu, share) in shares(cycle_ns, real_time())? {
        if share > limit {
            warnings.push(Warning::RealTimeLimit { cpu, share, limit });
        }
    }
    Ok(warnings)
}

/// Returns for each CPU the share of the cycle in which a slot of at least one of its servers is
/// open. Servers without slots are left out, because their share is unknown.
fn shares<'s>(
    cycle_ns: u64,
    servers: impl Iterator<Item = &'s Server>,
) -> Result<BTreeMap<u16, f64>, TableError> {
    let mut together: BTreeMap<u16, Server> = BTreeMap::new();
    for server in servers.filter(|s| !s.slots.is_empty()) {
        match together.get_mut(&server.cpu) {
            Some(union) => union.slots.extend(&server.slots),
            None => {
                together.insert(server.cpu, server.clone());
            }
        }
    }
    let share = |(cpu, union): (u16, Server)| {
        let table = Table::new(cycle_ns, 0, std::slice::from_ref(&union))?;
        Ok((cpu, open_share(&table)))
    };
    together.into_iter().map(share).collect()
}

fn open_share(table: &Table) -> f64 {
    if !table.is_gated(0) {
        return 1.0;
    }
    let signed = |e: &Event| match e.open {
        true => -(e.offset_ns as i64),
        false => e.offset_ns as i64,
    };
    let sum: i64 = table.events().iter().map(signed).sum();
    sum.rem_euclid(table.cycle_ns() as i64) as f64 / table.cycle_ns() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_time::Slot;

    fn server(name: &str, cpu: u16, slots: &[(u64, u64)]) -> Server {
        Server {
            name: name.into(),
            cpu,
            priority: 10,
            slots: slots.iter().map(|s| Slot::new(s.0, s.1)).collect(),
        }
    }

    #[test]
    fn overlapping_slots_on_one_cpu_count_once_in_its_load() {
        let servers = [
            server("a", 1, &[(0, 400_000), (900_000, 1_100_000)]),
            server("b", 1, &[(300_000, 500_000)]),
            server("c", 2, &[(0, 1_000_000)]),
            server("d", 3, &[]),
        ];
        let shares = shares(1_000_000, servers.iter()).unwrap();
        assert_eq!(shares, BTreeMap::from([(1, 0.6), (2, 1.0)]));
    }

    #[test]
    fn servers_that_cannot_run_are_refused() {
        let refused = |servers: &[Server], change: fn(&mut Options)| {
            let mut options = Options::new(0);
            change(&mut options);
            refuse(1_000_000, servers, &options)
        };
        let a = || server("a", 0, &[]);
        assert!(refused(&[a()], |_| ()).is_ok());
        let twice = refused(&[a(), a()], |_| ());
        assert!(matches!(twice, Err(StartError::Name(_))));
        let high = refused(&[a()], |o| o.dispatcher_priority = 10);
        assert!(matches!(high, Err(StartError::ServerPriority { .. })));
        let elsewhere = refused(&[server("a", 9000, &[])], |_| ());
        assert!(matches!(elsewhere, Err(StartError::NoCpu { .. })));
        let short = refuse(MIN_CYCLE_NS - 1, &[], &Options::new(0));
        assert!(matches!(short, Err(StartError::Cycle(_))));
    }
}
