//! Publishers and subscriptions of serialised items.

use super::abi::{self, Bytes, Handle, MessageInfo, Options, TracePublish};
use super::types::TypeSupport;
use super::waiter::Waiter;
use super::{name, Node, Qos, RclError};
use onbeat_time::clock::{monotonic_ns, realtime_ns};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// The number by which the address of a held message differs in its tracepoint, if a shaper holds it.
/// It is that of `Holder::Shaper` in `onbeat-trace`.
const HELD_BY_SHAPER: usize = 3;

/// A serialised item. Moving it does not copy its bytes.
pub struct Item {
    /// The bytes as the middleware takes and sends them. Recorders know a held item by this
    /// address, so it stays the same when the item moves.
    bytes: Box<Bytes>,
    fini: unsafe extern "C" fn(*mut Bytes) -> c_int,
    /// The source time stamp of the item (CLOCK_REALTIME), in ns.
    pub source_ns: i64,
    /// The time at which the shaper had taken the item (CLOCK_MONOTONIC), in ns.
    pub arrival_ns: i64,
    /// The item's number at its publisher. `None` if the middleware does not report it.
    pub number: Option<Number>,
}

/// The number that a publisher gave an item. A publisher numbers its items without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// The publisher: a hash of its identifier.
    pub publisher: u64,
    /// The number that the publisher gave the item, from 1 on.
    pub sequence: u64,
}

// SAFETY: the item owns its bytes.
unsafe impl Send for Item {}

impl Item {
    /// Returns the number of serialised bytes, with the encapsulation header.
    pub fn len(&self) -> usize {
        self.bytes.length
    }

    /// Returns the serialised bytes, with the encapsulation header.
    pub fn bytes(&self) -> &[u8] {
        if self.is_empty() {
            return &[];
        }
        // SAFETY: the item owns the buffer, which has this many initialised bytes.
        unsafe { std::slice::from_raw_parts(self.bytes.buffer, self.bytes.length) }
    }

    /// Replaces the item's bytes. Returns false if they do not fit into its memory.
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.bytes.capacity {
            return false;
        }
        // SAFETY: the item owns the buffer, which has room for these bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.buffer, bytes.len()) };
        self.bytes.length = bytes.len();
        true
    }

    /// Reports whether the item has no bytes, as a new item does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl MessageInfo {
    /// Returns the number that the publisher gave the item. In `rest`, the publisher's identifier
    /// comes after rmw's reception sequence number and the pointer to the middleware's name. The
    /// identifier has at least 16 bytes in all releases.
    fn number(&self) -> Option<Number> {
        let [_, _, first, second, ..] = self.rest;
        let is_known = self.sequence != 0 && self.sequence != u64::MAX;
        is_known.then_some(Number {
            publisher: first.rotate_left(32) ^ second,
            sequence: self.sequence,
        })
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        // SAFETY: `Node::item` initialised the bytes.
        unsafe { (self.fini)(&mut *self.bytes) };
    }
}

/// Shows recorders which items wait until a publisher sends them.
pub struct Holding {
    rmw: *const c_void,
    trace: TracePublish,
}

// SAFETY: the handle is only an address for the tracepoint, which any thread may call.
unsafe impl Send for Holding {}

impl Holding {
    /// Reports that an item is held back from now on. Allocates nothing.
    ///
    /// The recorder sees a publication at an odd address. When the publisher sends the item, the
    /// recorder sees this address rounded down to a multiple of 8.
    pub fn begin(&self, item: &Item) {
        self.report(item, realtime_ns() as i64);
    }

    /// Reports that an item which is held back will not be sent. Allocates nothing.
    pub fn discard(&self, item: &Item) {
        self.report(item, 0);
    }

    fn report(&self, item: &Item, source_ns: i64) {
        let message: *const Bytes = &*item.bytes;
        let marked = message.cast::<u8>().wrapping_add(HELD_BY_SHAPER).cast();
        // SAFETY: the tracepoint passes its arguments on, and reads no memory.
        unsafe { (self.trace)(self.rmw, marked, source_ns) };
    }
}

/// A publisher that sends serialised items without knowing their type.
pub struct Publisher {
    node: Arc<Node>,
    handle: Box<Handle>,
    _support: TypeSupport,
}

