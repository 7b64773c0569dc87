//! The used part of rcl's binary interface: structures as in the headers of Humble to Kilted, and
//! functions by name.
//!
//! Structures that grow from release to release (options) are never built here. rcl writes its
//! defaults into more memory than any release needs. Only the beginning, which is the same in all
//! releases, is changed.

use std::ffi::{c_char, c_int, c_void};

pub const OK: c_int = 0;
pub const TIMEOUT: c_int = 2;
/// The code by which rcl reports that no item is waiting (`RCL_RET_SUBSCRIPTION_TAKE_FAILED`).
pub const TAKE_FAILED: c_int = 401;
/// The code by which rcl reports that no response is waiting (`RCL_RET_CLIENT_TAKE_FAILED`).
pub const CLIENT_TAKE_FAILED: c_int = 501;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Allocator(pub [*mut c_void; 5]);

/// A handle that rcl fills, for example `rcl_node_t`, `rcl_context_t` or `rcl_publisher_t`. Its
/// memory must be zero before rcl fills it. The largest handle is that of a context, with three
/// words.
#[repr(C)]
pub struct Handle(pub [*mut c_void; 4]);

impl Handle {
    pub const fn zero() -> Handle {
        Handle([std::ptr::null_mut(); 4])
    }
}

/// Memory for options of rcl. The largest options, those of a node, have about 200 bytes in every
/// release.
#[repr(C, align(16))]
pub struct Options(pub [u8; 1024]);

/// The offset of `enable_rosout` in `rcl_node_options_t`: after the allocator,
/// `use_global_arguments` and the pointer to the arguments.
pub const NODE_OPTIONS_ROSOUT: usize = 56;

#[repr(C)]
pub struct WaitSet {
    pub subscriptions: *mut *const Handle,
    pub subscriptions_len: usize,
    /// The fields of rcl's wait set after the subscriptions: guard conditions, timers, clients,
    /// services and events (pointer and length each), and rcl's own data.
    pub rest: [*mut c_void; 11],
    pub spare: [*mut c_void; 4],
}

/// A duration of the middleware. Corresponds to `rmw_time_t`.
#[allow(missing_docs)] // the names say what they are
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    pub sec: u64,
    /// The part of the duration below one second, in ns.
    pub nsec: u64,
}

/// The QoS of a publisher or subscription. Corresponds to `rmw_qos_profile_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Qos {
    /// The history policy. 1: keep last; 2: keep all.
    pub history: c_int,
    /// The number of items kept if the history policy is 1 (keep last).
    pub depth: usize,
    /// The reliability. 1: reliable; 2: best effort.
    pub reliability: c_int,
    /// The durability. 1: transient local; 2: volatile.
    pub durability: c_int,
    /// The longest time between two publications that the publisher promises.
    pub deadline: Time,
    /// The age at which unread items are discarded.
    pub lifespan: Time,
    /// The rule that decides who reports that a publisher is alive. 1: automatic; 3: by topic.
    pub liveliness: c_int,
    /// The time without a sign of life after which a publisher counts as dead.
    pub lease: Time,
    /// Whether topics have no ROS prefix in DDS.
    pub avoid_ros_namespace_conventions: bool,
}

#[repr(C)]
pub struct Bytes {
    pub buffer: *mut u8,
    pub length: usize,
    pub capacity: usize,
    pub allocator: Allocator,
}

/// The beginning of `rmw_message_info_t`, followed by memory for its other fields.
#[repr(C)]
pub struct MessageInfo {
    /// The time at which the item was published (CLOCK_REALTIME), in ns.
    pub source_ns: i64,
    pub received_ns: i64,
    /// The publisher's number of the item. 0 or the largest number if the middleware does not
    /// report it.
    pub sequence: u64,
    pub rest: [u64; 16],
}

