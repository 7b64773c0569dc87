//! A ROS 2 context with one node, and its view of the graph.

use super::abi::{self, EndpointArray, Handle, Options};
use super::{name, Qos, Rcl, RclError};
use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

/// A publisher of another process, as DDS announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// The name of the publisher's node. It is untrusted.
    pub node: String,
    /// The publisher's message type. It is untrusted.
    pub type_name: String,
    /// The publisher's QoS. DDS does not announce history and depth, so these are unknown.
    pub qos: Qos,
}

/// A ROS 2 node of this process with its context. It has no parameters and no services and does not
/// write to /rosout.
pub struct Node {
    pub(super) rcl: Arc<Rcl>,
    pub(super) context: Box<Handle>,
    pub(super) node: Box<Handle>,
}

// SAFETY: rcl's functions on a node and its entities may be called from any thread; functions that
// must not run concurrently take `&mut` here.
unsafe impl Send for Node {}
// SAFETY: rcl's functions on a node may be called concurrently; the others take `&mut` here.
unsafe impl Sync for Node {}

impl Node {
    /// Creates a node, and starts ROS 2 in this process. The middleware starts its threads in this
    /// call. These threads inherit the caller's scheduling policy and CPUs.
    pub fn new(rcl: Arc<Rcl>, node_name: &str) -> Result<Arc<Node>, RclError> {
        let f = &rcl.f;
        let (mut context, mut node) = (Box::new(Handle::zero()), Box::new(Handle::zero()));
        let text = name(node_name)?;
        // SAFETY: every pointer is valid during its call; handles are zero before they are
        // initialised, and do not move.
        unsafe {
            let mut options = Handle::zero();
            let code = (f.init_options_init)(&mut options, (f.allocator)());
            rcl.check(code, || "creating options".into())?;
            let code = (f.init)(0, ptr::null(), &options, &mut *context);
            let started = rcl.check(code, || "starting a context".into());
            (f.init_options_fini)(&mut options);
            started?;
            let mut options: Options = (f.node_options)();
            options.0[abi::NODE_OPTIONS_ROSOUT] = 0;
            let code = (f.node_init)(
                &mut *node,
                text.as_ptr(),
                c"".as_ptr(),
                &mut *context,
                &options,
            );
            if let Err(e) = rcl.check(code, || format!("creating the node {node_name}")) {
                (f.shutdown)(&mut *context);
                (f.context_fini)(&mut *context);
                return Err(e);
            }
        }
        Ok(Arc::new(Node { rcl, context, node }))
    }

    /// Returns how many publishers of a topic ROS 2 has discovered.
    pub fn publishers(&self, topic: &str) -> Result<usize, RclError> {
        let text = name(topic)?;
        let mut count = 0;
        // SAFETY: all pointers are valid during the call.
        let code = unsafe { (self.rcl.f.count_publishers)(&*self.node, text.as_ptr(), &mut count) };
        self.rcl
            .check(code, || format!("counting publishers of {topic}"))?;
        Ok(count)
    }

    /// Returns the discovered publishers of a topic, with their types and QoS.
    pub fn announced(&self, topic: &str) -> Result<Vec<Announced>, RclError> {
        let text = name(topic)?;
        let f = &self.rcl.f;
        let mut array = EndpointArray {
            size: 0,
            infos: ptr::null_mut(),
        };
        // SAFETY: all pointers are valid during the calls, and `layout` has the offsets of the
        // fields.
        unsafe {
            let mut allocator = (f.allocator)();
            let code = (f.publishers_info)(
                &*self.node,
                &mut allocator,
                text.as_ptr(),
                false,
                &mut array,
            );
            self.rcl
                .check(code, || format!("asking for publishers of {topic}"))?;
            let string = |at: *const u8| {
                let text = at.cast::<*const std::ffi::c_char>().read();
                if text.is_null() {
                    String::new()
                } else {
                    CStr::from_ptr(text).to_string_lossy().into_owned()
                }
            };
            let word = std::mem::size_of::<usize>();
            let found = (0..array.size)
                .map(|i| {
                    let info = array.infos.add(i * self.rcl.layout.size);
                    Announced {
                        node: string(info),
                        type_name: string(info.add(2 * word)),
                        qos: info.add(self.rcl.layout.qos).cast::<Qos>().read(),
                    }
                })
                .collect();
            (f.endpoints_fini)(&mut array, &mut allocator);
            Ok(found)
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let f = &self.rcl.f;
        // SAFETY: `new` initialised the handles; entities hold an `Arc` of the node, so none is
        // left.
        unsafe {
            (f.node_fini)(&mut *self.node);
            (f.shutdown)(&mut *self.context);
            (f.context_fini)(&mut *self.context);
        }
    }
}
