//! Clients of services, which send the requests of serialised service events.

use super::abi::{self, Bytes, Handle, Options, RequestId, ServiceEvent};
use super::types::{Message, ServiceSupport};
use super::waiter::Waiter;
use super::{name, Node, Qos, RclError, KEEP_ALL};
use std::ptr;
use std::sync::Arc;

struct Shared {
    node: Arc<Node>,
    handle: Box<Handle>,
    support: ServiceSupport,
    service: String,
}

// SAFETY: rcl's functions on a client may be called from any thread.
unsafe impl Send for Shared {}
// SAFETY: one thread sends requests and another one takes responses, as executors of ROS 2 do it.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        let node = ptr::from_ref(&*self.node.node).cast_mut();
        // SAFETY: the handle was initialised with this node, which still exists.
        unsafe { (self.node.rcl.f.client_fini)(&mut *self.handle, node) };
    }
}

/// The reason why a request was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// The middleware cannot read the service event, or the event has no request.
    Damaged,
    /// The middleware refused the request with this code of rcl. The caller may try again.
    Refused(i32),
}

/// A client of a service, which sends the requests of recorded service events.
pub struct Client {
    shared: Arc<Shared>,
    event: Message,
}

impl Client {
    /// Sends the request of a serialised service event, and returns the request's number. The
    /// middleware allocates memory for the request.
    ///
    /// # Errors
    /// Fails if the event has no readable request, or if the middleware refuses the request.
    pub fn send(&mut self, event: &[u8]) -> Result<i64, Unsent> {
        let shared = &*self.shared;
        let f = &shared.node.rcl.f;
        let bytes = Bytes {
            // The call takes a pointer to const, so it only reads the bytes.
            buffer: event.as_ptr().cast_mut(),
            length: event.len(),
            capacity: event.len(),
            // SAFETY: the call has no arguments and returns a value.
            allocator: unsafe { (f.allocator)() },
        };
        // SAFETY: `event` is a message of the type of the support, and the bytes are valid during the call.
        // Events of all services begin as `ServiceEvent` does, and the request is a message of the client's type.
        unsafe {
            if (f.deserialize)(&bytes, shared.support.event, self.event.at) != abi::OK {
                (f.reset_error)();
                return Err(Unsent::Damaged);
            }
            let request = &(*self.event.at.cast::<ServiceEvent>()).request;
            if request.size != 1 || request.data.is_null() {
                return Err(Unsent::Damaged);
            }
            let mut number = 0;
            match (f.send_request)(&*shared.handle, request.data, &mut number) {
                abi::OK => Ok(number),
                code => {
                    (f.reset_error)();
                    Err(Unsent::Refused(code))
                }
            }
        }
    }
}

/// A receiver of the responses to the requests of several clients. One thread waits for them.
pub struct Responses {
    // Fields are dropped in this order: the wait set before the clients.
    waiter: Waiter,
    clients: Vec<(Arc<Shared>, Message)>,
}

// SAFETY: only one thread at a time uses the waiter and the messages.
unsafe impl Send for Responses {}

impl Responses {
    /// Reports whether ROS 2 has discovered a server for the service of the client with the index
    /// `client`.
    ///
    /// # Errors
    /// Fails if rcl fails.
    pub fn has_server(&self, client: usize) -> Result<bool, RclError> {
        let (shared, _) = &self.clients[client];
        let node = &shared.node;
        let mut is_there = false;
        // SAFETY: all pointers are valid during the call.
        let code = unsafe {
            (node.rcl.f.server_is_available)(&*node.node, &*shared.handle, &mut is_there)
        };
        let what = || format!("looking for a server of {}", shared.service);
        node.rcl.check(code, what)?;
        Ok(is_there)
    }

    /// Waits for a response of any client, for at most `at_most_ns`. Returns false if no response
    /// came.
    ///
    /// # Errors
    /// Fails if rcl fails.
    pub fn wait(&mut self, at_most_ns: i64) -> Result<bool, RclError> {
        let clients = &self.clients;
        // SAFETY: the handles are initialised and do not move.
        unsafe {
            self.waiter
                .wait(at_most_ns, "waiting for responses", |f, set| {
                    let mut code = abi::OK;
                    for (shared, _) in clients {
                        if code == abi::OK {
                            let handle: *const Handle = &*shared.handle;
                            code = (f.wait_set_add_client)(set, handle, ptr::null_mut());
                        }
                    }
                    code
                })
        }
    }

    /// Takes the next response to the client with the index `client`, and returns the number of its
    /// request. Returns `None` if no response is waiting.
    ///
    /// # Errors
    /// Fails if rcl fails.
    pub fn take(&mut self, client: usize) -> Result<Option<i64>, RclError> {
        let (shared, response) = &self.clients[client];
        let rcl = &shared.node.rcl;
        let mut id = RequestId {
            writer: [0; 16],
            sequence: 0,
            spare: [0; 4],
        };
        // SAFETY: the response is a message of the client's type, and all pointers are valid during the call.
        let code = unsafe { (rcl.f.take_response)(&*shared.handle, &mut id, response.at) };
        if code == abi::CLIENT_TAKE_FAILED {
            // SAFETY: the call only deletes this thread's error message.
            unsafe { (rcl.f.reset_error)() };
            return Ok(None);
        }
        rcl.check(code, || format!("taking a response of {}", shared.service))?;
        Ok(Some(id.sequence))
    }
}

impl Node {
    /// Creates a client for each service, given by its name and type (`package/srv/Name`). The
    /// clients have the order of `services`. Also returns a [`Responses`], which takes the
    /// responses to all these clients. The clients keep requests until the server has received
    /// them.
    ///
    /// # Errors
    /// Fails if ROS 2 does not have a type with service introspection, or if rcl fails.
    pub fn clients(
        self: &Arc<Self>,
        services: &[(&str, &str)],
    ) -> Result<(Vec<Client>, Responses), RclError> {
        let f = &self.rcl.f;
        let mut senders = Vec::new();
        let mut clients = Vec::new();
        for &(service, type_name) in services {
            let support = self.rcl.service_support(type_name)?;
            let no_memory = || RclError::Call {
                what: format!("creating messages of {type_name}"),
                code: 0,
                reason: "no memory".into(),
            };
            let event = support.events.message().ok_or_else(no_memory)?;
            let response = support.responses.message().ok_or_else(no_memory)?;
            let text = name(service)?;
            let mut handle = Box::new(Handle::zero());
            // SAFETY: all pointers are valid during the calls; in all releases the options begin with the QoS.
            unsafe {
                let mut options: Options = (f.client_options)();
                let qos = options.0.as_mut_ptr().cast::<Qos>();
                (*qos).history = KEEP_ALL;
                let code = (f.client_init)(
                    &mut *handle,
                    &*self.node,
                    support.handle,
                    text.as_ptr(),
                    &options,
                );
                self.rcl
                    .check(code, || format!("creating a client of {service}"))?;
            }
            let shared = Arc::new(Shared {
                node: self.clone(),
                handle,
                support,
                service: service.into(),
            });
            senders.push(Client {
                shared: shared.clone(),
                event,
            });
            clients.push((shared, response));
        }
        let waiter = Waiter::new(self, 0, clients.len())?;
        let responses = Responses { clients, waiter };
        Ok((senders, responses))
    }
}
