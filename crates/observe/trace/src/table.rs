//! The one table of event kinds, with the stable code, text name and field types of each.
//!
//! The block format, the text form, the Parquet columns and the test generators derive from the
//! table. A new kind of event is therefore one new line here.
use crate::event::{CallKind, EndpointKind, EventKind, ExecuteKind, Name};

/// A receiver of an event's fields. Its methods are called in the order in which the table of event
/// kinds lists the fields.
#[allow(missing_docs)] // the names say what they are
pub trait FieldSink {
    /// Receives the address of an object in the traced process, such as a node.
    fn handle(&mut self, field: &'static str, value: u64);
    /// Receives the address of a message. Files store it separately from handles, because it is
    /// valid only for a short time.
    fn message(&mut self, field: &'static str, value: u64);
    /// Receives a process or thread id in the recorder's PID namespace.
    fn tid(&mut self, field: &'static str, value: u32);
    fn small(&mut self, field: &'static str, value: u16);
    fn int(&mut self, field: &'static str, value: i64);
    fn uint(&mut self, field: &'static str, value: u64);
    /// Receives a set of 64 bits, such as an affinity mask.
    fn mask(&mut self, field: &'static str, value: u64);
    /// Receives a global identifier of the middleware (gid).
    fn gid(&mut self, field: &'static str, value: &[u8; 16]);
    /// Receives a source time stamp (CLOCK_REALTIME, ns), or `None` if it is unknown.
    fn stamp(&mut self, field: &'static str, value: Option<i64>);
    /// Receives a boolean, which is `yes` or `no` in the text form.
    fn flag(&mut self, field: &'static str, value: bool);
    /// Receives untrusted text from a traced process.
    fn name(&mut self, field: &'static str, value: &Name);
    /// Receives a choice: an index into `words`.
    fn choice(&mut self, field: &'static str, words: &'static [&'static str], value: u8);
}

/// A source of an event's fields. A reader requests the fields in the order in which the table of
/// event kinds lists them. Each method returns a field of the kind that the [`FieldSink`] method
/// with the same name receives.
#[allow(missing_docs)]
pub trait FieldSource {
    type Error;
    fn handle(&mut self, field: &'static str) -> Result<u64, Self::Error>;
    fn message(&mut self, field: &'static str) -> Result<u64, Self::Error>;
    fn tid(&mut self, field: &'static str) -> Result<u32, Self::Error>;
    /// Returns a number of at most `max`.
    fn small(&mut self, field: &'static str, max: u16) -> Result<u16, Self::Error>;
    fn int(&mut self, field: &'static str) -> Result<i64, Self::Error>;
    fn uint(&mut self, field: &'static str) -> Result<u64, Self::Error>;
    fn mask(&mut self, field: &'static str) -> Result<u64, Self::Error>;
    fn gid(&mut self, field: &'static str) -> Result<[u8; 16], Self::Error>;
    /// Returns a source time stamp, as in [`FieldSink::stamp`]. With `required`, `None` is not
    /// allowed.
    fn stamp(&mut self, field: &'static str, required: bool) -> Result<Option<i64>, Self::Error>;
    fn flag(&mut self, field: &'static str) -> Result<bool, Self::Error>;
    fn name(&mut self, field: &'static str) -> Result<Name, Self::Error>;
    /// Returns an index below `words.len()`, as in [`FieldSink::choice`].
    fn choice(
        &mut self,
        field: &'static str,
        words: &'static [&'static str],
    ) -> Result<u8, Self::Error>;
}

/// The type of a field, which decides how files and text represent it. Most variants have the name
/// of the [`FieldSink`] method that receives such a field.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    Handle,
    Message,
    Tid,
    Byte,
    /// An unsigned number of 16 bits.
    Word,
    Int,
    Uint,
    Mask,
    Gid,
    /// A source time stamp that is always known.
    Stamp,
    /// A source time stamp that may be unknown.
    OptStamp,
    Flag,
    Text,
    Endpoint,
    Execute,
    Call,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy)]
pub struct FieldInfo {
    pub name: &'static str,
    pub ty: FieldType,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug)]
pub struct KindInfo {
    /// The number of the kind in block files. A number is never used for another kind.
    pub code: u8,
    /// The name of the kind in the text form, for example `timer_init`.
    pub name: &'static str,
    /// Events of this kind are needed to understand later events. A flight recorder must therefore
    /// keep them.
    pub state: bool,
    pub fields: &'static [FieldInfo],
}

trait Codec {
    type Value;
    fn put<S: FieldSink>(sink: &mut S, field: &'static str, value: &Self::Value);
    fn get<S: FieldSource>(source: &mut S, field: &'static str) -> Result<Self::Value, S::Error>;
}

macro_rules! codec {
    ($marker:ident, $value:ty, |$sink:ident, $pf:ident, $v:ident| $put:expr,
     |$source:ident, $gf:ident| $get:expr) => {
        struct $marker;
        impl Codec for $marker {
            type Value = $value;
            #[inline]
            fn put<S: FieldSink>($sink: &mut S, $pf: &'static str, $v: &$value) {
                $put
            }
            #[inline]
            fn get<S: FieldSource>($source: &mut S, $gf: &'static str) -> Result<$value, S::Error> {
                $get
            }
        }
    };
}

codec!(Handle, u64, |s, f, v| s.handle(f, *v), |s, f| s.handle(f));
codec!(Message, u64, |s, f, v| s.message(f, *v), |s, f| s
    .message(f));
codec!(Tid, u32, |s, f, v| s.tid(f, *v), |s, f| s.tid(f));
codec!(
    Byte,
    u8,
    |s, f, v| s.small(f, u16::from(*v)),
    // A source never exceeds `max`. The mask only makes the conversion infallible.
    |s, f| Ok((s.small(f, 255)? & 255) as u8)
);
codec!(Word, u16, |s, f, v| s.small(f, *v), |s, f| s
    .small(f, u16::MAX));
codec!(Int, i64, |s, f, v| s.int(f, *v), |s, f| s.int(f));
codec!(Uint, u64, |s, f, v| s.uint(f, *v), |s, f| s.uint(f));
codec!(Mask, u64, |s, f, v| s.mask(f, *v), |s, f| s.mask(f));
codec!(Gid, [u8; 16], |s, f, v| s.gid(f, v), |s, f| s.gid(f));
codec!(Stamp, i64, |s, f, v| s.stamp(f, Some(*v)), |s, f| Ok(s
    .stamp(f, true)?
    .unwrap_or(0)));
codec!(OptStamp, Option<i64>, |s, f, v| s.stamp(f, *v), |s, f| s
    .stamp(f, false));
codec!(Flag, bool, |s, f, v| s.flag(f, *v), |s, f| s.flag(f));
codec!(Text, Name, |s, f, v| s.name(f, v), |s, f| s.name(f));

const ENDPOINT_WORDS: &[&str] = &["publisher", "subscription", "service", "client"];
codec!(
    Endpoint,
    EndpointKind,
    |s, f, v| s.choice(
        f,
        ENDPOINT_WORDS,
        match v {
            EndpointKind::Publisher => 0,
            EndpointKind::Subscription => 1,
            EndpointKind::Service => 2,
            EndpointKind::Client => 3,
        }
    ),
    |s, f| Ok(match s.choice(f, ENDPOINT_WORDS)? {
        0 => EndpointKind::Publisher,
        1 => EndpointKind::Subscription,
        2 => EndpointKind::Service,
        _ => EndpointKind::Client,
    })
);

const EXECUTE_WORDS: &[&str] = &["timer", "subscription", "service", "client"];
codec!(
    Execute,
    ExecuteKind,
    |s, f, v| s.choice(
        f,
        EXECUTE_WORDS,
        match v {
            ExecuteKind::Timer => 0,
            ExecuteKind::Subscription => 1,
            ExecuteKind::Service => 2,
            ExecuteKind::Client => 3,
        }
    ),
    |s, f| Ok(match s.choice(f, EXECUTE_WORDS)? {
        0 => ExecuteKind::Timer,
        1 => ExecuteKind::Subscription,
        2 => ExecuteKind::Service,
        _ => ExecuteKind::Client,
    })
);

codec!(
    Call,
    CallKind,
    |s, f, v| s.choice(f, &CallKind::WORDS, *v as u8),
    |s, f| {
        let number = s.choice(f, &CallKind::WORDS)?;
        Ok(CallKind::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(CallKind::Other))
    }
);

macro_rules! kinds {
    ($($code:literal $name:literal $class:ident $variant:ident {
        $($field:ident: $ty:ident),*
    })*) => {
        /// The descriptions of all kinds of events, in the order of their codes.
        pub static KINDS: &[KindInfo] = &[$(KindInfo {
            code: $code,
            name: $name,
            state: kinds!(@state $class),
            fields: &[$(FieldInfo { name: stringify!($field), ty: FieldType::$ty }),*],
        }),*];

        /// Returns the number that stands for the kind of an event in block files.
        #[inline]
        pub fn code(kind: &EventKind) -> u8 {
            match kind { $(EventKind::$variant { .. } => $code),* }
        }

        /// Returns whether events of this kind describe the system. Later events cannot be
        /// understood without such events.
        #[inline]
        pub fn is_state(kind: &EventKind) -> bool {
            match kind { $(EventKind::$variant { .. } => kinds!(@state $class)),* }
        }

        /// Passes the fields of an event to `sink`, in the order in which the table of event kinds
        /// lists them.
        #[inline]
        pub fn put<S: FieldSink>(kind: &EventKind, sink: &mut S) {
            match kind {
                $(EventKind::$variant { $($field),* } => {
                    $($ty::put(sink, stringify!($field), $field);)*
                })*
            }
        }

        /// Builds the event of kind `code` from the fields that `source` returns. Returns `None` if
        /// the code is unknown.
        #[inline]
        pub fn get<S: FieldSource>(
            code: u8,
            source: &mut S,
        ) -> Result<Option<EventKind>, S::Error> {
            Ok(match code {
                $($code => Some(EventKind::$variant {
                    $($field: $ty::get(source, stringify!($field))?),*
                }),)*
                _ => None,
            })
        }
    };
    (@state state) => { true };
    (@state run) => { false };
}

kinds! {
    1 "node_init" state NodeInit { node: Handle, rmw: Handle, name: Text, namespace: Text }
    2 "publisher_init" state PublisherInit {
        publisher: Handle, node: Handle, rmw: Handle, topic: Text, depth: Uint
    }
    3 "subscription_init" state SubscriptionInit {
        subscription: Handle, node: Handle, rmw: Handle, topic: Text, depth: Uint
    }
    4 "service_init" state ServiceInit { service: Handle, node: Handle, rmw: Handle, name: Text }
    5 "client_init" state ClientInit { client: Handle, node: Handle, rmw: Handle, name: Text }
    6 "publisher_gid" state PublisherGid { rmw: Handle, gid: Gid }
    7 "subscription_gid" state SubscriptionGid { rmw: Handle, gid: Gid }
    8 "client_gid" state ClientGid { rmw: Handle, gid: Gid }
    9 "clock_init" state ClockInit { clock: Handle }
    10 "timer_init" state TimerInit { timer: Handle, period_ns: Int }
    11 "timer_clock" state TimerClock { timer: Handle, clock: Handle }
    12 "timer_node" state TimerNode { timer: Handle, node: Handle }
    13 "timer_callback" state TimerCallback { timer: Handle, callback: Handle }
    14 "subscription_object" state SubscriptionObject { subscription: Handle, object: Handle }
    15 "subscription_callback" state SubscriptionCallback { object: Handle, callback: Handle }
    16 "service_callback" state ServiceCallback { service: Handle, callback: Handle }
    17 "callback_symbol" state CallbackSymbol { callback: Handle, symbol: Text }
    18 "intra_buffer_subscription" state IntraBufferSubscription { ipb: Handle, object: Handle }
    19 "ring_buffer_intra_buffer" state RingBufferIntraBuffer { buffer: Handle, ipb: Handle }
    20 "ring_buffer_init" state RingBufferInit { buffer: Handle, capacity: Uint }
    21 "lifecycle_init" state LifecycleInit { node: Handle, machine: Handle }
    22 "lifecycle_transition" state LifecycleTransition { machine: Handle, from: Text, to: Text }
    23 "endpoint_found" state EndpointFound {
        endpoint: Endpoint, rcl: Handle, rmw: Handle, name: Text
    }
    24 "node_found" state NodeFound { node: Handle, name: Text }
    25 "timer_found" state TimerFound { timer: Handle }
    26 "handle_fini" state HandleFini { handle: Handle }
    27 "timer_reset" state TimerReset { timer: Handle }
    28 "timer_cancel" state TimerCancel { timer: Handle }
    29 "endpoint_node" state EndpointNode { endpoint: Endpoint, rcl: Handle, node: Handle }
    30 "timer_period" state TimerPeriod { timer: Handle, period_ns: Int }
    31 "clock_kind" state ClockKind { clock: Handle, time: Byte }
    32 "clock_override" state ClockOverride { clock: Handle, active: Flag }
    33 "link_init" state LinkInit { end: Handle, link: Mask, depth: Uint, sends: Flag, name: Text }
    34 "endpoint_qos" state EndpointQos {
        endpoint: Endpoint, rcl: Handle, history: Byte, reliability: Byte, durability: Byte,
        liveliness: Byte, depth: Uint, deadline_ns: Uint, lifespan_ns: Uint, lease_ns: Uint
    }

    40 "callback_start" run CallbackStart { callback: Handle, intra_process: Flag }
    41 "callback_end" run CallbackEnd { callback: Handle }
    42 "timer_call" run TimerCall { timer: Handle }
    43 "take" run Take { rmw: Handle, message: Message, source_ns: Stamp, taken: Flag }
    44 "intra_publish" run IntraPublish { publisher: Handle, message: Message }
    45 "ring_buffer_enqueue" run RingBufferEnqueue {
        buffer: Handle, index: Uint, overwritten: Flag
    }
    46 "ring_buffer_dequeue" run RingBufferDequeue { buffer: Handle, index: Uint }
    47 "ring_buffer_clear" run RingBufferClear { buffer: Handle }
    48 "rcl_publish" run RclPublish { publisher: Handle, message: Message }
    49 "publish" run Publish { rmw: Handle, message: Message, source_ns: OptStamp }
    50 "request_send" run RequestSend { rmw: Handle, sequence: Int }
    51 "request_take" run RequestTake { rmw: Handle, gid: Gid, sequence: Int, taken: Flag }
    52 "response_send" run ResponseSend {
        rmw: Handle, gid: Gid, sequence: Int, source_ns: OptStamp
    }
    53 "response_take" run ResponseTake { rmw: Handle, sequence: Int, source_ns: Stamp, taken: Flag }
    54 "sync_input" run SyncInput { filter: Handle }
    55 "executor_next_ready" run ExecutorNextReady {}
    56 "executor_wait_for_work" run ExecutorWaitForWork { timeout_ns: Int }
    57 "executor_execute" run ExecutorExecute { handle: Handle }
    58 "execute_start" run ExecuteStart { execute: Execute }
    59 "execute_end" run ExecuteEnd { execute: Execute }
    60 "wait_set_init" run WaitSetInit {}
    61 "wait" run Wait {}
    62 "guard_trigger" run GuardTrigger { guard: Handle }
    63 "link_send" run LinkSend { end: Handle, number: Uint }
    64 "link_receive" run LinkReceive { end: Handle, number: Uint }
    70 "sync_approximate" run SyncApproximate { filter: Handle }

    80 "switch_in" run SwitchIn { prev_tid: Tid, priority: Byte, policy: Byte }
    81 "switch_out" run SwitchOut { next_tid: Tid, state: Word }
    82 "wake" run Wake { waker_tid: Tid }
    83 "fork" state Fork { parent_pid: Tid, parent_tid: Tid, comm: Text }
    84 "exec" state Exec { comm: Text }
    85 "exit" state Exit {}
    86 "stolen" run Stolen { stolen_ns: Uint }
    87 "woken" run Woken { ready_ns: Uint }
    88 "occupied" run Occupied { prev_tid: Tid, last: Flag }
    89 "bystander" run Bystander { comm: Text, process: Text, kernel: Flag }
    90 "lock_wait" run LockWait { lock: Handle, owner_tid: Tid }
    91 "cpu_time" run CpuTime { used_ns: Uint, since_switch: Flag }
    92 "moved" run Moved {}
    93 "sleep" run Sleep { call: Call }
    94 "throttled" run Throttled { throttled_ns: Uint, first: Flag }
    95 "socket_drop" run SocketDrop { port: Word, count: Uint }

    100 "process" state Process { command: Text, distribution: Text, rmw: Text, late: Flag }
    101 "thread" state Thread { comm: Text, policy: Byte, priority: Byte, cpus: Mask }
    102 "clock_offset" state ClockOffset { realtime_minus_monotonic_ns: Int }
    103 "lost" run Lost { probe: Text, count: Uint }
}

/// Returns the description of the kind with this code, or `None` for an unknown code.
pub fn info(code: u8) -> Option<&'static KindInfo> {
    KINDS.iter().find(|k| k.code == code)
}

/// Returns the description of the kind with this name in the text form, or `None` for an unknown
/// name.
pub fn by_name(name: &str) -> Option<&'static KindInfo> {
    KINDS.iter().find(|k| k.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_codes_and_names_are_unique() {
        for (i, a) in KINDS.iter().enumerate() {
            for b in &KINDS[i + 1..] {
                assert_ne!(a.code, b.code, "{} and {}", a.name, b.name);
                assert_ne!(a.name, b.name);
            }
        }
    }

    #[test]
    fn the_format_document_lists_every_event_kind() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/trace-format.md");
        let text = std::fs::read_to_string(path).expect("docs/trace-format.md");
        for kind in KINDS {
            let fields: Vec<String> = kind
                .fields
                .iter()
                .map(|f| {
                    let ty = format!("{:?}", f.ty).to_lowercase();
                    let ty = ty
                        .strip_prefix("opt")
                        .map_or(ty.clone(), |t| format!("{t}?"));
                    format!("`{}` {ty}", f.name)
                })
                .collect();
            let star = if kind.state { "*" } else { "" };
            let fields = fields.join(", ");
            let row = format!("| {} | `{}`{star} | {fields} |", kind.code, kind.name);
            assert!(text.contains(&row), "missing: {row}");
        }
    }
}
