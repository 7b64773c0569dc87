//! rcl, loaded at run time, behind safe types: node, publisher, subscription, serialised items.

mod abi;
mod stub;

use abi::{Bytes, EndpointArray, EndpointLayout, Functions, Handle, MessageInfo, Options, WaitSet};
pub use abi::{Qos, Time};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use std::ffi::{c_int, c_void, CStr, CString};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use thiserror::Error;

/// `keep last`.
pub const KEEP_LAST: i32 = 1;
/// `reliable`.
pub const RELIABLE: i32 = 1;
/// `best effort`.
pub const BEST_EFFORT: i32 = 2;
/// `transient local`.
pub const TRANSIENT_LOCAL: i32 = 1;
/// `volatile`.
pub const VOLATILE: i32 = 2;

/// Symbols of Python that are made up before giving up.
const MOST_MISSING: usize = 64;

/// Why ROS 2 could not be used.
#[derive(Debug, Error)]
pub enum RclError {
    /// The library or one that it needs.
    #[error("cannot load {}: {reason}: source the application's ROS 2 setup, so that LD_LIBRARY_PATH names its folders", path.display())]
    Load {
        /// librcl.
        path: PathBuf,
        /// What the linker said.
        reason: String,
    },
    /// A function is missing.
    #[error("{} has no function {symbol}: onbeat knows ROS 2 Humble, Jazzy and Kilted", path.display())]
    Function {
        /// librcl.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// A call failed.
    #[error("ROS 2 failed at {what} (code {code}): {reason}")]
    Call {
        /// What was tried, on what.
        what: String,
        /// rcl's code.
        code: i32,
        /// rcl's words.
        reason: String,
    },
    /// A type's name is none.
    #[error("'{0}' is no name of a message type: package/msg/Name is expected")]
    TypeName(String),
    /// A type's library is missing.
    #[error(
        "no type support for {name}: {reason}: add the folder with {library} to LD_LIBRARY_PATH"
    )]
    TypeSupport {
        /// The type.
        name: String,
        /// Its library.
        library: String,
        /// What the linker said.
        reason: String,
    },
    /// A name with a zero byte.
    #[error("'{0}' is no name of a topic or node: it has a zero byte")]
    Name(String),
}

/// A publisher that was found in the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Name of its node, untrusted.
    pub node: String,
    /// Its message type, untrusted.
    pub type_name: String,
    /// Its QoS; history and depth are not announced.
    pub qos: Qos,
}

/// The loaded library.
pub struct Rcl {
    f: Functions,
    layout: EndpointLayout,
    folders: Vec<PathBuf>,
    // Never unloaded: the middleware's threads and statics may outlive every handle.
    _library: ManuallyDrop<Library>,
    _symbols: Vec<OwnedFd>,
}

impl Rcl {
    /// Loads librcl from a path; type support is looked for in `folders` too.
    pub fn load(path: &Path, folders: &[PathBuf]) -> Result<Arc<Rcl>, RclError> {
        let failed = |reason: String| RclError::Load {
            path: path.into(),
            reason,
        };
        let mut symbols = Vec::new();
        let library = loop {
            // SAFETY: initialisers of ROS 2's libraries run, as in every ROS 2 process.
            match unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) } {
                Ok(library) => break library,
                Err(error) => {
                    let reason = error.to_string();
                    let python = missing_symbol(&reason)
                        .filter(|s| s.trim_start_matches('_').starts_with("Py"));
                    let Some(name) = python.filter(|_| symbols.len() < MOST_MISSING) else {
                        return Err(failed(reason));
                    };
                    let fd = stub::library(&[name]).map_err(|e| failed(e.to_string()))?;
                    // SAFETY: the library has no code.
                    let made =
                        unsafe { Library::open(Some(stub::path(&fd)), RTLD_LAZY | RTLD_GLOBAL) };
                    // Never unloaded: librcl refers to it.
                    std::mem::forget(made.map_err(|e| failed(e.to_string()))?);
                    symbols.push(fd);
                }
            }
        };
        // SAFETY: what exports all these functions is librcl, whose declarations are stable.
        let f = unsafe { Functions::load(&library) }.map_err(|symbol| RclError::Function {
            path: path.into(),
            symbol,
        })?;
        // SAFETY: only asked whether it is there.
        let has = |name: &[u8]| unsafe { library.get::<*const c_void>(name) }.is_ok();
        let jazzy = has(b"rcl_timer_init2\0");
        let hash = has(b"rosidl_get_zero_initialized_type_hash\0");
        Ok(Arc::new(Rcl {
            f,
            layout: EndpointLayout::of(hash, if jazzy { 16 } else { 24 }),
            folders: folders.to_vec(),
            _library: ManuallyDrop::new(library),
            _symbols: symbols,
        }))
    }

    fn check(&self, code: c_int, what: impl FnOnce() -> String) -> Result<(), RclError> {
        if code == abi::OK {
            return Ok(());
        }
        // SAFETY: the calling thread's message, returned by value; always terminated.
        let reason = unsafe {
            let text = (self.f.error_string)();
            let reason = CStr::from_ptr(text.0.as_ptr())
                .to_string_lossy()
                .into_owned();
            (self.f.reset_error)();
            reason
        };
        Err(RclError::Call {
            what: what(),
            code,
            reason,
        })
    }

    /// The handle of a type's support: `rosidl_typesupport_c`'s, as any C program would use.
    fn type_support(&self, name: &str) -> Result<TypeSupport, RclError> {
        let (package, symbol) =
            type_symbol(name).ok_or_else(|| RclError::TypeName(name.to_string()))?;
        let file = format!("lib{package}__rosidl_typesupport_c.so");
        let prefixes = std::env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
        let found = std::env::split_paths(&prefixes).map(|p| p.join("lib"));
        // A bare name first: the linker's own search.
        let places = std::iter::once(PathBuf::new())
            .chain(found)
            .chain(self.folders.iter().cloned());
        let mut reason = String::new();
        for place in places {
            // SAFETY: initialisers of a type's library run, as in every ROS 2 process that uses it.
            match unsafe { Library::open(Some(place.join(&file)), RTLD_LAZY | RTLD_LOCAL) } {
                Ok(library) => {
                    // SAFETY: the name says the function's type.
                    let handle = unsafe {
                        library
                            .get::<unsafe extern "C" fn() -> *const c_void>(symbol.as_bytes())
                            .map(|get| get())
                    };
                    match handle {
                        Ok(handle) => {
                            return Ok(TypeSupport {
                                handle,
                                _library: ManuallyDrop::new(library),
                            })
                        }
                        Err(e) => reason = e.to_string(),
                    }
                }
                Err(e) if reason.is_empty() => reason = e.to_string(),
                Err(_) => {}
            }
        }
        Err(RclError::TypeSupport {
            name: name.to_string(),
            library: file,
            reason,
        })
    }
}