// SAFETY: rcl_publish may be called from any thread.
unsafe impl Send for Publisher {}

impl Publisher {
    /// Publishes an item without changing its bytes. Allocates no memory itself. The middleware may
    /// allocate memory.
    ///
    /// # Errors
    ///
    /// Returns rcl's error code.
    pub fn publish(&self, item: &Item) -> Result<(), i32> {
        // SAFETY: handle and bytes are initialised.
        match unsafe { (self.node.rcl.f.publish)(&*self.handle, &*item.bytes, ptr::null_mut()) } {
            abi::OK => Ok(()),
            code => {
                // SAFETY: the call only deletes this thread's error message.
                unsafe { (self.node.rcl.f.reset_error)() };
                Err(code)
            }
        }
    }

    /// Publishes serialised bytes without copying them. Allocates no memory itself. The middleware
    /// may allocate memory.
    ///
    /// # Errors
    ///
    /// Returns rcl's error code.
    pub fn publish_bytes(&self, serialised: &[u8]) -> Result<(), i32> {
        let f = &self.node.rcl.f;
        let bytes = Bytes {
            // The call takes a pointer to const, so it only reads the bytes.
            buffer: serialised.as_ptr().cast_mut(),
            length: serialised.len(),
            capacity: serialised.len(),
            // SAFETY: the call has no arguments and returns a value.
            allocator: unsafe { (f.allocator)() },
        };
        // SAFETY: handle and bytes are valid during the call, which keeps neither.
        match unsafe { (f.publish)(&*self.handle, &bytes, ptr::null_mut()) } {
            abi::OK => Ok(()),
            code => {
                // SAFETY: the call only deletes this thread's error message.
                unsafe { (f.reset_error)() };
                Err(code)
            }
        }
    }

    /// Returns a way to show recorders which items wait for this publisher. Returns `None` before
    /// Jazzy, where items have no time stamps.
    pub fn holding(&self) -> Option<Holding> {
        let rcl = &self.node.rcl;
        // SAFETY: the handle is initialised. The call only reads it.
        let rmw = unsafe { (rcl.f.publisher_rmw)(&*self.handle) };
        let trace = rcl.trace_publish?;
        Some(Holding { rmw, trace })
    }

    /// Returns the number of subscriptions to which the publisher is connected, or 0 if rcl cannot
    /// report it.
    pub fn subscriptions(&self) -> usize {
        let mut count = 0;
        // SAFETY: all pointers are valid during the call.
        match unsafe { (self.node.rcl.f.subscriptions)(&*self.handle, &mut count) } {
            abi::OK => count,
            _ => 0,
        }
    }

    /// Waits until all reliable subscriptions have acknowledged all published items, for at most
    /// `at_most_ns`.
    pub fn settle(&self, at_most_ns: i64) {
        // SAFETY: the handle is initialised.
        unsafe {
            (self.node.rcl.f.wait_acked)(&*self.handle, at_most_ns);
            (self.node.rcl.f.reset_error)();
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let node = ptr::from_ref(&*self.node.node).cast_mut();
        // SAFETY: the handle was initialised with this node, which still exists.
        unsafe { (self.node.rcl.f.publisher_fini)(&mut *self.handle, node) };
    }
}

/// A subscription that takes serialised items without knowing their type, and can wait for them.
pub struct Subscription {
    // Fields are dropped in this order: the wait set before the subscription.
    waiter: Waiter,
    subscribed: Subscribed,
}

struct Subscribed {
    node: Arc<Node>,
    handle: Box<Handle>,
    _support: TypeSupport,
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        let node = ptr::from_ref(&*self.node.node).cast_mut();
        // SAFETY: the handle was initialised with this node, which still exists.
        unsafe { (self.node.rcl.f.subscription_fini)(&mut *self.handle, node) };
    }
}

// SAFETY: only one thread at a time uses the subscription.
unsafe impl Send for Subscription {}

impl Subscription {
    /// Waits for an item for at most `at_most_ns`. Returns false if no item came.
    pub fn wait(&mut self, at_most_ns: i64) -> Result<bool, RclError> {
        let handle: *const Handle = &*self.subscribed.handle;
        // SAFETY: the handle is initialised and does not move.
        unsafe {
            self.waiter.wait(at_most_ns, "waiting for data", |f, set| {
                (f.wait_set_add)(set, handle, ptr::null_mut())
            })
        }
    }

