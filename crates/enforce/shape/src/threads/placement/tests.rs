//! Tests where threads are placed. They use real threads of this process, and servers that only
//! note calls.

use super::*;
use onbeat_reserve::{Pulse, SwapError};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;

type Log = Rc<RefCell<Vec<(u32, String)>>>;

struct RecordingServers(Log);

impl Servers for RecordingServers {
    fn assign(&self, seen: Seen, server: &str) -> Result<(), AssignError> {
        self.0.borrow_mut().push((seen.tid, server.into()));
        Ok(())
    }
    fn forget_ended(&self) -> Vec<u32> {
        vec![]
    }
    fn place(&self, tid: u32, _: u16, _: u8) -> Result<(), AssignError> {
        self.0.borrow_mut().push((tid, MIDDLEWARE.into()));
        Ok(())
    }
    fn set_origin(&self, _: u64) {}
    fn swap_table(&self, _: &[Server]) -> Result<(), SwapError> {
        Ok(())
    }
    fn pulse(&self) -> Pulse {
        Pulse::default()
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
    fn changes_since(&self, _: &mut u64) -> Vec<Change> {
        vec![]
    }
    fn pauses(&self) -> Pauses {
        Pauses::default()
    }
    fn warnings(&self) -> Vec<String> {
        vec![]
    }
    fn stop(self: Box<Self>) -> Report {
        unreachable!("nobody stops it")
    }
}

struct NamedThread {
    tid: u32,
    end: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl NamedThread {
    fn new(name: &str) -> NamedThread {
        let (send, receive) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        let body = move || {
            // SAFETY: gettid takes no arguments and cannot fail.
            send.send(unsafe { libc::gettid() } as u32)
                .expect("a listener");
            let _ = wait.recv();
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        NamedThread {
            tid: receive.recv().expect("its id"),
            end: Some(end),
            thread: Some(thread.expect("a thread")),
        }
    }
}

impl Drop for NamedThread {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn place_of(log: &Log, tid: u32) -> Option<String> {
    let log = log.borrow();
    let found = log.iter().find(|(of, _)| *of == tid);
    found.map(|(_, place)| place.clone())
}

fn plan() -> Plan {
    let text = include_bytes!("../../../../plan/tests/golden/plan.yaml");
    let mut plan = onbeat_plan::file::read(text).expect("a plan");
    plan.outputs.truncate(1);
    plan.outputs[0].hold = Hold::PublisherThread;
    plan
}

fn note_run_at(application: &mut Application, plan: &Plan, at_ns: u64) {
    let own = std::process::id();
    let callback = application.publishers(&plan.outputs[0])[0];
    let ran = application.roles.ran(callback, own, own);
    ran.expect("one server");
    application.roles.saw(own, at_ns);
}

fn later_ns() -> u64 {
    monotonic_ns() + 1_000_000_000
}

fn placement<'a>(plan: &'a Plan, log: &Log) -> Placement<'a> {
    let servers = super::super::guarded(plan);
    Placement::new(
        plan,
        servers,
        Box::new(RecordingServers(log.clone())),
        Arc::default(),
    )
}

#[test]
fn only_living_application_processes_get_priorities() {
    let plan = plan();
    let thread = NamedThread::new("dds.udp.7410");
    let placed = |at_ns, is_ours: &dyn Fn(u32) -> bool| {
        let log = Log::default();
        let mut application = Application::new(&plan, |_| true);
        note_run_at(&mut application, &plan, at_ns);
        placement(&plan, &log).place_middleware(&application, &SenderProcesses::default(), is_ours);
        place_of(&log, thread.tid)
    };
    assert_eq!(placed(later_ns(), &|_| true).as_deref(), Some(MIDDLEWARE));
    let own = std::process::id();
    assert_eq!(
        placed(later_ns(), &|pid| pid != own),
        None,
        "another user's"
    );
    // The process that was seen had ended before this one got its id.
    assert_eq!(placed(1, &|_| true), None);
}

#[test]
fn publisher_threads_of_a_restarted_process_go_to_their_server() {
    let plan = plan();
    let server = plan.outputs[0].server.as_str();
    let log = Log::default();
    let mut placement = placement(&plan, &log);
    let mut application = Application::new(&plan, |_| true);
    note_run_at(&mut application, &plan, later_ns());
    // The process runs, but its publisher thread starts later. That thread must not be placed as a
    // middleware thread.
    let (assigned, refused) = placement.assign_new_publishers(&application, &|_| true);
    assert!(assigned.is_empty() && refused.is_empty());
    let thread = NamedThread::new("dds.asyn.1");
    placement.place_middleware(&application, &SenderProcesses::default(), &|_| true);
    assert_eq!(place_of(&log, thread.tid), None);
    let own = std::process::id();
    let (assigned, _) = placement.assign_new_publishers(&application, &|pid| pid != own);
    assert!(assigned.is_empty(), "another user's");
    let (assigned, _) = placement.assign_new_publishers(&application, &|_| true);
    assert_eq!(assigned.len(), 1);
    assert_eq!(place_of(&log, thread.tid).as_deref(), Some(server));
    assert!(placement.is_assigned(thread.tid));
    let (assigned, _) = placement.assign_new_publishers(&application, &|_| true);
    assert!(assigned.is_empty(), "once");
}
