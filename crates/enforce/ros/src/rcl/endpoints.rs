//! Publishers and subscriptions of serialised items.

use super::abi::{self, Bytes, Handle, MessageInfo, Options, WaitSet};
use super::types::TypeSupport;
use super::{name, Node, Qos, RclError};
use onbeat_time::clock::monotonic_ns;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

/// A serialised item. Moving it moves no bytes of it.
pub struct Item {
    bytes: Bytes,
    fini: unsafe extern "C" fn(*mut Bytes) -> c_int,
    /// Source time stamp (CLOCK_REALTIME).
    pub source_ns: i64,
    /// When it had been taken (CLOCK_MONOTONIC).
    pub arrival_ns: i64,
}

// SAFETY: the bytes are the item's own.
unsafe impl Send for Item {}

impl Item {
    /// Length of the serialised item.
    pub fn len(&self) -> usize {
        self.bytes.length
    }

    /// Puts other bytes into it. False if it has no room for them.
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.bytes.capacity {
            return false;
        }
        // SAFETY: there is room for so many, which is the item's own.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.buffer, bytes.len()) };
        self.bytes.length = bytes.len();
        true
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        // SAFETY: initialised by `Node::item`.
        unsafe { (self.fini)(&mut self.bytes) };
    }
}

/// A publisher of serialised items.
pub struct Publisher {
    node: Arc<Node>,
    handle: Box<Handle>,
    _support: TypeSupport,
}

// SAFETY: rcl_publish may be called from any thread.
unsafe impl Send for Publisher {}

impl Publisher {
    /// Publishes an item as it is. Nothing is allocated here; the middleware may. `Err` is rcl's
    /// code.
    pub fn publish(&self, item: &Item) -> Result<(), i32> {
        // SAFETY: handle and bytes are initialised.
        match unsafe { (self.node.rcl.f.publish)(&*self.handle, &item.bytes, ptr::null_mut()) } {
            abi::OK => Ok(()),
            code => {
                // SAFETY: forgets the message of this thread.
                unsafe { (self.node.rcl.f.reset_error)() };
                Err(code)
            }
        }
    }

    /// Publishes serialised bytes where they are. Nothing is allocated here; the middleware may.
    /// `Err` is rcl's code.
    pub fn publish_bytes(&self, serialised: &[u8]) -> Result<(), i32> {
        let f = &self.node.rcl.f;
        let bytes = Bytes {
            // Only read: the call takes a pointer to const.
            buffer: serialised.as_ptr().cast_mut(),
            length: serialised.len(),
            capacity: serialised.len(),
            // SAFETY: returns a value.
            allocator: unsafe { (f.allocator)() },
        };
        // SAFETY: handle and bytes are valid for the call, which keeps neither.
        match unsafe { (f.publish)(&*self.handle, &bytes, ptr::null_mut()) } {
            abi::OK => Ok(()),
            code => {
                // SAFETY: forgets the message of this thread.
                unsafe { (f.reset_error)() };
                Err(code)
            }
        }
    }

    /// Number of subscriptions that match; 0 if that cannot be told.
    pub fn subscriptions(&self) -> usize {
        let mut count = 0;
        // SAFETY: all pointers are valid for the call.
        match unsafe { (self.node.rcl.f.subscriptions)(&*self.handle, &mut count) } {
            abi::OK => count,
            _ => 0,
        }
    }

