//! Keeps the monitor's heap small: all threads share one heap, and freed memory returns to the
//! system.

/// Makes all threads allocate from one heap. The allocator would give each thread a heap of its
/// own, and [`return_freed`] cannot return the free end of such a heap: after the first incident,
/// the heap of the thread that saves incidents would stay large. Call this before other threads
/// start.
pub fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function changes a setting of the allocator only.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

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
