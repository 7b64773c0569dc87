//! Opaque handles: memory that C holds, used by one thread at a time.

use crate::error::{Failure, OnbeatCode, Outcome};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const IN_USE: u8 = 1;
/// A panic has left it in a state that nobody knows.
const SPOILT: u8 = 2;

/// What an opaque pointer leads to.
#[derive(Debug)]
pub(crate) struct Handle<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

/// Takes the mark off when the call is over; leaves it spoilt after a panic.
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
                "the handle is in use: by another thread, or by the callback that calls",
            )),
        }
    }
}

/// Puts a new handle where C wants it.
///
/// # Safety
/// `place` is null or can be written.
pub(crate) unsafe fn give<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Outcome<T>,
) -> Outcome<OnbeatCode> {
    if place.is_null() {
        return Err(Failure::null("the place for the handle is null"));
    }
    // SAFETY: not null, and the caller promises the rest.
    unsafe { place.write(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { place.write(made) };
    Ok(OnbeatCode::Ok)
}

/// What a pointer of C's leads to.
pub(crate) trait Opaque {
    /// What the handle is for.
    type Inner;
    /// The handle within.
    fn handle(&self) -> &Handle<Self::Inner>;
}

/// A type of the header is opaque: a handle, and nothing else. The type itself stands in the module,
/// where cbindgen sees it.
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

/// Uses what a pointer of C's leads to.
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
    // SAFETY: whoever has the mark is alone.
    call(unsafe { &mut *handle.value.get() })
}

/// Takes a handle back and drops it. Null is fine, as for `free`.
///
/// # Safety
/// As for [`using`].
pub(crate) unsafe fn take_back<O: Opaque>(pointer: *mut O) -> Outcome<OnbeatCode> {
    if pointer.is_null() {
        return Ok(OnbeatCode::Ok);
    }
    // SAFETY: as in `using`.
    let handle = unsafe { &*pointer }.handle();
    match handle.mark() {
        Ok(mark) => std::mem::forget(mark),
        // A spoilt one can be closed, and nothing else.
        Err(_) if handle.state.load(Ordering::Acquire) == SPOILT => {}
        Err(busy) => return Err(busy),
    }
    // SAFETY: made by `give`, and nobody uses it: the mark is ours.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(OnbeatCode::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::guarded;

    /// For these tests.
    #[derive(Debug)]
    pub struct Number(Handle<u32>);

    opaque!(Number, u32);

    #[test]
    fn a_panic_stays_here_and_spoils_its_handle() {
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
    fn a_second_thread_is_refused() {
        let number = Number(Handle::from(1));
        let at = std::ptr::from_ref(&number) as usize;
        // SAFETY: made above, and alive until both threads are done; so too within.
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
