//! Checks pointers, texts and deadlines that come from C, before the crate uses them.

use crate::error::{Failure, OnbeatCode, Outcome};
use std::ffi::{c_char, c_void, CStr};

/// A deadline that never comes: the call waits without a limit.
pub const ONBEAT_FOREVER: u64 = u64::MAX;

/// A callback that writes a message in place. It must return and must not throw. It must not use
/// the handle with which the application called onbeat.
pub type OnbeatFill =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: *mut u8, length: usize)>;

/// Returns the present time in ns of CLOCK_MONOTONIC. A deadline is this value plus a time.
#[no_mangle]
pub extern "C" fn onbeat_now_ns() -> u64 {
    onbeat_flow::clock::now_ns()
}

pub(crate) fn deadline(deadline_ns: u64) -> Option<u64> {
    (deadline_ns != ONBEAT_FOREVER).then_some(deadline_ns)
}

/// Checks a text: it must not be null and must be UTF-8.
///
/// # Safety
/// The pointer is null or leads to a text that ends with a 0.
pub(crate) unsafe fn text<'c>(pointer: *const c_char) -> Outcome<&'c str> {
    if pointer.is_null() {
        return Err(Failure::null("a string is null"));
    }
    // SAFETY: not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map_err(|_| Failure::plain(OnbeatCode::Argument, "a string is not UTF-8"))
}

/// Checks bytes to read. With length 0 the pointer may be null.
///
/// # Safety
/// The pointer is null or leads to `length` bytes.
pub(crate) unsafe fn bytes<'c>(pointer: *const c_void, length: usize) -> Outcome<&'c [u8]> {
    match (pointer.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::null(
            "the pointer to the bytes is null, but their length is not 0",
        )),
        _ => {
            check_length(length)?;
            // SAFETY: not null, and the caller promises the rest.
            Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
        }
    }
}

fn check_length(length: usize) -> Outcome {
    let most = isize::MAX as usize;
    let too_long = "a length is larger than any memory. Check that it is not negative.";
    (length <= most)
        .then_some(())
        .ok_or(Failure::plain(OnbeatCode::Argument, too_long))
}

/// A buffer of the caller, to which received data is copied. The buffer has room for the largest
/// item, so onbeat never takes an item that does not fit.
pub(crate) struct Buffer {
    start: *mut u8,
}

impl Buffer {
    /// Checks that the buffer has room for `most` bytes.
    ///
    /// # Safety
    /// The pointer is null or leads to `capacity` bytes that can be written.
    pub(crate) unsafe fn new(
        pointer: *mut c_void,
        capacity: usize,
        most: usize,
    ) -> Outcome<Buffer> {
        let start = pointer.cast();
        if pointer.is_null() && most > 0 {
            return Err(Failure::null("the buffer is null"));
        }
        check_length(capacity)?;
        if capacity < most {
            let text =
                format!("the buffer has {capacity} bytes but needs {most}. Give a larger buffer.");
            return Err(Failure::new(OnbeatCode::TooSmall, text));
        }
        Ok(Buffer { start })
    }

    pub(crate) fn copy(&self, content: &[u8]) {
        if !content.is_empty() {
            // SAFETY: the buffer has at least `most` bytes, and it is not the memory that `content`
            // is in.
            unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.start, content.len()) };
        }
    }
}

/// Writes a result, unless the caller passed null for it.
///
/// # Safety
/// `place` is null or can be written.
pub(crate) unsafe fn write_unless_null<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the caller promises the rest.
        unsafe { place.write(value) };
    }
}
