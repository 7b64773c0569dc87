//! The probes: their places in each distribution, and what the model lacks without each of them.
//!
//! A new distribution or middleware is a change here, not in the recorder. CONTRIBUTING.md ("Add
//! something") lists all steps for a new probe, and for a new distribution.
//!
//! `cargo test -p onbeat-record` fails if a step in this crate is missing, or if the program leaves
//! a field of its record empty. `--test recorder` runs the programs on the kernel.

mod table;

pub use table::{KERNEL_PROBES, PROBES};

/// A generation of the tracing ABI. The variants are sorted by age, oldest first. A newer, unknown
/// distribution counts as the newest generation whose functions it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// The generation with 28 events. Its `rmw_publish` has neither a handle nor a time stamp.
    Humble,
    /// The generation that adds the functions `ros_trace_enabled_*` and `ros_trace_do_*` to the
    /// functions of Humble.
    Iron,
    /// The generation whose `rmw_publish` has a handle and a time stamp. This generation also adds
    /// events of intra-process communication.
    Jazzy,
    /// The generation that adds request and response events. The distribution Lyrical has the same
    /// events.
    Kilted,
}

impl Distribution {
    /// Returns the distribution's name as ROS 2 spells it: in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Humble => "humble",
            Distribution::Iron => "iron",
            Distribution::Jazzy => "jazzy",
            Distribution::Kilted => "kilted",
        }
    }

    /// Returns the generation whose functions `libtracetools.so` exports. `exports` returns whether
    /// the library exports a symbol.
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

/// A library whose functions onbeat probes: of ROS 2, of a middleware, of a DDS or of onbeat-flow.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Library {
    Tracetools,
    Rcl,
    /// A middleware layer: `librmw_fastrtps_cpp.so`, `librmw_cyclonedds_cpp.so`,
    /// `librmw_zenoh_cpp.so` and others.
    Rmw,
    Rclcpp,
    /// A program or library with onbeat-flow's executors. The section [`FLOW_NOTE`] marks such a
    /// file.
    Flow,
    /// The library of Cyclone DDS (`libddsc.so`), in a process without ROS 2.
    Cyclone,
    /// The library of Fast DDS (`libfastdds.so`, before Fast DDS 3 `libfastrtps.so`), in a process
    /// without ROS 2.
    FastDds,
}

impl Library {
    /// Returns whether this is a library of Cyclone DDS or Fast DDS. Such a library does not show
    /// that a process uses ROS 2, because other programs load it, too.
    pub fn is_dds(self) -> bool {
        matches!(self, Library::Cyclone | Library::FastDds)
    }

    /// Recognises a library by the last part of its path. Versioned names (`librcl.so.1`) count
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
            // In a wheel of Python, the name contains a number of the build.
            _ if stem == "libddsc" || stem.starts_with("libddsc-") => Some(Library::Cyclone),
            _ => {
                // Every call reaches the shared and dynamic parts through the functions of
                // librmw_X_cpp.
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

/// A row of the probe table: a function of a library, and the BPF program that runs at the
/// function.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    pub name: &'static str,
    pub library: Library,
    /// The possible symbols of the function, best first.
    pub symbols: &'static [&'static str],
    /// If true, the probe goes to all `symbols` that exist. Otherwise it goes to the first of them
    /// that exists.
    pub all: bool,
    /// The name of the BPF program at the function's entry.
    pub program: &'static str,
    /// The name of the BPF program at the function's return. This program reads a result that the
    /// function writes through a pointer.
    pub return_program: Option<&'static str>,
    /// The oldest distribution to which this row applies.
    pub since: Distribution,
    /// The first distribution to which this row no longer applies.
    pub until: Option<Distribution>,
    /// A part of a sentence that says what the model lacks without this probe.
    pub consequence: &'static str,
}

