//! The probe table: what is probed where, in which distribution, and what is missing without it.
//!
//! Supporting another distribution or middleware is a change here (and, for a new argument
//! list, one short program in `bpf/ros.h` with its record in `records/records.table`), not in the recorder.

/// Generations of the tracing ABI, oldest first. A newer, unknown distribution counts as the
/// newest one whose functions it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// 28 events; `rmw_publish` without handle and time stamp.
    Humble,
    /// As Humble, with `ros_trace_enabled_*` and `ros_trace_do_*`.
    Iron,
    /// `rmw_publish` with handle and time stamp; intra-process events.
    Jazzy,
    /// Request and response events.
    Kilted,
}

impl Distribution {
    /// Name as ROS 2 spells it.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Humble => "humble",
            Distribution::Iron => "iron",
            Distribution::Jazzy => "jazzy",
            Distribution::Kilted => "kilted",
        }
    }

    /// Tells the generation from what `libtracetools.so` exports.
    pub fn of_tracetools(exports: impl Fn(&str) -> bool) -> Distribution {
        if exports("ros_trace_rmw_take_request") {
            Distribution::Kilted
        } else if exports("ros_trace_rclcpp_intra_publish") {
            Distribution::Jazzy
        } else if exports("ros_trace_enabled_callback_start") {
            Distribution::Iron
        } else {
            Distribution::Humble
        }
    }
}

/// A library that probes sit in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Library {
    /// `libtracetools.so`
    Tracetools,
    /// `librcl.so`
    Rcl,
    /// The middleware layer: `librmw_fastrtps_cpp.so`, `librmw_cyclonedds_cpp.so`,
    /// `librmw_zenoh_cpp.so` ...
    Rmw,
    /// `librclcpp.so`
    Rclcpp,
    /// A program or library with onbeat-flow's executors in it, told by its [`FLOW_NOTE`].
    Flow,
}

