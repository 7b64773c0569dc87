//! The vocabulary of events: everything that a recording can contain, independent of its storage.
//!
//! Handles are addresses in the traced process: they identify an object within one `pid` for as
//! long as it lives. `rcl` handles are `rcl_*_t *`, `rmw` handles are `rmw_*_t *`; the `*Init`
//! events tie the two together. Times are CLOCK_MONOTONIC in ns; `source_ns` are the middleware's
//! source time stamps (CLOCK_REALTIME in ns for every rmw we know), which identify a data item
//! across publisher and subscriber (of an item of onbeat-flow: its process and number).

/// A name from a traced process: untrusted text, to be escaped where it is shown.
pub type Name = Box<str>;

/// One event of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Time, CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// CPU on which it happened.
    pub cpu: u16,
    /// Process (thread group) in the recorder's pid namespace.
    pub pid: u32,
    /// Thread in the recorder's pid namespace.
    pub tid: u32,
    /// The kind, with its fields.
    pub kind: EventKind,
}

/// In place of a thread id: which one is not told.
pub const UNTOLD: u32 = u32::MAX;

/// Which kind of endpoint a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointKind {
    /// A topic's publisher.
    Publisher,
    /// A topic's subscription.
    Subscription,
    /// A service's server side.
    Service,
    /// A service's client side.
    Client,
}

/// Which `rclcpp::Executor::execute_*` function a bracket comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExecuteKind {
    /// `execute_timer`
    Timer,
    /// `execute_subscription`
    Subscription,
    /// `execute_service`
    Service,
    /// `execute_client`
    Client,
}

