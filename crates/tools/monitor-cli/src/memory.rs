//! Returns memory to the system.

/// Returns the memory that was freed to the system. The allocator would keep it.
///
/// A judgement makes a model, and a save explains one, so both need for a moment what the monitor rarely needs.
/// What lasts then lies between the freed pieces, and the heap would grow for hours. A call takes about a
/// millisecond.
pub fn return_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function has no preconditions, and other threads may allocate meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}