    /// Takes the next item with its source time stamp. Returns false if no item is waiting.
    pub fn take(&mut self, item: &mut Item) -> Result<bool, RclError> {
        let f = &self.subscribed.node.rcl.f;
        let mut info = MessageInfo {
            source_ns: 0,
            received_ns: 0,
            sequence: 0,
            rest: [0; 16],
        };
        // SAFETY: handle, bytes and info are valid during the call.
        let code = unsafe {
            (f.take)(
                &*self.subscribed.handle,
                &mut *item.bytes,
                &mut info,
                ptr::null_mut(),
            )
        };
        if code == abi::TAKE_FAILED {
            // SAFETY: the call only deletes this thread's error message.
            unsafe { (f.reset_error)() };
            return Ok(false);
        }
        self.subscribed
            .node
            .rcl
            .check(code, || "taking data".into())?;
        item.source_ns = info.source_ns;
        item.arrival_ns = monotonic_ns() as i64;
        item.number = info.number();
        Ok(true)
    }
}

impl Node {
    /// Creates a publisher of serialised items on a topic.
    pub fn publisher(
        self: &Arc<Self>,
        topic: &str,
        type_name: &str,
        qos: &Qos,
    ) -> Result<Publisher, RclError> {
        let support = self.rcl.type_support(type_name)?;
        let text = name(topic)?;
        let f = &self.rcl.f;
        let mut handle = Box::new(Handle::zero());
        // SAFETY: all pointers are valid during the calls; in all releases the options begin with
        // the QoS.
        unsafe {
            let mut options: Options = (f.publisher_options)();
            options.0.as_mut_ptr().cast::<Qos>().write(*qos);
            let code = (f.publisher_init)(
                &mut *handle,
                &*self.node,
                support.handle,
                text.as_ptr(),
                &options,
            );
            self.rcl
                .check(code, || format!("creating a publisher of {topic}"))?;
        }
        Ok(Publisher {
            node: self.clone(),
            handle,
            _support: support,
        })
    }

    /// Creates a subscription that takes serialised items from a topic.
    pub fn subscription(
        self: &Arc<Self>,
        topic: &str,
        type_name: &str,
        qos: &Qos,
    ) -> Result<Subscription, RclError> {
        let support = self.rcl.type_support(type_name)?;
        let text = name(topic)?;
        let f = &self.rcl.f;
        let mut handle = Box::new(Handle::zero());
        // SAFETY: all pointers are valid during the calls; in all releases the options begin with
        // the QoS.
        unsafe {
            let mut options: Options = (f.subscription_options)();
            options.0.as_mut_ptr().cast::<Qos>().write(*qos);
            let code = (f.subscription_init)(
                &mut *handle,
                &*self.node,
                support.handle,
                text.as_ptr(),
                &options,
            );
            self.rcl.check(code, || format!("subscribing to {topic}"))?;
        }
        let subscribed = Subscribed {
            node: self.clone(),
            handle,
            _support: support,
        };
        Ok(Subscription {
            waiter: Waiter::new(self, 1, 0)?,
            subscribed,
        })
    }

    /// Allocates memory for an item and writes to it, so that no page fault comes later. The
    /// middleware enlarges the memory if an item needs more.
    pub fn item(&self, bytes: usize) -> Result<Item, RclError> {
        let f = &self.rcl.f;
        // SAFETY: rcl initialises the array, which then owns its bytes.
        unsafe {
            let allocator = (f.allocator)();
            let mut array = Bytes {
                buffer: ptr::null_mut(),
                length: 0,
                capacity: 0,
                allocator,
            };
            let code = (f.bytes_init)(&mut array, bytes.max(1), &allocator);
            self.rcl
                .check(code, || format!("allocating {bytes} bytes of memory"))?;
            ptr::write_bytes(array.buffer, 0xff, array.capacity);
            Ok(Item {
                bytes: Box::new(array),
                fini: f.bytes_fini,
                source_ns: 0,
                arrival_ns: 0,
                number: None,
            })
        }
    }
}
