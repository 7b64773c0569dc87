//! What went wrong: a code for programs, a text for people. No panic passes from here to C.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a call has come to. Negative: something is wrong, and onbeat_last_error() has the text.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnbeatCode {
    /// Done.
    Ok = 0,
    /// Nothing came until the deadline. No error.
    Nothing = 1,
    /// A pointer is null that must not be.
    NullPointer = -1,
    /// An argument has a value that it must not have.
    Argument = -2,
    /// A message or value is larger than agreed.
    TooLarge = -3,
    /// A buffer is smaller than the largest message that can come. Nothing was taken.
    TooSmall = -4,
    /// The other side has not consumed enough until the deadline. Nothing was sent.
    NoCredit = -5,
    /// The other side has closed, and everything that it had sent was received.
    Closed = -6,
    /// The other side died, or cannot be reached any more.
    Gone = -7,
    /// The peer, which knew the key, has sent what no onbeat sends.
    Protocol = -8,
    /// One end does not take the other: key, version, sizes or options differ, or it has a peer.
    Refused = -9,
    /// No peer came until the deadline.
    NoPeer = -10,
    /// The kernel has refused a call.
    System = -11,
    /// There is no channel of that name.
    NotThere = -12,
    /// There is a channel of that name that is not as asked for.
    Mismatch = -13,
    /// All places are taken: a channel has one producer and a limited number of consumers.
    InUse = -14,
    /// The handle is in use: by another thread, or by the callback from which the call comes.
    Busy = -15,
    /// The key file cannot be used.
    Key = -16,
    /// A defect of onbeat. The handle can only be closed.
    Panic = -17,
    /// All payloads of the channel are in use.
    Exhausted = -18,
    /// Fewer consumers than expected have attached until the deadline. Nothing was sent.
    NotStarted = -19,
    /// A promise of the link (freshness, integrity, deadline, liveliness) is broken.
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
            OnbeatCode::Nothing => c"nothing came until the deadline",
            OnbeatCode::NullPointer => c"a pointer is null that must not be",
            OnbeatCode::Argument => c"an argument has a value that it must not have",
            OnbeatCode::TooLarge => c"larger than agreed",
            OnbeatCode::TooSmall => c"the buffer is smaller than the largest message",
            OnbeatCode::NoCredit => c"no credit: the other side has not consumed enough",
            OnbeatCode::Closed => c"the other side has closed",
            OnbeatCode::Gone => c"the other side is gone",
            OnbeatCode::Protocol => c"the peer breaks the protocol",
            OnbeatCode::Refused => c"one end does not take the other",
            OnbeatCode::NoPeer => c"no peer until the deadline",
            OnbeatCode::System => c"the kernel has refused a call",
            OnbeatCode::NotThere => c"there is no channel of that name",
            OnbeatCode::Mismatch => c"the channel of that name is not as asked for",
            OnbeatCode::InUse => c"all places of the channel are taken",
            OnbeatCode::Busy => c"the handle is in use",
            OnbeatCode::Key => c"the key file cannot be used",
            OnbeatCode::Panic => c"a defect of onbeat: close the handle",
            OnbeatCode::Exhausted => c"all payloads of the channel are in use",
            OnbeatCode::Breach => c"a promise of the link is broken",
            OnbeatCode::NotStarted => c"fewer consumers than expected have attached",
        }
    }
}

/// A code and, where there is more to say than its own text, what.
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

    /// Without an allocation: for what happens in operation, as a deadline that passes.
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

/// What this thread's last failed call has to say.
struct Last {
    code: OnbeatCode,
    text: Option<Cow<'static, str>>,
    /// The text as C got it last.
    shown: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { code: OnbeatCode::Ok, text: None, shown: None })
    };
}

/// Runs what a function of the header does. Allocates only where something is wrong, and not for a
/// deadline that passes.
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
    // While a thread ends its text may be gone already: then the code has to do.
    let _ = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        (last.code, last.text) = (code, failure.text);
    });
    code
}

/// The text of the calling thread's last call that returned a negative code: one line that names
/// what was wrong. Valid until the thread calls this function again. Never null.
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

/// What a code means, whatever the call was. For any number; never null, never to be freed.
#[no_mangle]
pub extern "C" fn onbeat_code_text(code: i32) -> *const c_char {
    let known = OnbeatCode::ALL.into_iter().find(|c| *c as i32 == code);
    known
        .map_or(c"no code of onbeat", OnbeatCode::text)
        .as_ptr()
}
