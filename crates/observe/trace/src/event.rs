//! The vocabulary of events: everything that a recording can contain, independent of its storage.
//!
//! Handles are addresses in the traced process. A handle identifies an object within one `pid`
//! while the object lives. `rcl` handles are `rcl_*_t *`, `rmw` handles are `rmw_*_t *`. The
//! `*Init` events tie the two together.
//!
//! Times are CLOCK_MONOTONIC in ns. A `source_ns` is the middleware's source time stamp,
//! CLOCK_REALTIME in ns for every supported rmw. It identifies a data item across publisher and
//! subscriber. For an item of onbeat-flow, it holds the sending process and the item's number
//! instead.

/// A name from a traced process. It is untrusted text: escape it before showing it.
pub type Name = Box<str>;

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The time of the event in ns, by CLOCK_MONOTONIC.
    pub time_ns: u64,
    pub cpu: u16,
    /// The process id (thread group id), in the recorder's PID namespace.
    pub pid: u32,
    /// The thread id, in the recorder's PID namespace.
    pub tid: u32,
    pub kind: EventKind,
}

/// The thread id of an event field whose thread is unknown.
pub const UNTOLD: u32 = u32::MAX;

/// The value of `priority` in [`EventKind::Thread`] for a thread whose scheduler events are not in
/// the trace.
pub const UNSCHEDULED: u8 = u8::MAX;

/// The kind of endpoint that a handle stands for.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointKind {
    Publisher,
    Subscription,
    Service,
    Client,
}

/// The function `rclcpp::Executor::execute_*` from which an execution event comes: `execute_timer`,
/// `execute_subscription`, `execute_service` or `execute_client`.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExecuteKind {
    Timer,
    Subscription,
    Service,
    Client,
}

/// The kind of call in which a thread sleeps.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallKind {
    /// `futex`: the thread waits for a lock, a condition variable or another thread.
    Futex,
    /// `nanosleep` and `clock_nanosleep`: the thread waits for a time.
    Sleep,
    /// No call: the thread touched memory that the kernel must provide first.
    PageFault,
    /// `poll`, `select`, `epoll_wait` and their variants.
    Poll,
    /// `read` and its variants.
    Read,
    /// `write`, `sendfile` and their variants.
    Write,
    /// `fsync` and other calls that wait until data is on the disk.
    Sync,
    /// Calls that open, close, find, rename or remove files.
    File,
    /// `sendto` and its variants.
    Send,
    /// `recvfrom` and its variants.
    Receive,
    /// `connect` and `accept`.
    Connect,
    /// `mmap` and other calls that change the memory of the process.
    Memory,
    Ioctl,
    /// `wait4` and `waitid`: the thread waits for a child process.
    Child,
    /// The thread waits for a signal.
    Signal,
    /// Calls that create a process or thread, or start a program.
    Process,
    Other,
}

impl CallKind {
    /// All kinds of calls. The place of a kind in this list is its number in files.
    pub const ALL: [CallKind; 17] = [
        CallKind::Futex,
        CallKind::Sleep,
        CallKind::PageFault,
        CallKind::Poll,
        CallKind::Read,
        CallKind::Write,
        CallKind::Sync,
        CallKind::File,
        CallKind::Send,
        CallKind::Receive,
        CallKind::Connect,
        CallKind::Memory,
        CallKind::Ioctl,
        CallKind::Child,
        CallKind::Signal,
        CallKind::Process,
        CallKind::Other,
    ];

    /// The words of [`CallKind::ALL`], as the text form and tables spell them.
    pub const WORDS: [&str; 17] = [
        "futex",
        "sleep",
        "page_fault",
        "poll",
        "read",
        "write",
        "sync",
        "file",
        "send",
        "receive",
        "connect",
        "memory",
        "ioctl",
        "child",
        "signal",
        "process",
        "other",
    ];

    /// Returns the word of the kind, such as `page_fault`.
    pub fn word(self) -> &'static str {
        CallKind::WORDS[self as usize]
    }
}

