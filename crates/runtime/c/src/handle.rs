//! Opaque handles: memory that C holds, used by one thread at a time.

use crate::error::{Failure, OnbeatCode, Outcome};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const IN_USE: u8 = 1;
/// The state of a handle after a panic. The panic may have left the value inconsistent.
const SPOILT: u8 = 2;

#[derive(Debug)]
pub(crate) struct Handle<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

/// Marks a handle as in use while a call uses it. The end of the call clears the mark. A panic
/// leaves the handle in the state `SPOILT`.
struct Mark<'h>(&'h AtomicU8);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        let is_spoilt = std::thread::panicking();
        self.0
            .store(if is_spoilt { SPOILT } else { FREE }, Ordering::Release);
    }
}

impl<T> Handle<T> {
    fn mark(&self) -> Outcome<Mark<'_>> {
        let taken = self
            .state
            .compare_exchange(FREE, IN_USE, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => Ok(Mark(&self.state)),
            Err(SPOILT) => Err(OnbeatCode::Panic.into()),
            Err(_) => Err(Failure::plain(
                OnbeatCode::Busy,
                "the handle is in use by another thread, or by the callback that makes this call",
            )),
        }
    }
}

/// Makes a new handle and writes its address to `place`.
///
/// # Safety
/// `place` is null or can be written.
pub(crate) unsafe fn give<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Outcome<T>,
) -> Outcome<OnbeatCode> {
    if place.is_null() {
        return Err(Failure::null(
            "the pointer that receives the handle is null",
        ));
    }
    // SAFETY: not null, and the caller promises the rest.
    unsafe { place.write(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { place.write(made) };
    Ok(OnbeatCode::Ok)
}

pub(crate) trait Opaque {
    type Inner;
    fn handle(&self) -> &Handle<Self::Inner>;
}

/// Implements `Opaque` for a type of the header. The module defines the type itself, so that
/// cbindgen sees it.
macro_rules! opaque {
    ($name:ident, $inner:ty) => {
        impl $crate::handle::Opaque for $name {
            type Inner = $inner;
            fn handle(&self) -> &$crate::handle::Handle<$inner> {
                &self.0
            }
        }
    };
}
pub(crate) use opaque;

impl<T> From<T> for Handle<T> {
    fn from(value: T) -> Handle<T> {
        let (state, value) = (AtomicU8::new(FREE), UnsafeCell::new(value));
        Handle { state, value }
    }
}

/// Calls `call` with the value behind a pointer. Fails if another call uses the value.
///
/// # Safety
/// The pointer is null, or was made by [`give`] and not taken back since.
pub(crate) unsafe fn using<O: Opaque, R>(
    pointer: *const O,
    call: impl FnOnce(&mut O::Inner) -> Outcome<R>,
) -> Outcome<R> {
    if pointer.is_null() {
        return Err(Failure::null("the handle is null"));
    }
    // SAFETY: not null, and the caller promises the rest.
    let handle = unsafe { &*pointer }.handle();
    let _mark = handle.mark()?;
    // SAFETY: only one call at a time has the mark.
    call(unsafe { &mut *handle.value.get() })
}

/// Takes a handle back and drops it. Null is allowed.
///
/// # Safety
/// The rules of [`using`] apply.
pub(crate) unsafe fn take_back<O: Opaque>(pointer: *mut O) -> Outcome<OnbeatCode> {
    if pointer.is_null() {
        return Ok(OnbeatCode::Ok);
    }
    // SAFETY: as in `using`.
    let handle = unsafe { &*pointer }.handle();
    match handle.mark() {
        Ok(mark) => std::mem::forget(mark),
        // A spoilt handle can be closed, but not used.
        Err(_) if handle.state.load(Ordering::Acquire) == SPOILT => {}
        Err(busy) => return Err(busy),
    }
    // SAFETY: made by `give`. Nobody uses it, because this call has the mark.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(OnbeatCode::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::guarded;

    #[derive(Debug)]
    pub struct Number(Handle<u32>);

    opaque!(Number, u32);

    #[test]
    fn a_panic_returns_a_code_to_c_and_makes_its_handle_unusable() {
        let number = Box::into_raw(Box::new(Number(Handle::from(1))));
        // SAFETY: made above, and taken back at the end.
        unsafe {
            let code = guarded(|| using(number, |_| panic!("a defect")));
            assert_eq!(code, OnbeatCode::Panic);
            let text = std::ffi::CStr::from_ptr(crate::onbeat_last_error());
            assert_eq!(text, c"a defect");
            let again = guarded(|| using(number, |_| Ok(OnbeatCode::Ok)));
            assert_eq!(again, OnbeatCode::Panic);
            assert_eq!(guarded(|| take_back(number)), OnbeatCode::Ok);
        }
    }

    #[test]
    fn a_handle_in_use_refuses_a_second_thread() {
        let number = Number(Handle::from(1));
        let at = std::ptr::from_ref(&number) as usize;
        // SAFETY: made above, and alive until both threads are done. This holds for the inner call
        // too.
        let held = guarded(|| unsafe {
            using(&number, |_| {
                let other = std::thread::spawn(move || {
                    guarded(|| using(at as *const Number, |_| Ok(OnbeatCode::Ok)))
                });
                Ok(other.join().unwrap())
            })
        });
        assert_eq!(held, OnbeatCode::Busy);
    }
}
