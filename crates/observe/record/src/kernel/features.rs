//! The abilities of the running kernel, found out from its release and its type information.

use super::Types;
use libbpf_rs::btf::types::{DataSec, Struct, Var};
use libbpf_rs::btf::Btf;

const PERF_EVENTS: &str = "ONBEAT_PERF_EVENTS";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// The kernel has `bpf_get_attach_cookie` (5.15), so hits are counted per probe.
    pub cookie: bool,
    /// BPF programs can read the current task's struct (5.11).
    pub current_task: bool,
    /// BPF programs can find the socket of an open file (5.11), so that the processes of sockets are
    /// known.
    pub socket_of_file: bool,
    /// BPF programs can store data per task, also in uprobes (5.13).
    pub task_storage: bool,
    /// A task's struct has the total time for which the task was ready to run (5.14 with
    /// CONFIG_SCHED_INFO).
    pub delays: bool,
    /// BPF programs can read the registers with which a task entered the kernel (5.15). Together
    /// with [`Features::delays`], the registers show that a thread waits for work.
    pub task_registers: bool,
    /// The tracepoint `sched_switch` passes the state of the thread that leaves the CPU (5.18).
    pub switch_state: bool,
    /// The kernel can attach uprobes without perf events (6.12). The kernel then waits only once
    /// when many uprobes are detached.
    pub uprobe_link: bool,
    /// The kernel replaces a probed 5-byte nop by a call (6.18). The call makes a hit cheaper, but
    /// can crash the program, so onbeat does not probe such nops.
    pub fast_nop: bool,
}

impl Features {
    pub(super) fn of_this_kernel(release: &str, types: &Types) -> Features {
        let mut features = Features::of_release(release);
        let btf = types.btf();
        features.delays &= has_member(btf.as_ref(), "sched_info", "last_queued");
        if types.given().is_some() {
            // These programs use no helper that needs types of the kernel, but a map of threads.
            features.current_task = true;
            features.task_storage = true;
            features.task_registers = false;
            features.socket_of_file = false;
        }
        features.task_registers &= features.delays;
        features.uprobe_link &= std::env::var_os(PERF_EVENTS).is_none();
        features
    }

    pub fn of_release(release: &str) -> Features {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(|n| n.parse().unwrap_or(0u32));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Features {
            cookie: version >= (5, 15),
            current_task: version >= (5, 11),
            socket_of_file: version >= (5, 11),
            task_storage: version >= (5, 13),
            delays: version >= (5, 14),
            task_registers: version >= (5, 15),
            switch_state: version >= (5, 18),
            uprobe_link: version >= (6, 12),
            fast_nop: version >= (6, 18) && cfg!(target_arch = "x86_64"),
        }
    }
}

fn has_member(btf: Option<&Btf<'_>>, structure: &str, member: &str) -> bool {
    btf.is_some_and(|btf| {
        btf.type_by_name::<Struct<'_>>(structure)
            .is_some_and(|s| s.iter().any(|m| m.name.is_some_and(|n| n == member)))
    })
}

/// Returns the distance in bytes from a CPU's run queue to the stolen time that a KVM host reports.
/// Returns `None` if the kernel lacks one of the two.
pub(super) fn steal_distance(btf: &Btf<'_>) -> Option<i64> {
    distance(btf, "steal_time")
}

/// Returns the distance in bytes from a CPU's run queue to the CPU's `preempt_count`, or `None` if
/// the kernel has no such variable per CPU.
pub(super) fn context_distance(btf: &Btf<'_>) -> Option<i64> {
    // Linux 6.2 to 6.14 have it as the second field of another variable, after a pointer.
    let in_struct = || Some(distance(btf, "pcpu_hot")? + 8);
    distance(btf, "__preempt_count").or_else(in_struct)
}

fn distance(btf: &Btf<'_>, to: &str) -> Option<i64> {
    let variables: DataSec<'_> = btf.type_by_name(".data..percpu")?;
    let offset = |wanted: &str| {
        variables.iter().find_map(|v| {
            let variable: Var<'_> = btf.type_by_id(v.ty)?;
            (variable.name()? == wanted).then_some(i64::from(v.offset))
        })
    };
    Some(offset(to)? - offset("runqueues")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_features_follow_the_kernel_version() {
        let f = Features::of_release;
        assert_eq!(
            f("5.8.0-generic"),
            Features {
                cookie: false,
                current_task: false,
                socket_of_file: false,
                task_storage: false,
                delays: false,
                task_registers: false,
                switch_state: false,
                uprobe_link: false,
                fast_nop: false
            }
        );
        assert!(f("5.11.0").socket_of_file && !f("5.10.0").socket_of_file);
        assert!(f("5.15.0").cookie && !f("5.15.0").switch_state);
        assert!(f("6.1.0-13-amd64").switch_state && !f("6.1.0-13-amd64").fast_nop);
        assert!(!f("6.11.0-8-generic").uprobe_link && f("6.12.0").uprobe_link);
        assert!(f("6.18.44-x").fast_nop || !cfg!(target_arch = "x86_64"));
        assert_eq!(
            f("weird"),
            Features {
                cookie: false,
                current_task: false,
                socket_of_file: false,
                task_storage: false,
                delays: false,
                task_registers: false,
                switch_state: false,
                uprobe_link: false,
                fast_nop: false
            }
        );
    }
}