/// The kind of an event. The comment of a variant names the tracepoint or function from which the
/// event comes. Fields have the names of the tracepoint's arguments.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    // ---- Initialisation (ROS2-INIT of the thesis, section 3.3.1)
    /// A node is created (`rcl_node_init`).
    NodeInit {
        node: u64,
        rmw: u64,
        name: Name,
        namespace: Name,
    },
    /// A publisher is created (`rcl_publisher_init`).
    PublisherInit {
        publisher: u64,
        node: u64,
        rmw: u64,
        topic: Name,
        depth: u64,
    },
    /// A subscription is created (`rcl_subscription_init`).
    SubscriptionInit {
        subscription: u64,
        node: u64,
        rmw: u64,
        topic: Name,
        depth: u64,
    },
    /// A publisher or subscription requests this QoS: its `rmw_qos_profile_t`, with the numbers of
    /// rmw's enumerations. An unlimited duration is 0 or i64::MAX.
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
    /// A service is created (`rcl_service_init`).
    ServiceInit {
        service: u64,
        node: u64,
        rmw: u64,
        name: Name,
    },
    /// A client is created (`rcl_client_init`).
    ClientInit {
        client: u64,
        node: u64,
        rmw: u64,
        name: Name,
    },
    /// A publisher gets its global identifier in the middleware (`rmw_publisher_init`).
    PublisherGid { rmw: u64, gid: [u8; 16] },
    /// A subscription gets its global identifier in the middleware (`rmw_subscription_init`).
    SubscriptionGid { rmw: u64, gid: [u8; 16] },
    /// A client gets its global identifier in the middleware (`rmw_client_init`).
    ClientGid { rmw: u64, gid: [u8; 16] },
    /// A clock is created (`rcl_clock_init`). Only recordings without [`EventKind::ClockKind`] have
    /// this event.
    ClockInit { clock: u64 },
    /// A timer is created (`rcl_timer_init`).
    TimerInit { timer: u64, period_ns: i64 },
    /// A timer gets the clock that drives it (`rcl_timer_init2`). In rclpy, the clock also shows
    /// which node owns the timer. The probe runs at function entry, so this event comes *before*
    /// the timer's own `TimerInit` on the same thread.
    TimerClock { timer: u64, clock: u64 },
    /// A timer is linked to its node (`rclcpp_timer_link_node`).
    TimerNode { timer: u64, node: u64 },
    /// A timer gets its callback (`rclcpp_timer_callback_added`).
    TimerCallback { timer: u64, callback: u64 },
    /// An rcl subscription gets its rclcpp object (`rclcpp_subscription_init`). The event repeats
    /// for the intra-process subscription of the same rcl handle.
    SubscriptionObject { subscription: u64, object: u64 },
    /// An rclcpp subscription gets its callback (`rclcpp_subscription_callback_added`).
    SubscriptionCallback { object: u64, callback: u64 },
    /// A service gets its callback (`rclcpp_service_callback_added`).
    ServiceCallback { service: u64, callback: u64 },
    /// A callback's function has this symbol, according to `rclcpp_callback_register` or another
    /// source.
    CallbackSymbol { callback: u64, symbol: Name },
    /// An intra-process buffer is linked to its rclcpp intra-process subscription
    /// (`rclcpp_ipb_to_subscription`).
    IntraBufferSubscription { ipb: u64, object: u64 },
    /// A ring buffer is linked to its intra-process buffer (`rclcpp_buffer_to_ipb`).
    RingBufferIntraBuffer { buffer: u64, ipb: u64 },
    /// A ring buffer for intra-process messages is created (`rclcpp_construct_ring_buffer`).
    RingBufferInit { buffer: u64, capacity: u64 },
    /// The state machine of a lifecycle node is created (`rcl_lifecycle_state_machine_init`).
    LifecycleInit { node: u64, machine: u64 },
    /// A lifecycle node changes its state (`rcl_lifecycle_transition`).
    LifecycleTransition { machine: u64, from: Name, to: Name },
    /// Late attach: the recorder found an endpoint from before the recording. The name comes from
    /// the endpoint's public rmw struct. `rcl` is 0 if only the rmw handle is known.
    EndpointFound {
        endpoint: EndpointKind,
        rcl: u64,
        rmw: u64,
        name: Name,
    },
    /// Late attach: the recorder found the name of a node in the process's memory, in parameter
    /// services or in the command line. `node` is 0 if the handle is unknown.
    NodeFound { node: u64, name: Name },
    /// Late attach: the recorder found that the endpoint with handle `rcl` belongs to the node with
    /// handle `node`.
    EndpointNode {
        endpoint: EndpointKind,
        rcl: u64,
        node: u64,
    },
    /// Late attach: a timer that is older than the recording was called, or was seen in a wait set.
    TimerFound { timer: u64 },
    /// The object with this rcl handle is destroyed: `rcl_publisher_fini`, `rcl_subscription_fini`,
    /// `rcl_service_fini`, `rcl_client_fini`, `rcl_timer_fini` or `rcl_node_fini`.
    HandleFini { handle: u64 },
    /// A timer is reset (entry of `rcl_timer_reset`). It is due one period from now, even if it was
    /// cancelled.
    TimerReset { timer: u64 },
    /// A timer is cancelled (`rcl_timer_cancel`). It is not due until it is reset.
    TimerCancel { timer: u64 },
    /// A timer gets another period (`rcl_timer_exchange_period`), which applies from its next call
    /// or reset. rclpy sets every timer's period again right after `TimerInit`.
    TimerPeriod { timer: u64, period_ns: i64 },
    /// A clock is created (`rcl_clock_init`). rclpy makes a clock for each node, right after the
    /// node. `time` is an `rcl_clock_type_t`: 1 is ROS time, 2 system time, 3 steady time.
    ClockKind { clock: u64, time: u8 },
    /// A clock of ROS time begins or ends to follow simulated time (`rcl_enable_ros_time_override`,
    /// `rcl_disable_ros_time_override`).
    ClockOverride { clock: u64, active: bool },

    /// An end of a link of onbeat-link or of a named channel of onbeat-flow is created
    /// (`onbeat_link_init`). All ends of a link share the number `link`. `depth` is how many items
    /// can wait before one is replaced.
    LinkInit {
        end: u64,
        link: u64,
        depth: u64,
        sends: bool,
        name: Name,
    },

    // ---- Run time (ROS2-RT)
    /// A callback of rclcpp starts (`callback_start`). The time is exact.
    CallbackStart { callback: u64, intra_process: bool },
    /// A callback of rclcpp ends (`callback_end`). The time is exact.
    CallbackEnd { callback: u64 },
    /// The executor calls a timer (entry of `rcl_timer_call` or `rcl_timer_call_with_info`).
    TimerCall { timer: u64 },
    /// A message is taken from a subscription (`rmw_take`). If `taken` is false, there was no
    /// message.
    Take {
        rmw: u64,
        message: u64,
        source_ns: i64,
        taken: bool,
    },
    /// A message is published within the process (`rclcpp_intra_publish`).
    IntraPublish { publisher: u64, message: u64 },
    /// A message enters a ring buffer (`rclcpp_ring_buffer_enqueue`).
    RingBufferEnqueue {
        buffer: u64,
        index: u64,
        overwritten: bool,
    },
    /// A message leaves a ring buffer (`rclcpp_ring_buffer_dequeue`).
    RingBufferDequeue { buffer: u64, index: u64 },
    /// A ring buffer is emptied (`rclcpp_ring_buffer_clear`).
    RingBufferClear { buffer: u64 },
    /// The client library publishes a message (`rcl_publish`).
    RclPublish { publisher: u64, message: u64 },
    /// The middleware publishes a message (`rmw_publish`). If `source_ns` is missing (Humble), the
    /// source time stamp of the matching take lies between this event and the thread's next event.
    Publish {
        rmw: u64,
        message: u64,
        source_ns: Option<i64>,
    },
    /// A client sends a request. `sequence` counts the requests of each client.
    RequestSend { rmw: u64, sequence: i64 },
    /// A service takes a request. `gid` and `sequence` identify the client and its request.
    RequestTake {
        rmw: u64,
        gid: [u8; 16],
        sequence: i64,
        taken: bool,
    },
    /// A service sends a response. `source_ns` is known since the distribution Kilted.
    ResponseSend {
        rmw: u64,
        gid: [u8; 16],
        sequence: i64,
        source_ns: Option<i64>,
    },
    /// A client takes a response. If `taken` is false, the client library does not pass the
    /// response to a callback.
    ResponseTake {
        rmw: u64,
        sequence: i64,
        source_ns: i64,
        taken: bool,
    },
    /// A message synchroniser (`message_filters`) gets an input on this thread.
    SyncInput { filter: u64 },
    /// A synchroniser with the approximate-time policy gets an input on this thread. With this
    /// policy, the synchroniser publishes only when the next input comes.
    SyncApproximate { filter: u64 },
    /// The item `number` is sent at an end of a link (`onbeat_link_send`).
    LinkSend { end: u64, number: u64 },
    /// The item `number` is received at an end of a link (`onbeat_link_receive`).
    LinkReceive { end: u64, number: u64 },
    /// The executor looks for a callback that is ready (`rclcpp_executor_get_next_ready`).
    ExecutorNextReady,
    /// The executor waits for work (`rclcpp_executor_wait_for_work`).
    ExecutorWaitForWork { timeout_ns: i64 },
    /// The executor executes a timer or subscription (`rclcpp_executor_execute`). `handle` is its
    /// rcl handle.
    ExecutorExecute { handle: u64 },
    /// A function `rclcpp::Executor::execute_*` is entered.
    ExecuteStart { execute: ExecuteKind },
    /// A function `rclcpp::Executor::execute_*` returns.
    ExecuteEnd { execute: ExecuteKind },
    /// A wait set is initialised (entry of `rcl_wait_set_init`). rclpy builds one per round of its
    /// executor.
    WaitSetInit,
    /// The executor begins to wait (entry of `rcl_wait`).
    Wait,
    /// A guard condition is triggered (entry of `rcl_trigger_guard_condition`). rclpy's executor
    /// triggers its guard condition once between take and callback, and once after the callback.
    GuardTrigger { guard: u64 },

    // ---- Kernel
    /// This thread gets the CPU (`sched_switch`). `priority` is the kernel's priority (0-99
    /// real-time, 100-139 normal), and `policy` the SCHED_* number. `prev_tid` is [`UNTOLD`] if the
    /// recorder does not see other threads.
    SwitchIn {
        prev_tid: u32,
        priority: u8,
        policy: u8,
    },
    /// This thread leaves the CPU (`sched_switch`). `state` 0 means that the thread was preempted
    /// and is still ready to run.
    SwitchOut { next_tid: u32, state: u16 },
    /// This thread is made ready to run (`sched_waking`). `waker_tid` is the thread that wakes it
    /// if both threads belong to the same process, else 0.
    Wake { waker_tid: u32 },
    /// This thread gets the CPU after it slept and was then ready to run for `ready_ns`
    /// (`sched_switch`). The event replaces `Wake` if the kernel accounts for this time (Linux 5.14
    /// with CONFIG_SCHED_INFO).
    Woken { ready_ns: u64 },
    /// A thread is created (`sched_process_fork`). The event's pid and tid are the child's.
    Fork {
        parent_pid: u32,
        parent_tid: u32,
        comm: Name,
    },
    /// A process executes another program (`sched_process_exec`).
    Exec { comm: Name },
    /// A thread ends (`sched_process_exit`).
    Exit,
    /// The hypervisor of a virtual machine used this thread's CPU for `stolen_ns`. The time counts
    /// from when the thread got the CPU, or from its previous event of this kind.
    Stolen { stolen_ns: u64 },
    /// This thread has used the CPU for `used_ns`, as the kernel accounts CPU time. The kernel
    /// leaves out the time in which the host of a virtual machine had the CPU.
    ///
    /// If `since_switch` is true, the time counts from the thread's last `SwitchOut` or event of
    /// this kind. Otherwise it counts from the thread's last event of this kind. The first event of
    /// a thread may only mark the beginning; its time is then 0.
    ///
    /// With BPF, the event comes only where the switch events would give another time, for example
    /// because the kernel reported no switch to this thread.
    CpuTime { used_ns: u64, since_switch: bool },
    /// This thread gets the CPU while an observed thread waits for that CPU (`sched_switch`).
    /// Neither this thread nor `prev_tid`, which leaves the CPU, is observed. If `last` is true,
    /// further events of the same wait are left out.
    ///
    /// If `prev_tid` is [`UNTOLD`], the event has another meaning: an observed thread gets the CPU,
    /// and the recording does not show which threads had the CPU during its wait.
    Occupied { prev_tid: u32, last: bool },
    /// This thread waits for a CPU and moves from the queue of the event's CPU to the queue of
    /// another CPU (`sched_migrate_task`).
    Moved,
    /// A thread and its process have these names. There are two cases:
    ///
    /// - The thread is not observed, and had a CPU for which an observed thread waited. The event
    ///   repeats every ten seconds, and when a name changes.
    /// - The thread is observed, and its name has changed (`task_rename`).
    Bystander {
        comm: Name,
        process: Name,
        kernel: bool,
    },

    /// This thread goes to sleep because it waits for the mutex at address `lock` of its process.
    /// The mutex belongs to `owner_tid` (`sched_switch`). The recorder reads the owner from the
    /// mutex. glibc writes it there, or the kernel for a mutex with priority inheritance. The event
    /// comes just before the thread's `SwitchOut`.
    LockWait { lock: u64, owner_tid: u32 },
    /// This thread goes to sleep within a call of this kind (`sched_switch`). The event comes just
    /// before the thread's `SwitchOut`. Only threads that run callbacks or publish have this event.
    /// It is missing if the thread waits for work in `rcl_wait`, or if a `LockWait` says for which
    /// mutex the thread sleeps.
    Sleep { call: CallKind },
    /// The scheduler withheld the CPU from this thread for `throttled_ns`, because the thread or
    /// its control group had used up its CPU time (`sched_switch`). The event comes just before the
    /// `SwitchIn` that ends the wait. If `first` is true, the time counts from the beginning of the
    /// wait, otherwise it lies at the end of the wait.
    Throttled { throttled_ns: u64, first: bool },
    /// The kernel dropped `count` datagrams since the previous event of this kind for this socket,
    /// because the receive buffer of a UDP socket was full (`udp_fail_queue_rcv_skb`). `port` is the
    /// socket's own port. The event's pid is that of the process with the socket, and so is its tid.
    SocketDrop { port: u16, count: u64 },

    // ---- The recorder's own events
    /// The recorder begins to observe this process. `late` is true if the process ran before the
    /// recording.
    Process {
        command: Name,
        distribution: Name,
        rmw: Name,
        late: bool,
    },
    /// A thread has these properties. `cpus` is the affinity mask of the first 64 CPUs, or 0 if it
    /// is unknown. If `priority` is [`UNSCHEDULED`], the trace has no scheduler events of the
    /// thread so far, and does not show its policy and its priority. Its executions then have no
    /// execution time.
    Thread {
        comm: Name,
        policy: u8,
        priority: u8,
        cpus: u64,
    },
    /// The recorder read the offset CLOCK_REALTIME minus CLOCK_MONOTONIC. The event's pid and tid
    /// are 0.
    ClockOffset { realtime_minus_monotonic_ns: i64 },
    /// The ring buffer was full: `count` more events of kind `probe` were lost on the event's CPU
    /// since the previous event of this kind.
    Lost { probe: Name, count: u64 },
}

/// The holder of a message that waits for its slot after the publication. The `message` of
/// [`EventKind::Publish`] shows it: a multiple of 8, plus a number for the holder. Messages without a
/// holder have even addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The application's own process.
    Application,
    /// A shaper beside the application.
    Shaper,
}

impl Holder {
    /// Returns the holder that the `message` of a publication shows.
    pub fn of(message: u64) -> Option<Holder> {
        match message % 8 {
            1 => Some(Holder::Application),
            3 => Some(Holder::Shaper),
            _ => None,
        }
    }
}