    /// Waits until reliable readers have everything, but no longer than that.
    pub fn settle(&self, at_most_ns: i64) {
        // SAFETY: an initialised handle.
        unsafe {
            (self.node.rcl.f.wait_acked)(&*self.handle, at_most_ns);
            (self.node.rcl.f.reset_error)();
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let node = ptr::from_ref(&*self.node.node).cast_mut();
        // SAFETY: initialised with this node, which is still there.
        unsafe { (self.node.rcl.f.publisher_fini)(&mut *self.handle, node) };
    }
}

/// A subscription of serialised items, with what is needed to wait for them.
pub struct Subscription {
    node: Arc<Node>,
    handle: Box<Handle>,
    wait_set: Box<WaitSet>,
    _support: TypeSupport,
}

// SAFETY: used by one thread at a time.
unsafe impl Send for Subscription {}

impl Subscription {
    /// Waits for an item, but no longer than that.
    pub fn wait(&mut self, at_most_ns: i64) -> Result<bool, RclError> {
        let f = &self.node.rcl.f;
        // SAFETY: wait set and handle are initialised, and stay where they are.
        let code = unsafe {
            let mut code = (f.wait_set_clear)(&mut *self.wait_set);
            if code == abi::OK {
                code = (f.wait_set_add)(&mut *self.wait_set, &*self.handle, ptr::null_mut());
            }
            if code == abi::OK {
                code = (f.wait)(&mut *self.wait_set, at_most_ns);
            }
            code
        };
        if code == abi::TIMEOUT {
            // SAFETY: forgets the message of this thread.
            unsafe { (f.reset_error)() };
            return Ok(false);
        }
        self.node.rcl.check(code, || "waiting for data".into())?;
        Ok(true)
    }

    /// Takes the next item, if there is one, with its source time stamp.
    pub fn take(&mut self, item: &mut Item) -> Result<bool, RclError> {
        let f = &self.node.rcl.f;
        let mut info = MessageInfo {
            source_ns: 0,
            received_ns: 0,
            rest: [0; 16],
        };
        // SAFETY: handle, bytes and info are valid for the call.
        let code = unsafe { (f.take)(&*self.handle, &mut item.bytes, &mut info, ptr::null_mut()) };
        if code == abi::TAKE_FAILED {
            // SAFETY: forgets the message of this thread.
            unsafe { (f.reset_error)() };
            return Ok(false);
        }
        self.node.rcl.check(code, || "taking data".into())?;
        item.source_ns = info.source_ns;
        item.arrival_ns = monotonic_ns() as i64;
        Ok(true)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let node = ptr::from_ref(&*self.node.node).cast_mut();
        // SAFETY: initialised with this node, which is still there.
        unsafe {
            (self.node.rcl.f.wait_set_fini)(&mut *self.wait_set);
            (self.node.rcl.f.subscription_fini)(&mut *self.handle, node);
        }
    }
}

impl Node {
    /// Publishes a topic.
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
        // SAFETY: all pointers are valid for the calls; options begin with the QoS in all releases.
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
            self.rcl.check(code, || format!("publishing {topic}"))?;
        }
        Ok(Publisher {
            node: self.clone(),
            handle,
            _support: support,
        })
    }

    /// Subscribes to a topic.
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
        // SAFETY: zero bits are what `rcl_get_zero_initialized_wait_set` returns.
        let mut wait_set: Box<WaitSet> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: all pointers are valid for the calls; options begin with the QoS in all releases.
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
            let context = ptr::from_ref(&*self.context).cast_mut();
            let code =
                (f.wait_set_init)(&mut *wait_set, 1, 0, 0, 0, 0, 0, context, (f.allocator)());
            if let Err(e) = self.rcl.check(code, || "making a wait set".into()) {
                (f.subscription_fini)(&mut *handle, ptr::from_ref(&*self.node).cast_mut());
                return Err(e);
            }
        }
        Ok(Subscription {
            node: self.clone(),
            handle,
            wait_set,
            _support: support,
        })
    }

    /// Memory for an item, touched, so that it is there. The middleware makes it larger when it has
    /// to.
    pub fn item(&self, bytes: usize) -> Result<Item, RclError> {
        let f = &self.rcl.f;
        // SAFETY: as rcl initialises an array; then the bytes are its own.
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
                .check(code, || format!("getting {bytes} bytes of memory"))?;
            ptr::write_bytes(array.buffer, 0xff, array.capacity);
            Ok(Item {
                bytes: array,
                fini: f.bytes_fini,
                source_ns: 0,
                arrival_ns: 0,
            })
        }
    }
}
