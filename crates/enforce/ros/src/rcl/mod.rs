//! Safe types for rcl, which is loaded at run time: node, publisher, subscription, service client
//! and serialised items.

mod abi;
mod clients;
mod endpoints;
mod node;
mod stub;
mod types;
mod waiter;

use abi::{EndpointLayout, Functions, TracePublish};
pub use abi::{Qos, Time};
pub use clients::{Client, Responses, Unsent};
pub use endpoints::{Holding, Item, Number, Publisher, Subscription};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
pub use node::{Announced, Node};
use std::ffi::{c_int, c_void, CStr, CString};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// The return code of rcl's functions that have succeeded.
pub const OK: i32 = abi::OK;
/// rmw's number of the history policy `keep last`.
pub const KEEP_LAST: i32 = 1;
/// rmw's number of the history policy `keep all`.
pub const KEEP_ALL: i32 = 2;
/// rmw's number of the reliability `reliable`.
pub const RELIABLE: i32 = 1;
/// rmw's number of the reliability `best effort`.
pub const BEST_EFFORT: i32 = 2;
/// rmw's number of the durability `transient local`.
pub const TRANSIENT_LOCAL: i32 = 1;
/// rmw's number of the durability `volatile`.
pub const VOLATILE: i32 = 2;

const MAX_MISSING: usize = 64;

/// The reason why a call of ROS 2's client library rcl failed. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum RclError {
    #[error("cannot load {}: {reason}. Source the application's ROS 2 setup, so that LD_LIBRARY_PATH names its folders", path.display())]
    Load { path: PathBuf, reason: String },
    #[error("{} has no function {symbol}. onbeat supports ROS 2 Humble, Jazzy and Kilted", path.display())]
    Function { path: PathBuf, symbol: &'static str },
    #[error("ROS 2 failed while {what} (code {code}): {reason}")]
    Call {
        /// The action that failed and its object, for example `creating a publisher of /scan`.
        what: String,
        /// The return code of the rcl function, for example 1 for `RCL_RET_ERROR`.
        code: i32,
        reason: String,
    },
    #[error("'{0}' is not the name of a message type. Write package/msg/Name")]
    TypeName(String),
    #[error(
        "no type support for {name}: {reason}. Add the folder with {library} to LD_LIBRARY_PATH"
    )]
    TypeSupport {
        /// The message type: `package/msg/Name`.
        name: String,
        /// The file name of the missing library, for example
        /// `libstd_msgs__rosidl_typesupport_cpp.so`.
        library: String,
        reason: String,
    },
    #[error(
        "'{0}' is not the name of a topic or node, because it has a zero byte. Remove that byte"
    )]
    Name(String),
}

/// The librcl that this process has loaded, with its functions.
pub struct Rcl {
    f: Functions,
    /// `None` before Jazzy, or if the tracepoint is missing.
    trace_publish: Option<TracePublish>,
    layout: EndpointLayout,
    folders: Vec<PathBuf>,
    // The library is never unloaded, because the middleware's threads and statics may outlive every
    // handle.
    _library: ManuallyDrop<Library>,
    _symbols: Vec<OwnedFd>,
}

impl Rcl {
    /// Loads librcl from a path. Later searches for the libraries of type support include
    /// `folders`.
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
                    let Some(name) = python.filter(|_| symbols.len() < MAX_MISSING) else {
                        return Err(failed(reason));
                    };
                    let fd = stub::library(&[name]).map_err(|e| failed(e.to_string()))?;
                    // SAFETY: the library has no code.
                    let made =
                        unsafe { Library::open(Some(stub::path(&fd)), RTLD_LAZY | RTLD_GLOBAL) };
                    // The library is never unloaded, because librcl refers to it.
                    std::mem::forget(made.map_err(|e| failed(e.to_string()))?);
                    symbols.push(fd);
                }
            }
        };
        // SAFETY: a library that exports all these functions is librcl, whose declarations are
        // stable.
        let f = unsafe { Functions::load(&library) }.map_err(|symbol| RclError::Function {
            path: path.into(),
            symbol,
        })?;
        // SAFETY: the symbol is only looked up, never used.
        let has = |name: &[u8]| unsafe { library.get::<*const c_void>(name) }.is_ok();
        let jazzy = has(b"rcl_timer_init2\0");
        let is_stamped = has(b"ros_trace_rclcpp_intra_publish\0");
        // SAFETY: since Jazzy, which the other tracepoint shows, the tracepoint has this type.
        let trace_publish = unsafe { library.get::<TracePublish>(b"ros_trace_rmw_publish\0") };
        let trace_publish = trace_publish.ok().map(|trace| *trace);
        let hash = has(b"rosidl_get_zero_initialized_type_hash\0");
        Ok(Arc::new(Rcl {
            f,
            trace_publish: trace_publish.filter(|_| is_stamped),
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
        // SAFETY: rcl returns the calling thread's message by value, with a terminating zero byte.
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
}

fn missing_symbol(message: &str) -> Option<&str> {
    let name = message.split("undefined symbol: ").nth(1)?;
    let end = name
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

fn name(text: &str) -> Result<CString, RclError> {
    CString::new(text).map_err(|_| RclError::Name(text.replace('\0', "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_missing_symbol_is_found_in_the_linkers_message() {
        let said = "/opt/libx.so: undefined symbol: PyExc_RuntimeError";
        assert_eq!(missing_symbol(said), Some("PyExc_RuntimeError"));
        assert_eq!(missing_symbol("libx.so: cannot open"), None);
    }
}