impl Library {
    /// Which library a path stands for, by its last part. Versioned names (`librcl.so.1`) count too.
    pub fn of_path(path: &str) -> Option<Library> {
        let name = crate::proc::file_name(path);
        let stem = match name.find(".so") {
            Some(at)
                if name[at + 3..]
                    .bytes()
                    .all(|b| b == b'.' || b.is_ascii_digit()) =>
            {
                &name[..at]
            }
            _ => return None,
        };
        match stem {
            "libtracetools" => Some(Library::Tracetools),
            "librcl" => Some(Library::Rcl),
            "librclcpp" => Some(Library::Rclcpp),
            _ => {
                // The shared and dynamic parts are reached through the functions of librmw_X_cpp.
                let rmw = stem.strip_prefix("librmw_")?;
                let implementation = !rmw.ends_with("_shared_cpp")
                    && !rmw.starts_with("dds_common")
                    && !rmw.starts_with("implementation")
                    && !rmw.contains("__rosidl");
                implementation.then_some(Library::Rmw)
            }
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// Name of the event in manifests.
    pub name: &'static str,
    /// Where.
    pub library: Library,
    /// Candidate symbols.
    pub symbols: &'static [&'static str],
    /// Attach to all symbols that exist (true) or to the first (false).
    pub all: bool,
    /// BPF program for the entry.
    pub program: &'static str,
    /// BPF program for the return, where a result is written through a pointer.
    pub return_program: Option<&'static str>,
    /// Oldest distribution that this row is for.
    pub since: Distribution,
    /// First distribution that it is not for any more.
    pub until: Option<Distribution>,
    /// What the model lacks without it.
    pub consequence: &'static str,
}

impl Probe {
    /// Is this row for that distribution?
    pub fn applies_to(&self, distribution: Distribution) -> bool {
        distribution >= self.since && self.until.is_none_or(|until| distribution < until)
    }
}

const NO_NAMES: &str = "nodes or endpoints created from here on have no name";
const NO_CALLBACK: &str = "callbacks of this type are missing";
const NO_EDGE: &str = "edges and chains over this kind of communication are missing";
const COARSE: &str = "brackets of callbacks are inferred from other calls and less exact";
const MINOR: &str = "none for the graph; a detail is missing";
const NO_TASK: &str = "tasks of onbeat-flow are missing";
const INTRA: &str = "intra-process edges are missing";

macro_rules! row {
    ($name:literal, $lib:ident, [$($symbol:literal),+], $program:literal, $why:expr $(, $field:ident = $value:expr)*) => {
        Probe {
            $($field: $value,)*
            ..Probe {
                name: $name,
                library: Library::$lib,
                symbols: &[$($symbol),+],
                all: false,
                program: $program,
                return_program: None,
                since: Distribution::Humble,
                until: None,
                consequence: $why,
            }
        }
    };
}

use Distribution::{Jazzy, Kilted};

/// Every probe in user space.
pub const PROBES: &[Probe] = &[
    // ---- initialisation
    row!(
        "rcl_init",
        Tracetools,
        ["ros_trace_rcl_init"],
        "on_rcl_init",
        "processes that start later count as attached late"
    ),
    row!(
        "rcl_node_init",
        Tracetools,
        ["ros_trace_rcl_node_init"],
        "on_node_init",
        NO_NAMES
    ),
    row!(
        "rcl_publisher_init",
        Tracetools,
        ["ros_trace_rcl_publisher_init"],
        "on_publisher_init",
        NO_NAMES
    ),
    row!(
        "rcl_subscription_init",
        Tracetools,
        ["ros_trace_rcl_subscription_init"],
        "on_subscription_init",
        NO_NAMES
    ),
    row!(
        "rcl_service_init",
        Tracetools,
        ["ros_trace_rcl_service_init"],
        "on_service_init",
        NO_NAMES
    ),
    row!(
        "rcl_client_init",
        Tracetools,
        ["ros_trace_rcl_client_init"],
        "on_client_init",
        NO_NAMES
    ),
    row!(
        "rmw_publisher_init",
        Tracetools,
        [
            "ros_trace_rmw_publisher_init",
            "ros_trace_do_rmw_publisher_init"
        ],
        "on_publisher_gid",
        MINOR,
        all = true
    ),
    row!(
        "rmw_client_init",
        Tracetools,
        ["ros_trace_rmw_client_init", "ros_trace_do_rmw_client_init"],
        "on_client_gid",
        MINOR,
        all = true,
        since = Kilted
    ),
    row!(
        "rcl_timer_init",
        Tracetools,
        ["ros_trace_rcl_timer_init"],
        "on_timer_init",
        "timers have no period; it is taken from their calls"
    ),
    row!(
        "rcl_fini",
        Rcl,
        [
            "rcl_publisher_fini",
            "rcl_subscription_fini",
            "rcl_service_fini",
            "rcl_client_fini",
            "rcl_node_fini"
        ],
        "on_fini",
        "what is published for endpoints that were destroyed counts as lost",
        all = true
    ),
    row!(
        "rclcpp_timer_link_node",
        Tracetools,
        ["ros_trace_rclcpp_timer_link_node"],
        "on_timer_node",
        "timers of processes with several nodes have no sure node"
    ),
    row!(
        "rclcpp_timer_callback_added",
        Tracetools,
        ["ros_trace_rclcpp_timer_callback_added"],
        "on_timer_callback",
        MINOR
    ),
    row!(
        "rclcpp_subscription_init",
        Tracetools,
        ["ros_trace_rclcpp_subscription_init"],
        "on_subscription_object",
        MINOR
    ),
    row!(
        "rclcpp_subscription_callback_added",
        Tracetools,
        ["ros_trace_rclcpp_subscription_callback_added"],
        "on_subscription_callback",
        MINOR
    ),
    row!(
        "rclcpp_service_callback_added",
        Tracetools,
        ["ros_trace_rclcpp_service_callback_added"],
        "on_service_callback",
        MINOR
    ),
    row!(
        "rclcpp_callback_register",
        Tracetools,
        [
            "ros_trace_rclcpp_callback_register",
            "ros_trace_do_rclcpp_callback_register"
        ],
        "on_callback_symbol",
        MINOR,
        all = true
    ),
    row!(
        "rclcpp_ipb_to_subscription",
        Tracetools,
        ["ros_trace_rclcpp_ipb_to_subscription"],
        "on_intra_buffer_subscription",
        INTRA,
        since = Jazzy
    ),
    row!(
        "rclcpp_buffer_to_ipb",
        Tracetools,
        ["ros_trace_rclcpp_buffer_to_ipb"],
        "on_ring_buffer_intra_buffer",
        INTRA,
        since = Jazzy
    ),
    row!(
        "rclcpp_construct_ring_buffer",
        Tracetools,
        ["ros_trace_rclcpp_construct_ring_buffer"],
        "on_ring_buffer_init",
        INTRA,
        since = Jazzy
    ),
    row!(
        "rcl_lifecycle_state_machine_init",
        Tracetools,
        ["ros_trace_rcl_lifecycle_state_machine_init"],
        "on_lifecycle_init",
        MINOR
    ),
    row!(
        "rcl_lifecycle_transition",
        Tracetools,
        ["ros_trace_rcl_lifecycle_transition"],
        "on_lifecycle_transition",
        MINOR
    ),
    row!(
        "rcl_clock_init",
        Rcl,
        ["rcl_clock_init"],
        "on_clock_init",
        "timers of rclpy processes with several nodes have no sure node"
    ),
    row!(
        "rcl_timer_init (clock)",
        Rcl,
        ["rcl_timer_init2", "rcl_timer_init"],
        "on_timer_clock",
        "timers of rclpy processes with several nodes have no sure node"
    ),
    // ---- run time
    row!(
        "callback_start",
        Tracetools,
        ["ros_trace_callback_start"],
        "on_callback_start",
        COARSE
    ),
    row!(
        "callback_end",
        Tracetools,
        ["ros_trace_callback_end"],
        "on_callback_end",
        COARSE
    ),
    row!(
        "rcl_timer_call",
        Rcl,
        ["rcl_timer_call_with_info", "rcl_timer_call"],
        "on_timer_call",
        NO_CALLBACK
    ),
    row!(
        "rmw_take",
        Tracetools,
        ["ros_trace_rmw_take"],
        "on_take",
        NO_CALLBACK
    ),
    row!(
        "rmw_publish",
        Tracetools,
        ["ros_trace_rmw_publish"],
        "on_publish",
        NO_EDGE,
        since = Jazzy
    ),
    row!(
        "rmw_publish",
        Rmw,
        ["rmw_publish"],
        "on_publish_unstamped",
        NO_EDGE,
        until = Some(Jazzy)
    ),
    row!(
        "rclcpp_intra_publish",
        Tracetools,
        ["ros_trace_rclcpp_intra_publish"],
        "on_intra_publish",
        INTRA,
        since = Jazzy
    ),
    row!(
        "rclcpp_ring_buffer_enqueue",
        Tracetools,
        ["ros_trace_rclcpp_ring_buffer_enqueue"],
        "on_ring_buffer_enqueue",
        INTRA,
        since = Jazzy
    ),
    row!(
        "rclcpp_ring_buffer_dequeue",
        Tracetools,
        ["ros_trace_rclcpp_ring_buffer_dequeue"],
        "on_ring_buffer_dequeue",
        INTRA,
        since = Jazzy
    ),
    row!(
        "rclcpp_ring_buffer_clear",
        Tracetools,
        ["ros_trace_rclcpp_ring_buffer_clear"],
        "on_ring_buffer_clear",
        INTRA,
        since = Jazzy
    ),
    row!(
        "rmw_send_request",
        Tracetools,
        ["ros_trace_rmw_send_request"],
        "on_request_send",
        NO_EDGE,
        since = Kilted
    ),
    row!(
        "rmw_take_request",
        Tracetools,
        ["ros_trace_rmw_take_request"],
        "on_request_take",
        NO_CALLBACK,
        since = Kilted
    ),
    row!(
        "rmw_send_response",
        Tracetools,
        ["ros_trace_rmw_send_response"],
        "on_response_send",
        NO_EDGE,
        since = Kilted
    ),
    row!(
        "rmw_take_response",
        Tracetools,
        ["ros_trace_rmw_take_response"],
        "on_response_take",
        NO_CALLBACK,
        since = Kilted
    ),
    row!(
        "rmw_send_request",
        Rmw,
        ["rmw_send_request"],
        "on_rmw_send_request",
        NO_EDGE,
        until = Some(Kilted),
        return_program = Some("on_rmw_send_request_return")
    ),
    row!(
        "rmw_take_request",
        Rmw,
        ["rmw_take_request"],
        "on_rmw_take_request",
        NO_CALLBACK,
        until = Some(Kilted),
        return_program = Some("on_rmw_take_request_return")
    ),
    row!(
        "rmw_send_response",
        Rmw,
        ["rmw_send_response"],
        "on_rmw_send_response",
        NO_EDGE,
        until = Some(Kilted)
    ),
    row!(
        "rmw_take_response",
        Rmw,
        ["rmw_take_response"],
        "on_rmw_take_response",
        NO_CALLBACK,
        until = Some(Kilted),
        return_program = Some("on_rmw_take_response_return")
    ),
    row!(
        "rclcpp_executor_get_next_ready",
        Tracetools,
        ["ros_trace_rclcpp_executor_get_next_ready"],
        "on_executor_next_ready",
        COARSE
    ),
    row!(
        "rclcpp_executor_wait_for_work",
        Tracetools,
        ["ros_trace_rclcpp_executor_wait_for_work"],
        "on_executor_wait_for_work",
        COARSE
    ),
    row!(
        "rclcpp_executor_execute",
        Tracetools,
        ["ros_trace_rclcpp_executor_execute"],
        "on_executor_execute",
        MINOR
    ),
    row!(
        "execute_client",
        Rclcpp,
        ["_ZN6rclcpp8Executor14execute_clientESt10shared_ptrINS_10ClientBaseEE"],
        "on_execute_client",
        "rclcpp's client callbacks have inferred brackets",
        return_program = Some("on_execute_client_return")
    ),
    row!(
        "rcl_wait_set_init",
        Rcl,
        ["rcl_wait_set_init"],
        "on_wait_set_init",
        COARSE
    ),
    row!("rcl_wait", Rcl, ["rcl_wait"], "on_wait", COARSE),
    row!(
        "rcl_trigger_guard_condition",
        Rcl,
        ["rcl_trigger_guard_condition"],
        "on_guard_trigger",
        COARSE
    ),
    // ---- tasks of onbeat-flow
    row!(
        "onbeat_flow_task_init",
        Flow,
        ["onbeat_flow_task_init"],
        "on_flow_task_init",
        "tasks made where others have gone have the others' names"
    ),
    row!(
        "onbeat_flow_task_start",
        Flow,
        ["onbeat_flow_task_start"],
        "on_flow_task_start",
        NO_TASK
    ),
    row!(
        "onbeat_flow_task_end",
        Flow,
        ["onbeat_flow_task_end"],
        "on_flow_task_end",
        NO_TASK
    ),
    row!(
        "onbeat_flow_publish",
        Flow,
        ["onbeat_flow_publish"],
        "on_flow_publish",
        NO_EDGE
    ),
];

/// Programs on the kernel's own tracepoints: name in manifests, program, consequence.
pub const KERNEL_PROBES: &[(&str, &str, &str)] = &[
    (
        "sched_switch",
        "on_switch",
        "execution times cannot be told from response times",
    ),
    (
        "sched_waking",
        "on_waking",
        "latencies cannot be split into transport and waiting",
    ),
    (
        "sched_process_fork",
        "on_fork",
        "threads and child processes have no names",
    ),
    (
        "sched_process_exec",
        "on_exec",
        "a process that starts another program keeps its old identity",
    ),
    (
        "sched_process_exit",
        "on_exit_task",
        "reused process ids can be mistaken for old ones",
    ),
];

/// Variable in which a file that holds onbeat-flow wants its probes counted.
pub const FLOW_COUNTER: &str = "onbeat_flow_watched";
/// Section by which a file is known that holds onbeat-flow's executors.
pub const FLOW_NOTE: &str = ".note.onbeat";

/// Name prefix of `message_filters::Synchronizer<...>` members, and what marks its input
/// callback `cb<N>(event)`: these are template instances in the user's own binaries.
pub const SYNC_PREFIX: &str = "_ZN15message_filters12SynchronizerI";
/// See [`SYNC_PREFIX`].
pub const SYNC_MEMBER: &str = "E2cbILi";

#[cfg(test)]
mod tests {
    use super::*;

