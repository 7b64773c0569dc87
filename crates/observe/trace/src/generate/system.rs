//! The simulated system: nodes, their callbacks, and the addresses of their objects.
use crate::event::ExecuteKind;

pub(super) enum Input {
    Timer(u64, u64),
    Topic(&'static str),
    Service,
    Response,
}

#[derive(Clone, Copy)]
pub(super) enum Output {
    Publish(&'static str),
    Request,
}

pub(super) struct Spec {
    pub(super) input: Input,
    pub(super) exec_us: u64,
    pub(super) outputs: &'static [Output],
}

pub(super) const fn spec(input: Input, exec_us: u64, outputs: &'static [Output]) -> Spec {
    Spec {
        input,
        exec_us,
        outputs,
    }
}

use Output::{Publish, Request};

pub(super) const NODES: &[(&str, bool, &[Spec])] = &[
    (
        "lidar",
        true,
        &[spec(Input::Timer(10, 0), 300, &[Publish("/points")])],
    ),
    (
        "filter",
        false,
        &[spec(Input::Topic("/points"), 900, &[Publish("/filtered")])],
    ),
    (
        "locate",
        true,
        &[
            spec(Input::Topic("/filtered"), 1500, &[Publish("/pose")]),
            spec(Input::Topic("/map"), 200, &[]),
        ],
    ),
    (
        "control",
        false,
        &[
            spec(Input::Topic("/pose"), 250, &[Publish("/command")]),
            spec(Input::Timer(100, 3), 80, &[Request]),
            spec(Input::Response, 60, &[]),
        ],
    ),
    (
        "planner",
        true,
        &[
            spec(Input::Service, 700, &[]),
            spec(
                Input::Timer(50, 7),
                400,
                &[Publish("/map"), Publish("/goal")],
            ),
        ],
    ),
    (
        "camera",
        false,
        &[
            spec(Input::Timer(33, 1), 600, &[Publish("/image")]),
            spec(Input::Topic("/goal"), 90, &[]),
        ],
    ),
    (
        "detect",
        true,
        &[
            spec(Input::Topic("/image"), 4000, &[Publish("/objects")]),
            spec(Input::Topic("/points"), 700, &[]),
            spec(Input::Timer(200, 11), 100, &[Request]),
            spec(Input::Response, 50, &[]),
        ],
    ),
    (
        "drive",
        false,
        &[
            spec(Input::Topic("/command"), 120, &[]),
            spec(Input::Topic("/objects"), 350, &[]),
            spec(Input::Timer(20, 5), 100, &[Publish("/state")]),
            spec(Input::Timer(20, 9), 150, &[]),
        ],
    ),
];

pub(super) fn pid(node: usize) -> u32 {
    2000 + node as u32 * 7
}

pub(super) fn handle(node: usize, what: u64, number: usize) -> u64 {
    0x5500_0000_0000 + ((node as u64) << 32) + what * 0x4_0000 + number as u64 * 0x1c0
}

pub(super) const NODE: u64 = 1;
pub(super) const CLOCK: u64 = 2;
/// The kinds of objects that belong to a callback: `IN` is the rcl handle of its input, `RMW_IN`
/// the middleware's handle, `CALLBACK` the function.
pub(super) const IN: u64 = 3;
pub(super) const RMW_IN: u64 = 4;
pub(super) const CALLBACK: u64 = 5;
pub(super) const OBJECT: u64 = 6;
pub(super) const OUT: u64 = 7;
pub(super) const RMW_OUT: u64 = 8;
pub(super) const CLIENT: u64 = 9;
pub(super) const RMW_CLIENT: u64 = 10;
pub(super) const GUARD: u64 = 11;

pub(super) fn gid(node: usize, what: u64, number: usize) -> [u8; 16] {
    let mut gid = *b"\x01\x0f\x3c\x9a\0\0\0\0\x01\0\0\0\0\0\x03\0";
    gid[4..8].copy_from_slice(&pid(node).to_le_bytes());
    gid[12] = what as u8;
    gid[13] = number as u8;
    gid
}

pub(super) fn find(node: Option<usize>, wanted: fn(&Input) -> bool) -> Option<(usize, usize)> {
    let nodes = NODES.iter().enumerate();
    let mut nodes = nodes.filter(|(number, _)| node.is_none_or(|n| n == *number));
    nodes.find_map(|(number, (_, _, callbacks))| {
        let callback = callbacks.iter().position(|c| wanted(&c.input))?;
        Some((number, callback))
    })
}

pub(super) fn execute_kind(input: &Input) -> ExecuteKind {
    match input {
        Input::Timer(..) => ExecuteKind::Timer,
        Input::Topic(_) => ExecuteKind::Subscription,
        Input::Service => ExecuteKind::Service,
        Input::Response => ExecuteKind::Client,
    }
}