/// The identity of a request. Corresponds to `rmw_request_id_t`, with memory for longer
/// identifiers.
#[repr(C)]
pub struct RequestId {
    pub writer: [u8; 16],
    pub sequence: i64,
    pub spare: [u64; 4],
}

#[repr(C)]
pub struct Sequence {
    pub data: *const c_void,
    pub size: usize,
    pub capacity: usize,
}

/// A service event in C: `ServiceEventInfo`, then the sequences with the request and the response.
/// The layout is the same for all services; only the messages in the sequences differ.
#[repr(C)]
pub struct ServiceEvent {
    pub kind: u8,
    pub sec: i32,
    pub nanosec: u32,
    pub client: [u8; 16],
    pub sequence: i64,
    pub request: Sequence,
    pub response: Sequence,
}

#[repr(C)]
pub struct EndpointArray {
    pub size: usize,
    /// The discovered endpoints, one after the other in memory. [`EndpointLayout`] has the size of
    /// one endpoint.
    pub infos: *mut u8,
}

/// The layout of `rmw_topic_endpoint_info_t`. Name, namespace and type always come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointLayout {
    pub qos: usize,
    pub size: usize,
}

impl EndpointLayout {
    /// Returns the layout of a ROS 2 release. With `type_hash`, a type hash (33 bytes) follows the
    /// names, as in all releases since Iron. `gid_bytes` is the size of the gid: 24 before Jazzy.
    pub fn of(type_hash: bool, gid_bytes: usize) -> EndpointLayout {
        let names = 3 * std::mem::size_of::<*const c_char>();
        let kind = (names + if type_hash { 33 } else { 0 }).next_multiple_of(4);
        let qos = (kind + 4 + gid_bytes).next_multiple_of(8);
        EndpointLayout {
            qos,
            size: qos + std::mem::size_of::<Qos>(),
        }
    }
}

/// The tracepoint of a publication since Jazzy: the publisher's handle at the middleware, the
/// message, and its source time stamp in ns.
pub type TracePublish = unsafe extern "C" fn(*const c_void, *const c_void, i64);

#[repr(C)]
pub struct ErrorString(pub [c_char; 1024]);