impl Probe {
    /// Returns whether this row applies to a distribution: to `since` and newer ones, but not to
    /// `until` and newer ones.
    pub fn applies_to(&self, distribution: Distribution) -> bool {
        distribution >= self.since && self.until.is_none_or(|until| distribution < until)
    }
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy)]
pub struct KernelProbe {
    pub name: &'static str,
    pub program: &'static str,
    /// A part of a sentence that says what the model lacks without this program.
    pub consequence: &'static str,
}

/// The symbol of a variable in onbeat-flow. The kernel increases the variable for each probe on
/// onbeat-flow, so the library can read whether it is recorded.
pub const FLOW_COUNTER: &str = "onbeat_flow_watched";
/// The ELF section that marks a file with onbeat-flow's executors.
pub const FLOW_NOTE: &str = ".note.onbeat";

/// The prefix of the mangled names of `message_filters::Synchronizer<...>` members. The members are
/// template instances in the user's own programs and libraries.
pub const SYNC_PREFIX: &str = "_ZN15message_filters12SynchronizerI";
/// The part of a mangled name that marks an input callback `cb<N>(event)` of a synchroniser.
pub const SYNC_MEMBER: &str = "E2cbILi";
/// The part of a mangled name that marks a synchroniser with the policy `ApproximateTime`.
pub const SYNC_APPROXIMATE: &str = "15ApproximateTimeI";

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(distribution: Distribution) -> Vec<String> {
        PROBES
            .iter()
            .filter(|p| p.applies_to(distribution))
            .map(|p| format!("{:?}:{}", p.library, p.name))
            .collect()
    }

    #[test]
    fn in_humble_the_middleware_is_probed_for_publications_and_services() {
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
        // Humble's libtracetools has everything else that the model uses.
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

    const LYRICAL: &[&str] = &[
        "rcl_init",
        "rcl_node_init",
        "rmw_publisher_init",
        "rcl_publisher_init",
        "rclcpp_publish",
        "rclcpp_intra_publish",
        "rcl_publish",
        "rmw_publish",
        "rmw_subscription_init",
        "rcl_subscription_init",
        "rclcpp_subscription_init",
        "rclcpp_subscription_callback_added",
        "rmw_take",
        "rcl_take",
        "rclcpp_take",
        "rcl_service_init",
        "rclcpp_service_callback_added",
        "rmw_take_request",
        "rmw_send_response",
        "rmw_client_init",
        "rcl_client_init",
        "rmw_send_request",
        "rmw_take_response",
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
        "rclcpp_ipb_to_subscription",
        "rclcpp_buffer_to_ipb",
        "rclcpp_construct_ring_buffer",
        "rclcpp_ring_buffer_enqueue",
        "rclcpp_ring_buffer_dequeue",
        "rclcpp_ring_buffer_clear",
    ];

    #[test]
    fn lyrical_has_all_events_of_kilted_and_another_symbol_of_execute_client() {
        let exports = |symbol: &str| {
            let name = symbol.trim_start_matches("ros_trace_");
            let name = name
                .trim_start_matches("enabled_")
                .trim_start_matches("do_");
            LYRICAL.contains(&name)
        };
        let lyrical = Distribution::of_tracetools(exports);
        assert_eq!(lyrical, Distribution::Kilted);
        let traced = |p: &&Probe| p.library == Library::Tracetools && p.applies_to(lyrical);
        for probe in PROBES.iter().filter(traced) {
            assert!(probe.symbols.iter().all(|s| exports(s)), "{}", probe.name);
        }
        // rclcpp passes shared pointers by reference. For by value, it passes a pointer, too.
        let execute = PROBES.iter().find(|p| p.name == "execute_client");
        let symbols = execute.expect("a row").symbols;
        let by_reference = |s: &&str| s.contains("execute_clientERKSt10shared_ptr");
        assert_eq!(symbols.iter().filter(|s| by_reference(s)).count(), 1);
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
    fn a_ros_2_distribution_is_recognised_by_the_symbols_that_tracetools_exports() {
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
    fn libraries_are_recognised_by_file_name() {
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
