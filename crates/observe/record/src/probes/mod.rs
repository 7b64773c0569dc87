//! What is probed where, in which distribution, and what is missing without it.
//!
//! A new distribution or middleware is a change here, not in the recorder. To add a probe for a
//! function `rcl_example(handle, value)`:
//!
//! 1. `records/records.table`: `event example = 56 { handle: u64, value: u64 }`. The event is a
//!    variant of `EventKind` with the same fields. If there is none yet, add it to onbeat-trace:
//!    the variant in `event.rs`, a line in `table.rs`, a row in docs/trace-format.md; and say in
//!    onbeat-model's `synth/dispatch.rs` which tracker it concerns.
//! 2. `bpf/ros.h`: `COPY2(on_example, example, handle, value)`, or a program of its own where more
//!    than copying is to be done.
//! 3. `probes/table.rs`: a row with the library, the symbol, the program, and what the model lacks
//!    without the probe.
//!
//! `cargo test -p onbeat-record` fails when one of them is missing, or when the program leaves a
//! field of its record empty. `--test recorder` runs the programs on the kernel.

mod table;

pub use table::{KERNEL_PROBES, PROBES};

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

    /// The generation whose functions `libtracetools.so` exports.
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

/// A library that is probed.
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
    /// A program or library with onbeat-flow's executors, known by its [`FLOW_NOTE`].
    Flow,
    /// `libddsc.so`, in a process without ROS 2
    Cyclone,
    /// `libfastdds.so`, before Fast DDS 3 `libfastrtps.so`, in a process without ROS 2
    FastDds,
}

impl Library {
    /// Whether it is a DDS, which ROS 2 uses too.
    pub fn is_dds(self) -> bool {
        matches!(self, Library::Cyclone | Library::FastDds)
    }

    /// The library that a path names, by its last part. Versioned names (`librcl.so.1`) count
    /// too.
    pub fn of_path(path: &str) -> Option<Library> {
        let name = crate::names::file_name(path);
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
            "libfastdds" | "libfastrtps" => Some(Library::FastDds),
            // With a number of its build in a wheel of Python.
            _ if stem == "libddsc" || stem.starts_with("libddsc-") => Some(Library::Cyclone),
            _ => {
                // The shared and dynamic parts are reached through the functions of librmw_X_cpp.
                let rmw = stem.strip_prefix("librmw_")?;
                let implementation = !rmw.ends_with("_shared_cpp")
                    && !rmw.ends_with("_common")
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
    /// The library that has the function.
    pub library: Library,
    /// The function's candidate symbols, best first.
    pub symbols: &'static [&'static str],
    /// Attach to all symbols that exist (true) or to the first (false).
    pub all: bool,
    /// BPF program for the entry.
    pub program: &'static str,
    /// BPF program for the return, where a result is written through a pointer.
    pub return_program: Option<&'static str>,
    /// Oldest distribution that this row is for.
    pub since: Distribution,
    /// First distribution that it is no longer for.
    pub until: Option<Distribution>,
    /// What the model lacks without it.
    pub consequence: &'static str,
}

impl Probe {
    /// Whether this row is for that distribution.
    pub fn applies_to(&self, distribution: Distribution) -> bool {
        distribution >= self.since && self.until.is_none_or(|until| distribution < until)
    }
}

/// A program on a tracepoint of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct KernelProbe {
    /// The tracepoint, as the kernel and manifests name it.
    pub name: &'static str,
    /// BPF program.
    pub program: &'static str,
    /// What the model lacks without it.
    pub consequence: &'static str,
}

/// Variable in which onbeat-flow has the kernel count its probes.
pub const FLOW_COUNTER: &str = "onbeat_flow_watched";
/// Section that marks a file with onbeat-flow's executors.
pub const FLOW_NOTE: &str = ".note.onbeat";

/// Name prefix of `message_filters::Synchronizer<...>` members, and what marks its input
/// callback `cb<N>(event)`: these are template instances in the user's own binaries.
pub const SYNC_PREFIX: &str = "_ZN15message_filters12SynchronizerI";
/// See [`SYNC_PREFIX`].
pub const SYNC_MEMBER: &str = "E2cbILi";
/// In the names of synchronisers whose policy is `ApproximateTime`.
pub const SYNC_APPROXIMATE: &str = "15ApproximateTimeI";

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
    fn generations_differ_by_their_exports() {
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
        for name in ["/usr/lib/libddsc.so.0.10.2", "libddsc-1b2c3d4e.so.0"] {
            assert_eq!(Library::of_path(name), Some(Library::Cyclone), "{name}");
        }
        for name in ["libfastrtps.so.2.9.1", "libfastdds.so.3.2"] {
            assert_eq!(Library::of_path(name), Some(Library::FastDds), "{name}");
        }
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
            "libddscxx.so",
            "libfastcdr.so.2",
            "librcl.so.bak",
            "librmw_dds_common__rosidl_typesupport_c.so",
            "librmw_dds_common.so",
            "librmw_security_common.so",
        ] {
            assert_eq!(Library::of_path(other), None, "{other}");
        }
    }
}