struct TypeSupport {
    handle: *const c_void,
    _library: ManuallyDrop<Library>,
}

/// The symbol that the dynamic linker misses.
fn missing_symbol(message: &str) -> Option<&str> {
    let name = message.split("undefined symbol: ").nth(1)?;
    let end = name
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

/// Package and type support function of `package/msg/Name`.
fn type_symbol(name: &str) -> Option<(&str, String)> {
    let parts: Vec<&str> = name.split('/').collect();
    let [package, _, _] = parts[..] else {
        return None;
    };
    let fine = |p: &&str| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    parts.iter().all(fine).then(|| {
        let symbol = "rosidl_typesupport_c__get_message_type_support_handle__";
        (package, format!("{symbol}{}\0", parts.join("__")))
    })
}

fn name(text: &str) -> Result<CString, RclError> {
    CString::new(text).map_err(|_| RclError::Name(text.replace('\0', "")))
}

/// A context with one node: no parameters, no services, nothing on /rosout.
pub struct Node {
    rcl: Arc<Rcl>,
    context: Box<Handle>,
    node: Box<Handle>,
}

// SAFETY: rcl's functions on a node and its entities may be called from any thread; those that may
// not be called at once take `&mut` here.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    /// Starts ROS 2 in this process. The middleware's threads start here, and inherit the caller's
    /// policy and CPUs.
    pub fn new(rcl: Arc<Rcl>, node_name: &str) -> Result<Arc<Node>, RclError> {
        let f = &rcl.f;
        let (mut context, mut node) = (Box::new(Handle::zero()), Box::new(Handle::zero()));
        let text = name(node_name)?;
        // SAFETY: every pointer is valid for its call; handles are zero before they are initialised
        // and stay where they are.
        unsafe {
            let mut options = Handle::zero();
            let code = (f.init_options_init)(&mut options, (f.allocator)());
            rcl.check(code, || "making options".into())?;
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
            if let Err(e) = rcl.check(code, || format!("making the node {node_name}")) {
                (f.shutdown)(&mut *context);
                (f.context_fini)(&mut *context);
                return Err(e);
            }
        }
        Ok(Arc::new(Node { rcl, context, node }))
    }

    /// Number of publishers of a topic.
    pub fn publishers(&self, topic: &str) -> Result<usize, RclError> {
        let text = name(topic)?;
        let mut count = 0;
        // SAFETY: all pointers are valid for the call.
        let code = unsafe { (self.rcl.f.count_publishers)(&*self.node, text.as_ptr(), &mut count) };
        self.rcl
            .check(code, || format!("counting publishers of {topic}"))?;
        Ok(count)
    }

    /// The publishers of a topic: their types and QoS.
    pub fn announced(&self, topic: &str) -> Result<Vec<Announced>, RclError> {
        let text = name(topic)?;
        let f = &self.rcl.f;
        let mut array = EndpointArray {
            size: 0,
            infos: ptr::null_mut(),
        };
        // SAFETY: all pointers are valid for the calls, and `layout` says where the fields are.
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

impl Drop for Node {
    fn drop(&mut self) {
        let f = &self.rcl.f;
        // SAFETY: initialised by `new`; entities hold an `Arc` of the node, so none is left.
        unsafe {
            (f.node_fini)(&mut *self.node);
            (f.shutdown)(&mut *self.context);
            (f.context_fini)(&mut *self.context);
        }
    }
}

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
        item.arrival_ns = onbeat_time::clock::monotonic_ns() as i64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_and_symbols() {
        let symbol = "rosidl_typesupport_c__get_message_type_support_handle__a_msgs__msg__B\0";
        assert_eq!(type_symbol("a_msgs/msg/B"), Some(("a_msgs", symbol.into())));
        for bad in [
            "",
            "a/B",
            "a/msg/",
            "../x/msg/B",
            "a/msg/B/c",
            "a/msg/B\n",
            "a/m;sg/B",
        ] {
            assert_eq!(type_symbol(bad), None, "{bad:?}");
        }
        let said = "/opt/libx.so: undefined symbol: PyExc_RuntimeError";
        assert_eq!(missing_symbol(said), Some("PyExc_RuntimeError"));
        assert_eq!(missing_symbol("libx.so: cannot open"), None);
    }
}
