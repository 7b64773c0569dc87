//! The probe table: every probe in user space and in the kernel. The module `probes` explains how
//! to add one.

use super::{Distribution, KernelProbe, Library, Probe};
use Distribution::{Jazzy, Kilted};

// These texts say what the model lacks without a probe.
const NO_NAMES: &str = "nodes and endpoints that are created during the recording have no names";
const NO_CALLBACK: &str = "callbacks that run through a function without a probe are missing";
const NO_EDGE: &str =
    "if a function without a probe sends or receives data, edges and chains over this data are missing";
const COARSE: &str = "starts and ends of callbacks are inferred from other calls and less exact";
const MINOR: &str =
    "callbacks, edges and chains are complete, but details such as function names or lifecycle states are missing";
const NO_TASK: &str = "tasks of onbeat-flow are missing";
const NO_DUE: &str =
    "release jitter and response times are wrong for timers that are reset or get another period";
const SIMULATED: &str = "release jitter and response times are wrong for timers on simulated time";
const INTRA: &str = "intra-process edges are missing";
const NO_TOPIC: &str =
    "the topics of DDS readers and writers in programs without ROS 2 are unknown";
const NO_ENDPOINT: &str = "readers and writers that a function without a probe creates are missing";
const NO_LISTENER: &str =
    "the model shows a DDS listener without probes as a loop that polls for messages";