    /// The table's rows for one distribution, as `library:name`.
    fn rows(distribution: Distribution) -> Vec<String> {
        PROBES
            .iter()
            .filter(|p| p.applies_to(distribution))
            .map(|p| format!("{:?}:{}", p.library, p.name))
            .collect()
    }

    #[test]
    fn humble_takes_publications_and_services_from_the_middleware_functions() {
        let humble = rows(Distribution::Humble);
        for name in [
            "rmw_publish",
            "rmw_send_request",
            "rmw_take_request",
            "rmw_send_response",
            "rmw_take_response",
        ] {
            assert!(humble.contains(&format!("Rmw:{name}")), "{name}");
            assert!(
                !humble.contains(&format!("Tracetools:{name}")),
                "{name} has another signature in Humble"
            );
        }
        // Everything else that Humble's libtracetools has and the model uses.
        for name in [
            "rcl_init",
            "rcl_node_init",
            "rmw_publisher_init",
            "rcl_publisher_init",
            "rcl_subscription_init",
            "rclcpp_subscription_init",
            "rclcpp_subscription_callback_added",
            "rmw_take",
            "rcl_service_init",
            "rclcpp_service_callback_added",
            "rcl_client_init",
            "rcl_timer_init",
            "rclcpp_timer_callback_added",
            "rclcpp_timer_link_node",
            "rclcpp_callback_register",
            "callback_start",
            "callback_end",
            "rcl_lifecycle_state_machine_init",
            "rcl_lifecycle_transition",
            "rclcpp_executor_get_next_ready",
            "rclcpp_executor_wait_for_work",
            "rclcpp_executor_execute",
        ] {
            assert!(humble.contains(&format!("Tracetools:{name}")), "{name}");
        }
        assert!(!humble.iter().any(|r| r.contains("ring_buffer")));
    }

