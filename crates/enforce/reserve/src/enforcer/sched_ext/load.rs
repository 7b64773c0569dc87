//! Loads the BPF programs into the kernel, fills their maps and attaches them.

use super::layout::{self, Counted};
use super::SchedExtError;
use crate::sys;
use crate::table::Table;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

static PROGRAMS: &[u8] = {
    static OBJECT: &Aligned<[u8]> =
        &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/slots.bpf.o")));
    &OBJECT.0
};

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

pub(super) struct Programs {
    object: Object,
    link: Option<Link>,
    pub(super) control: MapHandle,
    pub(super) members: MapHandle,
    rounds: MapHandle,
    tables: MapHandle,
    cpus: MapHandle,
    orders: MapHandle,
    counters: MapHandle,
    servers: MapHandle,
}

impl From<libbpf_rs::Error> for SchedExtError {
    fn from(error: libbpf_rs::Error) -> SchedExtError {
        SchedExtError::Load(format!("{error:#}"))
    }
}

/// Checks whether a sched_ext scheduler could be loaded on this machine. Changes nothing.
///
/// # Errors
///
/// Fails if the kernel has no sched_ext or if another scheduler runs.
pub fn find_sched_ext() -> Result<(), SchedExtError> {
    if !Path::new(SCHED_EXT).exists() {
        return Err(SchedExtError::None);
    }
    match fs::read_to_string(Path::new(SCHED_EXT).join("root/ops")) {
        Ok(other) => Err(SchedExtError::Taken(other.trim().into())),
        Err(_) => Ok(()),
    }
}

impl Programs {
    pub(super) fn load() -> Result<Programs, SchedExtError> {
        find_sched_ext()?;
        // The error contains libbpf's messages too, except for the kernel's long reasons.
        libbpf_rs::set_print(None);
        let object = ObjectBuilder::default()
            .name("onbeat_slots")?
            .open_memory(PROGRAMS)?
            .load()?;
        let map = |name: &str| -> Result<MapHandle, SchedExtError> {
            let found = object.maps().find(|m| m.name() == OsStr::new(name));
            let found = found.ok_or_else(|| SchedExtError::Load(format!("no map {name}")))?;
            Ok(MapHandle::try_from(&found)?)
        };
        Ok(Programs {
            link: None,
            control: map("control")?,
            members: map("members")?,
            rounds: map("rounds")?,
            tables: map("tables")?,
            cpus: map("cpus")?,
            orders: map("orders")?,
            counters: map("counters")?,
            servers: map("servers")?,
            object,
        })
    }

    pub(super) fn give_servers(
        &self,
        servers: &[(u16, u8, bool)],
        cpus: &[u16],
    ) -> Result<(), SchedExtError> {
        for (i, &(cpu, priority, is_gated)) in servers.iter().enumerate() {
            let value = layout::server(cpu, priority, is_gated);
            set(&self.servers, i as u32, &value)?;
        }
        for &cpu in cpus {
            let here = servers.iter().enumerate().filter(|(_, s)| s.0 == cpu);
            let mut order: Vec<(u8, u32)> = here.map(|(i, s)| (s.1, i as u32)).collect();
            order.sort_by_key(|&(priority, _)| std::cmp::Reverse(priority));
            let order: Vec<u32> = order.into_iter().map(|(_, server)| server).collect();
            set(&self.orders, cpu.into(), &layout::order(&order))?;
        }
        Ok(())
    }

    /// Fills one of the two tables in the kernel. No CPU may be using this table.
    pub(super) fn give_table(
        &self,
        number: u32,
        table: &Table,
        cpus: &[u16],
        servers: &[(u16, u8, bool)],
    ) -> Result<(), SchedExtError> {
        for &cpu in cpus {
            let value = layout::table(table, |server| servers[server].0 == cpu);
            let key = number * layout::MAX_CPUS as u32 + u32::from(cpu);
            set(&self.tables, key, &value)?;
        }
        Ok(())
    }

    pub(super) fn begin(&self, base_ns: u64, cpus: &[u16]) -> Result<(), SchedExtError> {
        let (rounds, cpu) = layout::begin(base_ns);
        set(&self.rounds, 0, &rounds)?;
        for &number in cpus {
            set(&self.cpus, number.into(), &cpu)?;
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, cpus: &[u16]) -> Result<(), SchedExtError> {
        let mut maps = self.object.maps_mut();
        let ops = maps.find(|m| m.name() == OsStr::new("onbeat_slots"));
        let mut ops = ops.ok_or_else(|| SchedExtError::Load("no scheduler".into()))?;
        self.link = Some(ops.attach_struct_ops()?);
        drop(maps);
        let start = |cpu: u16| -> Result<(), SchedExtError> {
            let started = std::thread::scope(|scope| scope.spawn(|| self.start_timer(cpu)).join());
            started.map_err(|_| {
                SchedExtError::Load("the thread that starts the timer of a CPU panicked".into())
            })?
        };
        let started = cpus.iter().try_for_each(|&cpu| start(cpu));
        if started.is_err() {
            self.link = None;
        }
        started
    }

    /// Starts the timer of a CPU. The calling thread moves to that CPU, because the timer starts on
    /// the CPU of its caller.
    fn start_timer(&self, cpu: u16) -> Result<(), SchedExtError> {
        let failed = |what: String| SchedExtError::Load(format!("the timer of CPU {cpu}: {what}"));
        sys::set_affinity(0, &[cpu]).map_err(|e| failed(e.to_string()))?;
        let mut programs = self.object.progs_mut();
        let program = programs.find(|p| p.name() == OsStr::new("start_timer"));
        let program = program.ok_or_else(|| failed("no program".into()))?;
        match program.test_run(ProgramInput::default())?.return_value {
            0 => Ok(()),
            code => Err(failed(format!("error {}", code as i32))),
        }
    }

    pub(super) fn detach(&mut self) {
        self.link = None;
    }

    pub(super) fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    pub(super) fn tables(&self, cpus: &[u16]) -> Vec<u32> {
        let tables = cpus.iter().map(|&cpu| get(&self.cpus, cpu.into()));
        tables
            .filter_map(|cpu| layout::table_of_cpu(&cpu))
            .collect()
    }

    pub(super) fn counted(&self, cpus: &[u16]) -> Counted {
        let servers: Vec<_> = (0..layout::MAX_SERVERS as u32)
            .map(|server| get(&self.servers, server))
            .collect();
        let counters: Vec<_> = cpus
            .iter()
            .map(|&cpu| get(&self.counters, cpu.into()))
            .collect();
        Counted::of(&get(&self.rounds, 0), &servers, &counters)
    }
}

fn set(map: &MapHandle, key: u32, value: &[u8]) -> Result<(), SchedExtError> {
    Ok(map.update(&key.to_ne_bytes(), value, MapFlags::ANY)?)
}

fn get(map: &MapHandle, key: u32) -> Vec<u8> {
    let found = map.lookup(&key.to_ne_bytes(), MapFlags::ANY);
    found.ok().flatten().unwrap_or_default()
}
