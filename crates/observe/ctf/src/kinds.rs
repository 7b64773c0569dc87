//! The kinds of events that onbeat reads, by their names.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// An event of ROS 2. `caret` is true if the tracing tool CARET made the event, under a name
    /// that begins with `ros2_caret:`. If a session starts late, CARET repeats the events of
    /// initialisation under such names.
    Ros {
        call: Call,
        caret: bool,
    },
    Scheduler(Scheduler),
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheduler {
    Switch,
    Waking,
    Wakeup,
    Fork,
    Exit,
}

macro_rules! calls {
    ($($call:ident = $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Call { $($call,)* }

        impl Call {
            fn of(name: &str) -> Option<Call> {
                match name {
                    $($name => Some(Call::$call),)*
                    _ => None,
                }
            }
        }
    };
}

calls! {
    RclInit = "rcl_init",
    NodeInit = "rcl_node_init",
    PublisherInit = "rcl_publisher_init",
    PublisherGid = "rmw_publisher_init",
    SubscriptionInit = "rcl_subscription_init",
    SubscriptionGid = "rmw_subscription_init",
    SubscriptionObject = "rclcpp_subscription_init",
    SubscriptionCallback = "rclcpp_subscription_callback_added",
    ServiceInit = "rcl_service_init",
    ServiceCallback = "rclcpp_service_callback_added",
    ClientInit = "rcl_client_init",
    ClientGid = "rmw_client_init",
    TimerInit = "rcl_timer_init",
    TimerCallback = "rclcpp_timer_callback_added",
    TimerNode = "rclcpp_timer_link_node",
    CallbackRegister = "rclcpp_callback_register",
    CallbackStart = "callback_start",
    CallbackEnd = "callback_end",
    LifecycleInit = "rcl_lifecycle_state_machine_init",
    LifecycleTransition = "rcl_lifecycle_transition",
    IntraPublish = "rclcpp_intra_publish",
    RclPublish = "rcl_publish",
    RmwPublish = "rmw_publish",
    RmwTake = "rmw_take",
    SendRequest = "rmw_send_request",
    TakeRequest = "rmw_take_request",
    SendResponse = "rmw_send_response",
    TakeResponse = "rmw_take_response",
    NextReady = "rclcpp_executor_get_next_ready",
    WaitForWork = "rclcpp_executor_wait_for_work",
    Execute = "rclcpp_executor_execute",
    IpbToSubscription = "rclcpp_ipb_to_subscription",
    BufferToIpb = "rclcpp_buffer_to_ipb",
    RingBufferInit = "rclcpp_construct_ring_buffer",
    RingBufferEnqueue = "rclcpp_ring_buffer_enqueue",
    RingBufferDequeue = "rclcpp_ring_buffer_dequeue",
    RingBufferClear = "rclcpp_ring_buffer_clear",
}

/// The parts of an event that a pass over the session looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// The process, the thread and the other contexts.
    Contexts,
    ContextsAndFields,
}

impl Call {
    /// Returns a number with one bit, which stands for this call in a set of calls.
    pub(crate) fn bit(self) -> u64 {
        1 << self as u32
    }

    pub(crate) fn is_of_rclcpp(self) -> bool {
        use Call::{CallbackEnd, CallbackStart, Execute, NextReady, WaitForWork};
        use Call::{SubscriptionCallback, SubscriptionObject, TimerCallback, TimerNode};
        matches!(
            self,
            CallbackStart
                | CallbackEnd
                | NextReady
                | WaitForWork
                | Execute
                | SubscriptionObject
                | SubscriptionCallback
                | TimerCallback
                | TimerNode
        )
    }

    pub(crate) fn is_of_request(self) -> bool {
        use Call::{SendRequest, SendResponse, TakeRequest, TakeResponse};
        matches!(
            self,
            SendRequest | TakeRequest | SendResponse | TakeResponse
        )
    }

    /// Returns whether this call publishes, sends or takes an item: a message, a request or a
    /// response.
    pub(crate) fn moves_an_item(self) -> bool {
        use Call::{IntraPublish, RclPublish, RmwPublish, RmwTake};
        self.is_of_request() || matches!(self, IntraPublish | RclPublish | RmwPublish | RmwTake)
    }
}

impl Kind {
    pub(crate) fn of(name: &str) -> Kind {
        let scheduler = match name {
            "sched_switch" => Some(Scheduler::Switch),
            "sched_waking" => Some(Scheduler::Waking),
            "sched_wakeup" | "sched_wakeup_new" => Some(Scheduler::Wakeup),
            "sched_process_fork" => Some(Scheduler::Fork),
            "sched_process_exit" => Some(Scheduler::Exit),
            _ => None,
        };
        if let Some(event) = scheduler {
            return Kind::Scheduler(event);
        }
        let caret = name.strip_prefix("ros2_caret:");
        let call = caret.or(name.strip_prefix("ros2:")).and_then(Call::of);
        call.map_or(Kind::Other, |call| Kind::Ros {
            call,
            caret: caret.is_some(),
        })
    }
}
