//! Waits for items of a subscription, or for responses to clients.

use super::abi::{self, Functions};
use super::{Node, RclError};
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

pub(super) struct Waiter {
    set: Box<abi::WaitSet>,
    node: Arc<Node>,
}

impl Waiter {
    pub(super) fn new(
        node: &Arc<Node>,
        subscriptions: usize,
        clients: usize,
    ) -> Result<Waiter, RclError> {
        let f = &node.rcl.f;
        // SAFETY: zero bits are the value of `rcl_get_zero_initialized_wait_set`.
        let mut set: Box<abi::WaitSet> = Box::new(unsafe { std::mem::zeroed() });
        let context = ptr::from_ref(&*node.context).cast_mut();
        // SAFETY: all pointers are valid during the call.
        let code = unsafe {
            (f.wait_set_init)(
                &mut *set,
                subscriptions,
                0,
                0,
                clients,
                0,
                0,
                context,
                (f.allocator)(),
            )
        };
        node.rcl.check(code, || "creating a wait set".into())?;
        Ok(Waiter {
            set,
            node: node.clone(),
        })
    }

    /// Waits for at most `at_most_ns` until an entity of the set is ready. Returns false if none
    /// is. `add` adds the entities to the cleared set. `doing` names the work for error messages.
    ///
    /// # Safety
    /// `add` must add entities that are initialised, do not move and exist during the call.
    pub(super) unsafe fn wait(
        &mut self,
        at_most_ns: i64,
        doing: &str,
        add: impl FnOnce(&Functions, *mut abi::WaitSet) -> c_int,
    ) -> Result<bool, RclError> {
        let f = &self.node.rcl.f;
        // SAFETY: the set is initialised and does not move. The caller answers for the entities.
        let code = unsafe {
            let mut code = (f.wait_set_clear)(&mut *self.set);
            if code == abi::OK {
                code = add(f, &mut *self.set);
            }
            if code == abi::OK {
                code = (f.wait)(&mut *self.set, at_most_ns);
            }
            code
        };
        if code == abi::TIMEOUT {
            // SAFETY: the call only deletes this thread's error message.
            unsafe { (f.reset_error)() };
            return Ok(false);
        }
        self.node.rcl.check(code, || doing.into())?;
        Ok(true)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // SAFETY: `new` initialised the set.
        unsafe { (self.node.rcl.f.wait_set_fini)(&mut *self.set) };
    }
}