macro_rules! row {
    (
        $name:literal, $lib:ident, [$($symbol:literal),+], $program:literal, $why:expr
        $(, $field:ident = $value:expr)*
    ) => {
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

/// The probes in user space, in the order in which onbeat attaches them.
pub const PROBES: &[Probe] = &[
    // ---- initialisation
    row!(
        "rcl_init",
        Tracetools,
        ["ros_trace_rcl_init"],
        "on_rcl_init",
        "processes that start during the recording count as late, as if they ran before it"
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
    // This row comes before those that report new timers, so that the end of every new timer is
    // seen.
    row!(
        "rcl_timer_cancel",
        Rcl,
        ["rcl_timer_cancel"],
        "on_timer_cancel",
        "a one-shot timer that is created again counts as a new timer"
    ),
    row!(
        "rcl_timer_init",
        Tracetools,
        ["ros_trace_rcl_timer_init"],
        "on_timer_init",
        "the periods of timers are inferred from their calls"
    ),
    row!(
        "rcl_fini",
        Rcl,
        [
            "rcl_publisher_fini",
            "rcl_subscription_fini",
            "rcl_service_fini",
            "rcl_client_fini",
            "rcl_timer_fini",
            "rcl_node_fini"
        ],
        "on_fini",
        "messages to destroyed endpoints count as lost, and timers that are created again count as \
         new timers",
        all = true
    ),
    row!(
        "rclcpp_timer_link_node",
        Tracetools,
        ["ros_trace_rclcpp_timer_link_node"],
        "on_timer_node",
        "in processes with several nodes, the node of a timer is uncertain"
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
        "in rclpy processes with several nodes, the node of a timer is uncertain"
    ),
    row!(
        "rcl_timer_init (clock)",
        Rcl,
        ["rcl_timer_init2", "rcl_timer_init"],
        "on_timer_clock",
        "in rclpy processes with several nodes, the node of a timer is uncertain"
    ),
    row!(
        "rcl_timer_reset",
        Rcl,
        ["rcl_timer_reset"],
        "on_timer_reset",
        NO_DUE
    ),
    row!(
        "rcl_timer_exchange_period",
        Rcl,
        ["rcl_timer_exchange_period"],
        "on_timer_period",
        NO_DUE
    ),
    row!(
        "rcl_enable_ros_time_override",
        Rcl,
        ["rcl_enable_ros_time_override"],
        "on_clock_simulated",
        SIMULATED
    ),
    row!(
        "rcl_disable_ros_time_override",
        Rcl,
        ["rcl_disable_ros_time_override"],
        "on_clock_real",
        SIMULATED
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
        "rmw_take_loaned_message",
        Rmw,
        ["rmw_take_loaned_message_with_info"],
        "on_rmw_take_loaned",
        "callbacks that take loaned messages have no input, and no edge leads to them",
        return_program = Some("on_rmw_take_loaned_return")
    ),
    row!(
        "rmw_publish_loaned_message",
        Rmw,
        ["rmw_publish_loaned_message"],
        "on_publish_unstamped",
        "edges and chains over messages that are loaned from the middleware are missing",
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
        [
            "_ZN6rclcpp8Executor14execute_clientESt10shared_ptrINS_10ClientBaseEE",
            // Since Lyrical, the pointer is passed by reference.
            "_ZN6rclcpp8Executor14execute_clientERKSt10shared_ptrINS_10ClientBaseEE"
        ],
        "on_execute_client",
        "starts and ends of rclcpp's client callbacks are inferred",
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
        "a task that reuses the memory address of a destroyed task has the name of the destroyed task"
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
    // ---- items of onbeat-link, and of onbeat-flow's channels
    row!(
        "onbeat_link_init",
        Flow,
        ["onbeat_link_init"],
        "on_link_init",
        "an end of a link that reuses the memory address of a closed end has the name of the closed end"
    ),
    row!(
        "onbeat_link_fini",
        Flow,
        ["onbeat_link_fini"],
        "on_link_fini",
        "items that are sent to closed ends of links count as lost"
    ),
    row!(
        "onbeat_link_send",
        Flow,
        ["onbeat_link_send"],
        "on_link_send",
        NO_EDGE
    ),
    row!(
        "onbeat_link_receive",
        Flow,
        ["onbeat_link_receive"],
        "on_link_receive",
        NO_EDGE
    ),
    // ---- applications of plain DDS: Cyclone DDS
    row!("dds_create_topic", Cyclone, ["dds_create_topic"], "on_cyclone_topic", NO_TOPIC, return_program = Some("on_dds_topic_return")),
    row!("dds_create_topic_sertype", Cyclone, ["dds_create_topic_sertype"], "on_cyclone_topic_of_type", NO_TOPIC, return_program = Some("on_dds_topic_return")),
    row!("dds_create_reader", Cyclone, ["dds_create_reader", "dds_create_reader_rhc"], "on_cyclone_endpoint", NO_ENDPOINT, all = true, return_program = Some("on_dds_reader_return")),
    row!("dds_create_writer", Cyclone, ["dds_create_writer"], "on_cyclone_endpoint", NO_ENDPOINT, all = true, return_program = Some("on_dds_writer_return")),
    row!("dds_create_readcondition", Cyclone, ["dds_create_readcondition", "dds_create_querycondition"], "on_cyclone_condition", "messages that are taken through a read condition or a query condition are missing", all = true, return_program = Some("on_cyclone_condition_return")),
    row!("dds_delete", Cyclone, ["dds_delete"], "on_cyclone_delete", "messages that are written for deleted readers count as lost"),
    row!("dds_lset_data_available", Cyclone, ["dds_lset_data_available", "dds_lset_data_available_arg"], "on_cyclone_listener", NO_LISTENER, all = true),
    row!("dds_write", Cyclone, ["dds_write", "dds_writecdr", "dds_writedispose"], "on_cyclone_write", NO_EDGE, all = true),
    row!("dds_write_ts", Cyclone, ["dds_write_ts", "dds_writedispose_ts"], "on_cyclone_write_ts", NO_EDGE, all = true),
    row!("dds_take", Cyclone, ["dds_take", "dds_take_wl", "dds_take_mask", "dds_take_mask_wl", "dds_take_instance", "dds_take_instance_wl", "dds_take_instance_mask", "dds_take_instance_mask_wl", "dds_take_next", "dds_take_next_wl", "dds_read", "dds_read_wl", "dds_read_mask", "dds_read_mask_wl", "dds_read_instance", "dds_read_instance_wl", "dds_read_instance_mask", "dds_read_instance_mask_wl", "dds_read_next", "dds_read_next_wl"], "on_cyclone_take", NO_CALLBACK, all = true, return_program = Some("on_cyclone_take_return")),
    row!("dds_takecdr", Cyclone, ["dds_takecdr", "dds_readcdr", "dds_takecdr_instance", "dds_readcdr_instance"], "on_cyclone_take_cdr", NO_CALLBACK, all = true, return_program = Some("on_cyclone_take_return")),
    row!("dds_waitset_wait", Cyclone, ["dds_waitset_wait", "dds_waitset_wait_until"], "on_dds_wait", COARSE, all = true),
    // ---- applications of plain DDS: Fast DDS 2 and 3
    row!("DomainParticipant::create_topic", FastDds, ["_ZN8eprosima7fastdds3dds17DomainParticipant12create_topicERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESA_RKNS1_8TopicQosEPNS1_13TopicListenerERKNS1_10StatusMaskE", "_ZN8eprosima7fastdds3dds17DomainParticipant25create_topic_with_profileERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESA_SA_PNS1_13TopicListenerERKNS1_10StatusMaskE"], "on_fast_topic", NO_TOPIC, all = true, return_program = Some("on_dds_topic_return")),
    row!("DomainParticipant::create_subscriber", FastDds, ["_ZN8eprosima7fastdds3dds17DomainParticipant17create_subscriberERKNS1_13SubscriberQosEPNS1_18SubscriberListenerERKNS1_10StatusMaskE"], "on_fast_subscriber", NO_LISTENER),
    row!("Subscriber::create_datareader", FastDds, ["_ZN8eprosima7fastdds3dds10Subscriber17create_datareaderEPNS1_16TopicDescriptionERKNS1_13DataReaderQosEPNS1_18DataReaderListenerERKNS1_10StatusMaskE", "_ZN8eprosima7fastdds3dds10Subscriber17create_datareaderEPNS1_16TopicDescriptionERKNS1_13DataReaderQosEPNS1_18DataReaderListenerERKNS1_10StatusMaskESt10shared_ptrINS0_4rtps12IPayloadPoolEE", "_ZN8eprosima7fastdds3dds10Subscriber30create_datareader_with_profileEPNS1_16TopicDescriptionERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPNS1_18DataReaderListenerERKNS1_10StatusMaskE", "_ZN8eprosima7fastdds3dds10Subscriber30create_datareader_with_profileEPNS1_16TopicDescriptionERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPNS1_18DataReaderListenerERKNS1_10StatusMaskESt10shared_ptrINS0_4rtps12IPayloadPoolEE"], "on_fast_reader", NO_ENDPOINT, all = true, return_program = Some("on_dds_reader_return")),
    row!("Publisher::create_datawriter", FastDds, ["_ZN8eprosima7fastdds3dds9Publisher17create_datawriterEPNS1_5TopicERKNS1_13DataWriterQosEPNS1_18DataWriterListenerERKNS1_10StatusMaskE", "_ZN8eprosima7fastdds3dds9Publisher17create_datawriterEPNS1_5TopicERKNS1_13DataWriterQosEPNS1_18DataWriterListenerERKNS1_10StatusMaskESt10shared_ptrINS0_4rtps12IPayloadPoolEE", "_ZN8eprosima7fastdds3dds9Publisher30create_datawriter_with_profileEPNS1_5TopicERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPNS1_18DataWriterListenerERKNS1_10StatusMaskE", "_ZN8eprosima7fastdds3dds9Publisher30create_datawriter_with_profileEPNS1_5TopicERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPNS1_18DataWriterListenerERKNS1_10StatusMaskESt10shared_ptrINS0_4rtps12IPayloadPoolEE"], "on_fast_writer", NO_ENDPOINT, all = true, return_program = Some("on_dds_writer_return")),
    row!("Subscriber::delete_datareader", FastDds, ["_ZN8eprosima7fastdds3dds10Subscriber17delete_datareaderEPKNS1_10DataReaderE", "_ZN8eprosima7fastdds3dds9Publisher17delete_datawriterEPKNS1_10DataWriterE"], "on_fast_delete", "messages that are written for deleted readers count as lost", all = true),
    row!("DataReader::set_listener", FastDds, ["_ZN8eprosima7fastdds3dds10DataReader12set_listenerEPNS1_18DataReaderListenerE", "_ZN8eprosima7fastdds3dds10DataReader12set_listenerEPNS1_18DataReaderListenerERKNS1_10StatusMaskE"], "on_fast_set_listener", NO_LISTENER, all = true),
    row!("DataWriter::write", FastDds, ["_ZN8eprosima7fastdds3dds10DataWriter5writeEPv", "_ZN8eprosima7fastdds3dds10DataWriter5writeEPKv", "_ZN8eprosima7fastdds3dds10DataWriter5writeEPvRKNS_8fastrtps4rtps16InstanceHandle_tE", "_ZN8eprosima7fastdds3dds10DataWriter5writeEPKvRKNS0_4rtps16InstanceHandle_tE", "_ZN8eprosima7fastdds3dds10DataWriter5writeEPvRNS_8fastrtps4rtps11WriteParamsE", "_ZN8eprosima7fastdds3dds10DataWriter5writeEPKvRNS0_4rtps11WriteParamsE"], "on_fast_write", NO_EDGE, all = true),
    row!("DataReader::take_next_sample", FastDds, ["_ZN8eprosima7fastdds3dds10DataReader16take_next_sampleEPvPNS1_10SampleInfoE", "_ZN8eprosima7fastdds3dds10DataReader16read_next_sampleEPvPNS1_10SampleInfoE"], "on_fast_take_next", NO_CALLBACK, all = true, return_program = Some("on_fast_take_next_return")),
    row!("DataReader::take", FastDds, ["_ZN8eprosima7fastdds3dds10DataReader4takeERNS1_18LoanableCollectionERNS1_16LoanableSequenceINS1_10SampleInfoESt17integral_constantIbLb1EEEEittt", "_ZN8eprosima7fastdds3dds10DataReader13take_instanceERNS1_18LoanableCollectionERNS1_16LoanableSequenceINS1_10SampleInfoESt17integral_constantIbLb1EEEEiRKNS_8fastrtps4rtps16InstanceHandle_tEttt", "_ZN8eprosima7fastdds3dds10DataReader13take_instanceERNS1_18LoanableCollectionERNS1_16LoanableSequenceINS1_10SampleInfoESt17integral_constantIbLb1EEEEiRKNS0_4rtps16InstanceHandle_tEttt", "_ZN8eprosima7fastdds3dds10DataReader4readERNS1_18LoanableCollectionERNS1_16LoanableSequenceINS1_10SampleInfoESt17integral_constantIbLb1EEEEittt", "_ZN8eprosima7fastdds3dds10DataReader13read_instanceERNS1_18LoanableCollectionERNS1_16LoanableSequenceINS1_10SampleInfoESt17integral_constantIbLb1EEEEiRKNS_8fastrtps4rtps16InstanceHandle_tEttt", "_ZN8eprosima7fastdds3dds10DataReader13read_instanceERNS1_18LoanableCollectionERNS1_16LoanableSequenceINS1_10SampleInfoESt17integral_constantIbLb1EEEEiRKNS0_4rtps16InstanceHandle_tEttt"], "on_fast_take", NO_CALLBACK, all = true, return_program = Some("on_fast_take_return")),
    row!("WaitSet::wait", FastDds, ["_ZNK8eprosima7fastdds3dds7WaitSet4waitERSt6vectorIPNS1_9ConditionESaIS5_EENS_8fastrtps6Time_tE", "_ZNK8eprosima7fastdds3dds7WaitSet4waitERSt6vectorIPNS1_9ConditionESaIS5_EENS1_6Time_tE", "_ZN8eprosima7fastdds3dds10DataReader23wait_for_unread_messageERKNS_8fastrtps6Time_tE", "_ZN8eprosima7fastdds3dds10DataReader23wait_for_unread_messageERKNS1_6Time_tE"], "on_dds_wait", COARSE, all = true),
];

/// The BPF programs that run at tracepoints of the kernel.
pub const KERNEL_PROBES: &[KernelProbe] = &[
    KernelProbe {
        name: "sched_switch",
        program: "on_switch",
        consequence: "execution times cannot be distinguished from response times",
    },
    KernelProbe {
        name: "sched_waking",
        program: "on_waking",
        consequence: "work that a callback hands to another thread is not seen",
    },
    KernelProbe {
        name: "sched_migrate_task",
        program: "on_migrate",
        consequence: "if a thread moves to another CPU while it waits for a CPU, the thread that had the CPU is unknown",
    },
    KernelProbe {
        name: "task_rename",
        program: "on_rename",
        consequence: "a thread that changes its name appears under its first name",
    },
    KernelProbe {
        name: "sched_process_fork",
        program: "on_fork",
        consequence: "threads and child processes have no names",
    },
    KernelProbe {
        name: "sched_process_exec",
        program: "on_exec",
        consequence: "a process that executes another program (execve) still counts as the old program",
    },
    KernelProbe {
        name: "sched_process_exit",
        program: "on_exit_task",
        consequence: "a process with a reused id can be mistaken for the old process",
    },
    KernelProbe {
        name: "udp_fail_queue_rcv_skb",
        program: "on_udp_drop",
        consequence: "a loss of messages at a full socket has no cause",
    },
    KernelProbe {
        name: "signal_generate",
        program: "on_signal",
        consequence:
            "su, sudo and nsenter can stay suspended, so do not use them in the recorded command",
    },
];