macro_rules! functions {
    ($($field:ident = $symbol:literal : fn($($arg:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        #[allow(missing_docs)]
        pub struct Functions {
            $(pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            /// Looks up all functions that the shaper uses. If one is missing, returns its name as
            /// the error.
            ///
            /// # Safety
            ///
            /// The library must be librcl of a release that these declarations support, and must
            /// stay loaded.
            pub unsafe fn load(
                library: &libloading::os::unix::Library,
            ) -> Result<Functions, &'static str> {
                Ok(Functions {
                    // SAFETY: the caller guarantees that the library's functions have these types.
                    $($field: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .map_err(|_| $symbol)?,)*
                })
            }
        }
    };
}

functions! {
    allocator = "rcutils_get_default_allocator": fn() -> Allocator;
    error_string = "rcutils_get_error_string": fn() -> ErrorString;
    reset_error = "rcutils_reset_error": fn();
    init_options_init = "rcl_init_options_init": fn(*mut Handle, Allocator) -> c_int;
    init_options_fini = "rcl_init_options_fini": fn(*mut Handle) -> c_int;
    init = "rcl_init": fn(c_int, *const *const c_char, *const Handle, *mut Handle) -> c_int;
    shutdown = "rcl_shutdown": fn(*mut Handle) -> c_int;
    context_fini = "rcl_context_fini": fn(*mut Handle) -> c_int;
    node_options = "rcl_node_get_default_options": fn() -> Options;
    node_init = "rcl_node_init":
        fn(*mut Handle, *const c_char, *const c_char, *mut Handle, *const Options) -> c_int;
    node_fini = "rcl_node_fini": fn(*mut Handle) -> c_int;
    publisher_options = "rcl_publisher_get_default_options": fn() -> Options;
    publisher_init = "rcl_publisher_init":
        fn(*mut Handle, *const Handle, *const c_void, *const c_char, *const Options) -> c_int;
    publisher_fini = "rcl_publisher_fini": fn(*mut Handle, *mut Handle) -> c_int;
    publish = "rcl_publish_serialized_message":
        fn(*const Handle, *const Bytes, *mut c_void) -> c_int;
    publisher_rmw = "rcl_publisher_get_rmw_handle": fn(*const Handle) -> *const c_void;
    subscriptions = "rcl_publisher_get_subscription_count":
        fn(*const Handle, *mut usize) -> c_int;
    wait_acked = "rcl_publisher_wait_for_all_acked": fn(*const Handle, i64) -> c_int;
    subscription_options = "rcl_subscription_get_default_options": fn() -> Options;
    subscription_init = "rcl_subscription_init":
        fn(*mut Handle, *const Handle, *const c_void, *const c_char, *const Options) -> c_int;
    subscription_fini = "rcl_subscription_fini": fn(*mut Handle, *mut Handle) -> c_int;
    take = "rcl_take_serialized_message":
        fn(*const Handle, *mut Bytes, *mut MessageInfo, *mut c_void) -> c_int;
    wait_set_init = "rcl_wait_set_init":
        fn(*mut WaitSet, usize, usize, usize, usize, usize, usize, *mut Handle, Allocator) -> c_int;
    wait_set_fini = "rcl_wait_set_fini": fn(*mut WaitSet) -> c_int;
    wait_set_clear = "rcl_wait_set_clear": fn(*mut WaitSet) -> c_int;
    wait_set_add = "rcl_wait_set_add_subscription":
        fn(*mut WaitSet, *const Handle, *mut usize) -> c_int;
    wait_set_add_client = "rcl_wait_set_add_client":
        fn(*mut WaitSet, *const Handle, *mut usize) -> c_int;
    client_options = "rcl_client_get_default_options": fn() -> Options;
    client_init = "rcl_client_init":
        fn(*mut Handle, *const Handle, *const c_void, *const c_char, *const Options) -> c_int;
    client_fini = "rcl_client_fini": fn(*mut Handle, *mut Handle) -> c_int;
    send_request = "rcl_send_request": fn(*const Handle, *const c_void, *mut i64) -> c_int;
    take_response = "rcl_take_response":
        fn(*const Handle, *mut RequestId, *mut c_void) -> c_int;
    server_is_available = "rcl_service_server_is_available":
        fn(*const Handle, *const Handle, *mut bool) -> c_int;
    deserialize = "rmw_deserialize": fn(*const Bytes, *const c_void, *mut c_void) -> c_int;
    wait = "rcl_wait": fn(*mut WaitSet, i64) -> c_int;
    count_publishers = "rcl_count_publishers":
        fn(*const Handle, *const c_char, *mut usize) -> c_int;
    publishers_info = "rcl_get_publishers_info_by_topic":
        fn(*const Handle, *mut Allocator, *const c_char, bool, *mut EndpointArray) -> c_int;
    endpoints_fini = "rmw_topic_endpoint_info_array_fini":
        fn(*mut EndpointArray, *mut Allocator) -> c_int;
    bytes_init = "rcutils_uint8_array_init": fn(*mut Bytes, usize, *const Allocator) -> c_int;
    bytes_fini = "rcutils_uint8_array_fini": fn(*mut Bytes) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_layouts_have_the_offsets_of_each_release() {
        assert_eq!(std::mem::size_of::<Qos>(), 88);
        assert_eq!(std::mem::offset_of!(ServiceEvent, request), 40);
        let of = EndpointLayout::of;
        assert_eq!(of(false, 24), EndpointLayout { qos: 56, size: 144 });
        assert_eq!(of(true, 24), EndpointLayout { qos: 88, size: 176 });
        assert_eq!(of(true, 16), EndpointLayout { qos: 80, size: 168 });
    }
}
