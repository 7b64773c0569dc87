//! Returns freed memory to the system.

/// Returns freed memory to the system, which the allocator would otherwise keep.
///
/// Judging requirements and saving incidents needs much memory for a short time. Memory that stays
/// in use then lies between freed pieces, so the heap would grow for hours. A call takes about 1
/// ms.
pub fn return_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function has no preconditions, and other threads may allocate meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}