    #[test]
    fn every_event_has_one_source_in_each_distribution() {
        for distribution in [
            Distribution::Humble,
            Distribution::Iron,
            Distribution::Jazzy,
            Distribution::Kilted,
        ] {
            let mut names: Vec<_> = PROBES
                .iter()
                .filter(|p| p.applies_to(distribution))
                .map(|p| p.name)
                .collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{distribution:?}");
        }
    }

    #[test]
    fn generations_are_told_apart_by_their_exports() {
        let of = |exports: &[&str]| Distribution::of_tracetools(|s| exports.contains(&s));
        assert_eq!(of(&["ros_trace_callback_start"]), Distribution::Humble);
        assert_eq!(
            of(&["ros_trace_enabled_callback_start"]),
            Distribution::Iron
        );
        assert_eq!(
            of(&[
                "ros_trace_enabled_callback_start",
                "ros_trace_rclcpp_intra_publish"
            ]),
            Distribution::Jazzy
        );
        assert_eq!(
            of(&[
                "ros_trace_rclcpp_intra_publish",
                "ros_trace_rmw_take_request"
            ]),
            Distribution::Kilted
        );
    }

    #[test]
    fn libraries_are_known_by_file_name() {
        assert_eq!(Library::of_path("librcl.so"), Some(Library::Rcl));
        assert_eq!(Library::of_path("librcl.so.9"), Some(Library::Rcl));
        assert_eq!(
            Library::of_path("librmw_cyclonedds_cpp.so"),
            Some(Library::Rmw)
        );
        assert_eq!(
            Library::of_path("librmw_zenoh_cpp.so.1.2"),
            Some(Library::Rmw)
        );
        for other in [
            "librmw.so",
            "librmw_fastrtps_shared_cpp.so",
            "librmw_implementation.so",
            "librcl_action.so",
            "librclx.so",
            "librcl.so.bak",
            "librmw_dds_common__rosidl_typesupport_c.so",
        ] {
            assert_eq!(Library::of_path(other), None, "{other}");
        }
    }
}
