//! Errors for C: a code for programs, a text for people. No panic passes from here to C.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The result of a call. A negative code is an error, and onbeat_last_error() has the text.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnbeatCode {
    /// The call has succeeded.
    Ok = 0,
    /// Nothing came before the deadline. This is not an error.
    Nothing = 1,
    /// A pointer is null but must not be.
    NullPointer = -1,
    /// An argument has a value that is not allowed.
    Argument = -2,
    /// A message or value is larger than agreed.
    TooLarge = -3,
    /// A buffer is smaller than the largest possible message. Nothing was taken.
    TooSmall = -4,
    /// The other side did not consume enough before the deadline. Nothing was sent.
    NoCredit = -5,
    /// The other side has closed, and everything that it had sent was received.
    Closed = -6,
    /// The process at the other side died, or the other side can no longer be reached.
    Gone = -7,
    /// The peer has the key, but has sent data that breaks the protocol.
    Protocol = -8,
    /// One end rejects the other: their key, version, sizes or options differ, or one of the ends
    /// already has a peer.
    Refused = -9,
    /// No peer came before the deadline.
    NoPeer = -10,
    /// The kernel has refused a system call. onbeat_last_error() names the purpose of the call.
    System = -11,
    /// The machine has no channel with this name.
    NotThere = -12,
    /// The channel with this name has other options than the caller's.
    Mismatch = -13,
    /// The channel already has a producer, or the largest number of consumers that it can have.
    InUse = -14,
    /// The handle is in use by another thread, or by the callback that makes this call.
    Busy = -15,
    /// The key file cannot be created or read, has a mode other than 0600, or contains no key.
    Key = -16,
    /// onbeat has a defect and has ended the call. The handle can only be closed.
    Panic = -17,
    /// All payloads of the channel are in use.
    Exhausted = -18,
    /// Fewer consumers than expected attached before the deadline. Nothing was sent.
    NotStarted = -19,
    /// A promise of the link is broken: freshness, integrity, deadline or liveliness.
    Breach = -20,
}

impl OnbeatCode {
    const ALL: [OnbeatCode; 22] = {
        use OnbeatCode::*;
        [
            Ok,
            Nothing,
            NullPointer,
            Argument,
            TooLarge,
            TooSmall,
            NoCredit,
            Closed,
            Gone,
            Protocol,
            Refused,
            NoPeer,
            System,
            NotThere,
            Mismatch,
            InUse,
            Busy,
            Key,
            Panic,
            Exhausted,
            NotStarted,
            Breach,
        ]
    };

    fn text(self) -> &'static std::ffi::CStr {
        match self {
            OnbeatCode::Ok => c"done",
            OnbeatCode::Nothing => c"no item, message or value came before the deadline",
            OnbeatCode::NullPointer => c"a pointer is null but must not be",
            OnbeatCode::Argument => c"an argument has a value that is not allowed",
            OnbeatCode::TooLarge => c"the message or value is larger than both ends agreed on",
            OnbeatCode::TooSmall => c"the buffer is smaller than the largest message",
            OnbeatCode::NoCredit => c"no credit: the other side has not consumed enough items",
            OnbeatCode::Closed => c"the other side has closed the link or channel",
            OnbeatCode::Gone => c"the other side has died or cannot be reached",
            OnbeatCode::Protocol => c"the peer breaks the protocol",
            OnbeatCode::Refused => c"one end of the link has refused the other (for example because their keys or sizes differ)",
            OnbeatCode::NoPeer => c"no peer connected before the deadline",
            OnbeatCode::System => c"the kernel has refused a system call",
            OnbeatCode::NotThere => c"no channel has this name",
            OnbeatCode::Mismatch => c"the channel with this name was created with other options",
            OnbeatCode::InUse => {
                c"the channel already has a producer, or as many consumers as it can have"
            }
            OnbeatCode::Busy => c"another call is using the handle",
            OnbeatCode::Key => c"the key file cannot be used",
            OnbeatCode::Panic => c"onbeat has a defect. Close the handle.",
            OnbeatCode::Exhausted => c"all payloads of the channel are in use",
            OnbeatCode::Breach => {
                c"the link did not keep its QoS (freshness, integrity, deadline or liveliness)"
            }
            OnbeatCode::NotStarted => c"fewer consumers than expected have attached to the channel",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Failure {
    code: OnbeatCode,
    text: Option<Cow<'static, str>>,
}

impl Failure {
    pub(crate) fn new(code: OnbeatCode, text: impl ToString) -> Failure {
        let text = Some(Cow::Owned(text.to_string()));
        Failure { code, text }
    }

    /// Makes a failure without an allocation, for cases that occur in operation, such as a deadline
    /// that passes.
    pub(crate) fn plain(code: OnbeatCode, text: &'static str) -> Failure {
        let text = Some(Cow::Borrowed(text));
        Failure { code, text }
    }

    pub(crate) fn null(what: &'static str) -> Failure {
        Failure::plain(OnbeatCode::NullPointer, what)
    }
}

impl From<OnbeatCode> for Failure {
    fn from(code: OnbeatCode) -> Failure {
        Failure { code, text: None }
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

struct Last {
    code: OnbeatCode,
    text: Option<Cow<'static, str>>,
    /// The error text whose address the C caller got last. It is stored here so that the address
    /// stays valid.
    shown: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { code: OnbeatCode::Ok, text: None, shown: None })
    };
}

/// Runs the body of a C function, and stores its error text. Allocates only after an error, and not
/// for a deadline that passes.
pub(crate) fn guarded(call: impl FnOnce() -> Outcome<OnbeatCode>) -> OnbeatCode {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => return code,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let fixed = panic.downcast_ref::<&'static str>().map(|s| s.to_string());
            Failure::new(OnbeatCode::Panic, text.or(fixed).unwrap_or_default())
        }
    };
    let code = failure.code;
    // While a thread ends, its storage may be gone already. Then the error has a code but no text.
    let _ = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        (last.code, last.text) = (code, failure.text);
    });
    code
}

/// Returns the text of the calling thread's last call that returned a negative code, in one line.
/// The text is valid until the thread calls this function again. Never null.
#[no_mangle]
pub extern "C" fn onbeat_last_error() -> *const c_char {
    let text = catch_unwind(|| {
        LAST.try_with(|last| {
            let mut last = last.borrow_mut();
            let Some(text) = &last.text else {
                return last.code.text().as_ptr();
            };
            let bytes: Vec<u8> = text.bytes().filter(|b| *b != 0).collect();
            let shown = CString::new(bytes).expect("bytes without 0");
            last.shown.insert(shown).as_ptr()
        })
    });
    match text {
        Ok(Ok(text)) => text,
        _ => c"".as_ptr(),
    }
}

/// Returns the general text of any code. Never null, and must not be freed.
#[no_mangle]
pub extern "C" fn onbeat_code_text(code: i32) -> *const c_char {
    let known = OnbeatCode::ALL.into_iter().find(|c| *c as i32 == code);
    known
        .map_or(
            c"onbeat has no result code with this number",
            OnbeatCode::text,
        )
        .as_ptr()
}
