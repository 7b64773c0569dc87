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

impl Rcl {
    pub(super) fn type_support(&self, name: &str) -> Result<TypeSupport, RclError> {
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
                    // SAFETY: rosidl gives each function of this name this type.
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

fn type_symbol(name: &str) -> Option<(&str, String)> {
    let parts: Vec<&str> = name.split('/').collect();
    let [package, _, _] = parts[..] else {
        return None;
    };
    let is_valid =
        |p: &&str| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    parts.iter().all(is_valid).then(|| {
        let symbol = "rosidl_typesupport_c__get_message_type_support_handle__";
        (package, format!("{symbol}{}\0", parts.join("__")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_type_names_give_a_symbol() {
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
    }
}
