//! Type support of messages, which is found by the type's name and loaded at run time.

use super::{Rcl, RclError};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::path::PathBuf;

/// The type support of one message type. Its library stays loaded until the process ends.
pub(super) struct TypeSupport {
    pub(super) handle: *const c_void,
    _library: ManuallyDrop<Library>,
}

/// The type support of one service, with the functions that create messages of it. Its library
/// stays loaded until the process ends.
pub(super) struct ServiceSupport {
    pub(super) handle: *const c_void,
    pub(super) event: *const c_void,
    pub(super) events: Maker,
    pub(super) responses: Maker,
    _library: ManuallyDrop<Library>,
}

#[derive(Clone, Copy)]
pub(super) struct Maker {
    create: unsafe extern "C" fn() -> *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
}

pub(super) struct Message {
    pub(super) at: *mut c_void,
    maker: Maker,
}

// SAFETY: the message owns its memory.
unsafe impl Send for Message {}

impl Maker {
    pub(super) fn message(self) -> Option<Message> {
        // SAFETY: rosidl's functions of this name have this type, and their library stays loaded.
        let at = unsafe { (self.create)() };
        (!at.is_null()).then_some(Message { at, maker: self })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: `create` of the same type allocated the message.
        unsafe { (self.maker.destroy)(self.at) };
    }
}

type Get = unsafe extern "C" fn() -> *const c_void;
const SUPPORT: &str = "rosidl_typesupport_c__get_";

/// Looks up a function of a library.
///
/// # Safety
/// `T` must be the type of the function, and the library must stay loaded.
unsafe fn function<T: Copy>(library: &Library, symbol: &str) -> Result<T, String> {
    let symbol = format!("{symbol}\0");
    // SAFETY: the caller guarantees the type.
    let found = unsafe { library.get::<T>(symbol.as_bytes()) };
    found.map(|f| *f).map_err(|error| error.to_string())
}

impl Rcl {
    pub(super) fn type_support(&self, name: &str) -> Result<TypeSupport, RclError> {
        let look = |library: &Library, symbol: &str| {
            let symbol = format!("{SUPPORT}message_type_support_handle__{symbol}");
            // SAFETY: rosidl gives each function of this name this type.
            unsafe { function::<Get>(library, &symbol).map(|get| get()) }
        };
        let (handle, _library) = self.find(name, look)?;
        Ok(TypeSupport { handle, _library })
    }

    /// Returns the type support of a service with introspection, which ROS 2 has since Iron.
    pub(super) fn service_support(&self, name: &str) -> Result<ServiceSupport, RclError> {
        let look = |library: &Library, symbol: &str| {
            // SAFETY: rosidl gives each function of these names these types. The library of type support is
            // linked with that of the messages' functions.
            unsafe {
                let service = format!("{SUPPORT}service_type_support_handle__{symbol}");
                let event = format!("{SUPPORT}message_type_support_handle__{symbol}_Event");
                let maker = |kind: &str| -> Result<Maker, String> {
                    Ok(Maker {
                        create: function(library, &format!("{symbol}_{kind}__create"))?,
                        destroy: function(library, &format!("{symbol}_{kind}__destroy"))?,
                    })
                };
                let (service, event) = (
                    function::<Get>(library, &service)?,
                    function::<Get>(library, &event)?,
                );
                Ok((service(), event(), maker("Event")?, maker("Response")?))
            }
        };
        let ((handle, event, events, responses), _library) = self.find(name, look)?;
        Ok(ServiceSupport {
            handle,
            event,
            events,
            responses,
            _library,
        })
    }

    /// Loads the library of a type, and looks up symbols in it. Calls `look` with the type's name
    /// in the form that symbols contain.
    fn find<T>(
        &self,
        name: &str,
        look: impl Fn(&Library, &str) -> Result<T, String>,
    ) -> Result<(T, ManuallyDrop<Library>), RclError> {
        let (package, symbol) =
            type_symbol(name).ok_or_else(|| RclError::TypeName(name.to_string()))?;
        let file = format!("lib{package}__rosidl_typesupport_c.so");
        let prefixes = std::env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
        let found = std::env::split_paths(&prefixes).map(|p| p.join("lib"));
        // A bare name comes first, for the linker's own search.
        let places = std::iter::once(PathBuf::new())
            .chain(found)
            .chain(self.folders.iter().cloned());
        let mut reason = String::new();
        for place in places {
            // SAFETY: initialisers of a type's library run, as in every ROS 2 process that uses it.
            match unsafe { Library::open(Some(place.join(&file)), RTLD_LAZY | RTLD_LOCAL) } {
                Ok(library) => {
                    let library = ManuallyDrop::new(library);
                    match look(&library, &symbol) {
                        Ok(found) => return Ok((found, library)),
                        Err(e) => reason = e,
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

fn type_symbol(name: &str) -> Option<(&str, String)> {
    let parts: Vec<&str> = name.split('/').collect();
    let [package, _, _] = parts[..] else {
        return None;
    };
    let is_valid =
        |p: &&str| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    parts
        .iter()
        .all(is_valid)
        .then(|| (package, parts.join("__")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_type_names_give_a_symbol() {
        let symbol = "a_msgs__msg__B".to_string();
        assert_eq!(type_symbol("a_msgs/msg/B"), Some(("a_msgs", symbol)));
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
    }
}