/// The kinds of events. The doc comment of a variant names its source; fields have the names of the
/// tracepoint's arguments.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    // ---- initialisation (ROS2-INIT of the thesis, section 3.3.1)
    /// `rcl_node_init`
    NodeInit {
        node: u64,
        rmw: u64,
        name: Name,
        namespace: Name,
    },
    /// `rcl_publisher_init`
    PublisherInit {
        publisher: u64,
        node: u64,
        rmw: u64,
        topic: Name,
        depth: u64,
    },
    /// `rcl_subscription_init`
    SubscriptionInit {
        subscription: u64,
        node: u64,
        rmw: u64,
        topic: Name,
        depth: u64,
    },
    /// What a publisher or subscription asked for: its `rmw_qos_profile_t`, with the numbers of rmw's
    /// enumerations, and durations without an end as 0 or i64::MAX.
    EndpointQos {
        endpoint: EndpointKind,
        rcl: u64,
        history: u8,
        reliability: u8,
        durability: u8,
        liveliness: u8,
        depth: u64,
        deadline_ns: u64,
        lifespan_ns: u64,
        lease_ns: u64,
    },
    /// `rcl_service_init`
    ServiceInit {
        service: u64,
        node: u64,
        rmw: u64,
        name: Name,
    },
    /// `rcl_client_init`
    ClientInit {
        client: u64,
        node: u64,
        rmw: u64,
        name: Name,
    },
    /// `rmw_publisher_init`
    PublisherGid { rmw: u64, gid: [u8; 16] },
    /// `rmw_subscription_init`
    SubscriptionGid { rmw: u64, gid: [u8; 16] },
    /// `rmw_client_init`
    ClientGid { rmw: u64, gid: [u8; 16] },
    /// `rcl_clock_init`, in recordings without [`EventKind::ClockKind`].
    ClockInit { clock: u64 },
    /// `rcl_timer_init`
    TimerInit { timer: u64, period_ns: i64 },
    /// `rcl_timer_init2`: which clock drives a timer (and so, in rclpy, which node owns it).
    /// Fires at function entry, so *before* the timer's own `TimerInit` on the same thread.
    TimerClock { timer: u64, clock: u64 },
    /// `rclcpp_timer_link_node`
    TimerNode { timer: u64, node: u64 },
    /// `rclcpp_timer_callback_added`
    TimerCallback { timer: u64, callback: u64 },
    /// `rclcpp_subscription_init`: rcl handle to rclcpp object. Fires once more for the
    /// intra-process subscription of the same rcl handle.
    SubscriptionObject { subscription: u64, object: u64 },
    /// `rclcpp_subscription_callback_added`: rclcpp object to callback.
    SubscriptionCallback { object: u64, callback: u64 },
    /// `rclcpp_service_callback_added`
    ServiceCallback { service: u64, callback: u64 },
    /// `rclcpp_callback_register`, or the symbol found otherwise.
    CallbackSymbol { callback: u64, symbol: Name },
    /// `rclcpp_ipb_to_subscription`: intra-process buffer to rclcpp intra-process subscription.
    IntraBufferSubscription { ipb: u64, object: u64 },
    /// `rclcpp_buffer_to_ipb`
    RingBufferIntraBuffer { buffer: u64, ipb: u64 },
    /// `rclcpp_construct_ring_buffer`
    RingBufferInit { buffer: u64, capacity: u64 },
    /// `rcl_lifecycle_state_machine_init`
    LifecycleInit { node: u64, machine: u64 },
    /// `rcl_lifecycle_transition`
    LifecycleTransition { machine: u64, from: Name, to: Name },
    /// Late attach: an endpoint that existed before the recording, with the name that stands in
    /// its public rmw struct. `rcl` is 0 where only the rmw handle is known.
    EndpointFound {
        endpoint: EndpointKind,
        rcl: u64,
        rmw: u64,
        name: Name,
    },
    /// Late attach: node name as far as it could be had (from the process's memory, parameter
    /// services or the command line). `node` is 0 where the handle is unknown.
    NodeFound { node: u64, name: Name },
    /// Late attach: the endpoint with this rcl handle belongs to the node with this rcl handle.
    EndpointNode {
        endpoint: EndpointKind,
        rcl: u64,
        node: u64,
    },
    /// Late attach: a timer seen in a wait set, or called, whose creation was not seen.
    TimerFound { timer: u64 },
    /// `rcl_publisher_fini`, `rcl_subscription_fini`, `rcl_service_fini`, `rcl_client_fini`,
    /// `rcl_timer_fini`, `rcl_node_fini`: the object with this rcl handle ends.
    HandleFini { handle: u64 },
    /// Entry of `rcl_timer_reset`: the timer is due one period from now, also if it was cancelled.
    TimerReset { timer: u64 },
    /// `rcl_timer_cancel`: the timer is not due any more until it is reset.
    TimerCancel { timer: u64 },
    /// `rcl_timer_exchange_period`: counts from the timer's next call or reset on. rclpy sets the
    /// period of every timer once more right after `TimerInit`.
    TimerPeriod { timer: u64, period_ns: i64 },
    /// `rcl_clock_init`: rclpy makes a clock for each node, right after the node. `time` is an
    /// `rcl_clock_type_t`: 1 is ROS time, 2 system time, 3 steady time.
    ClockKind { clock: u64, time: u8 },
    /// `rcl_enable_ros_time_override`, `rcl_disable_ros_time_override`: whether the time of a
    /// clock of ROS time is simulated from now on.
    ClockOverride { clock: u64, active: bool },

    /// `onbeat_link_init`: an end of a link of onbeat-link, or of a named channel of onbeat-flow.
    /// `link` is the number by which all its ends know it, `depth` how many items wait before one
    /// is replaced.
    LinkInit {
        end: u64,
        link: u64,
        depth: u64,
        sends: bool,
        name: Name,
    },

    // ---- run time (ROS2-RT)
    /// `callback_start` (rclcpp): exact start of a callback.
    CallbackStart { callback: u64, intra_process: bool },
    /// `callback_end` (rclcpp): exact end of a callback.
    CallbackEnd { callback: u64 },
    /// Entry of `rcl_timer_call[_with_info]`: the executor calls a timer.
    TimerCall { timer: u64 },
    /// `rmw_take`: a subscription was read; with `taken` false there was nothing.
    Take {
        rmw: u64,
        message: u64,
        source_ns: i64,
        taken: bool,
    },
    /// `rclcpp_intra_publish`
    IntraPublish { publisher: u64, message: u64 },
    /// `rclcpp_ring_buffer_enqueue`
    RingBufferEnqueue {
        buffer: u64,
        index: u64,
        overwritten: bool,
    },
    /// `rclcpp_ring_buffer_dequeue`
    RingBufferDequeue { buffer: u64, index: u64 },
    /// `rclcpp_ring_buffer_clear`
    RingBufferClear { buffer: u64 },
    /// `rcl_publish`
    RclPublish { publisher: u64, message: u64 },
    /// `rmw_publish`. Without `source_ns` (Humble) the source time stamp that a take shows lies
    /// between this event and the thread's next one.
    Publish {
        rmw: u64,
        message: u64,
        source_ns: Option<i64>,
    },
    /// A client sends a request. `sequence` counts per client.
    RequestSend { rmw: u64, sequence: i64 },
    /// A service reads a request; `gid` and `sequence` name the client and its request.
    RequestTake {
        rmw: u64,
        gid: [u8; 16],
        sequence: i64,
        taken: bool,
    },
    /// A service sends a response. `source_ns` is there since Kilted.
    ResponseSend {
        rmw: u64,
        gid: [u8; 16],
        sequence: i64,
        source_ns: Option<i64>,
    },
    /// A client reads a response. `taken` false: not dispatched.
    ResponseTake {
        rmw: u64,
        sequence: i64,
        source_ns: i64,
        taken: bool,
    },
    /// A message synchroniser (`message_filters`) got an input on this thread.
    SyncInput { filter: u64 },
    /// The same, of a synchroniser by approximate time: it publishes with the next input.
    SyncApproximate { filter: u64 },
    /// `onbeat_link_send`: the item of this number is sent at this end, which nobody has received.
    LinkSend { end: u64, number: u64 },
    /// `onbeat_link_receive`: the item of this number was received at this end.
    LinkReceive { end: u64, number: u64 },
    /// `rclcpp_executor_get_next_ready`
    ExecutorNextReady,
    /// `rclcpp_executor_wait_for_work`
    ExecutorWaitForWork { timeout_ns: i64 },
    /// `rclcpp_executor_execute`: `handle` is the rcl handle of a timer or subscription.
    ExecutorExecute { handle: u64 },
    /// Entry of `rclcpp::Executor::execute_*`.
    ExecuteStart { execute: ExecuteKind },
    /// Return of `rclcpp::Executor::execute_*`.
    ExecuteEnd { execute: ExecuteKind },
    /// Entry of `rcl_wait_set_init`: rclpy builds one per round.
    WaitSetInit,
    /// Entry of `rcl_wait`.
    Wait,
    /// Entry of `rcl_trigger_guard_condition`. rclpy's executor triggers its guard once between
    /// take and callback, and once after the callback.
    GuardTrigger { guard: u64 },

    // ---- kernel
    /// `sched_switch`: this thread gets the CPU. `priority` is the kernel's (0-99 real-time,
    /// 100-139 normal), `policy` the SCHED_* number. `prev_tid` and `next_tid` are [`UNTOLD`] where the
    /// recorder does not see other threads.
    SwitchIn {
        prev_tid: u32,
        priority: u8,
        policy: u8,
    },
    /// `sched_switch`: this thread leaves the CPU. `state` 0: it was preempted (still runnable).
    SwitchOut { next_tid: u32, state: u16 },
    /// `sched_waking`: this thread (`pid`/`tid` of the event) is made runnable, by `waker_tid` where a
    /// thread of its process does it, else 0.
    Wake { waker_tid: u32 },
    /// `sched_switch`: this thread, which slept and gets the CPU now, was ready for so long before.
    /// Stands for `Wake` where the kernel accounts for it (Linux 5.14 with CONFIG_SCHED_INFO).
    Woken { ready_ns: u64 },
    /// `sched_process_fork`; the event's pid/tid are the child's.
    Fork {
        parent_pid: u32,
        parent_tid: u32,
        comm: Name,
    },
    /// `sched_process_exec`
    Exec { comm: Name },
    /// `sched_process_exit`
    Exit,
    /// In a virtual machine: the hypervisor had this thread's CPU for itself for so long since
    /// the thread got it, or since the last such event of the thread.
    Stolen { stolen_ns: u64 },
    /// `sched_switch`: this thread gets the CPU while an observed one waits for it, and neither it nor
    /// `prev_tid`, which leaves the CPU, is observed. `last`: the next such events of this wait are left
    /// out. With `prev_tid` [`UNTOLD`]: this observed thread gets the CPU, and who had it while it waited
    /// was not recorded.
    Occupied { prev_tid: u32, last: bool },
    /// The name of a thread that is not observed, and that of its process: it had a CPU for which an
    /// observed one waited. Comes again every ten seconds, and when they change.
    Bystander {
        comm: Name,
        process: Name,
        kernel: bool,
    },

    /// `sched_switch`: this thread goes to sleep for the mutex at `lock` of its process, which `owner_tid`
    /// holds: what stands in the mutex, as glibc and the kernel (with priority inheritance) write it. Comes
    /// just before the thread's `SwitchOut`.
    LockWait { lock: u64, owner_tid: u32 },

    // ---- the recorder's own
    /// A process that is observed from here on.
    Process {
        command: Name,
        distribution: Name,
        rmw: Name,
        late: bool,
    },
    /// The properties of a thread. `cpus` is the affinity mask of the first 64 CPUs.
    Thread {
        comm: Name,
        policy: u8,
        priority: u8,
        cpus: u64,
    },
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, sampled (pid and tid are 0).
    ClockOffset { realtime_minus_monotonic_ns: i64 },
    /// The ring buffer was full: `count` more events of kind `probe` were lost on the event's CPU
    /// since the last such report.
    Lost { probe: Name, count: u64 },
}
