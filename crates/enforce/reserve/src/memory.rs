//! Locks the process's memory while any reservation of the process needs it.

use crate::sys;
use onbeat_proc::Status;
use std::io;
use std::sync::{Mutex, PoisonError};

static USERS: Mutex<usize> = Mutex::new(0);

/// Locks the process's memory. Returns false if the process had already locked memory itself. In
/// this case [`unlock`] must not be called.
pub(crate) fn lock() -> io::Result<bool> {
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let locked_kb = Status::of(std::process::id())?.number("VmLck");
    if *users == 0 && locked_kb.is_some_and(|kb| kb > 0) {
        return Ok(false);
    }
    sys::lock_memory()?;
    *users += 1;
    Ok(true)
}

pub(crate) fn unlock() {
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    *users -= 1;
    if *users == 0 {
        sys::unlock_memory();
    }
}
