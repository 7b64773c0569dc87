//! Turns panics of a library at untrusted bytes into results, without output on stderr.

use std::cell::Cell;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `work` and returns its result, or `None` if `work` panics. `work` must not leave lasting
/// state half-changed.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                others(panic);
            }
        }));
    });
    CAUGHT.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(false);
    done.ok()
}
