//! Makes the events with which a simulated process begins.
use super::system::{
    gid, handle, Input, Output,
    Output::{Publish, Request},
    CALLBACK, CLIENT, CLOCK, IN, NODE, NODES, OBJECT, OUT, RMW_CLIENT, RMW_IN, RMW_OUT,
};
use super::MS;
use crate::event::{EventKind, Name};

fn text(name: &str) -> Name {
    name.into()
}

pub(super) fn process_init(node: usize, cpu: usize) -> Vec<EventKind> {
    let (name, rclcpp, callbacks) = &NODES[node];
    let mut kinds = vec![
        EventKind::Process {
            command: text(&format!("/opt/system/{name}")),
            distribution: text("kilted"),
            rmw: text("rmw_fastrtps_cpp"),
            late: false,
        },
        EventKind::Thread {
            comm: text(name),
            policy: 0,
            priority: 120,
            cpus: 1 << cpu,
        },
        EventKind::NodeInit {
            node: handle(node, NODE, 0),
            rmw: handle(node, NODE, 1),
            name: text(name),
            namespace: text("/"),
        },
        EventKind::ClockInit {
            clock: handle(node, CLOCK, 0),
        },
    ];
    for (index, callback) in callbacks.iter().enumerate() {
        callback_init(&mut kinds, node, index, &callback.input, *rclcpp);
        for (place, output) in callback.outputs.iter().enumerate() {
            output_init(&mut kinds, node, index * 8 + place, *output);
        }
    }
    kinds
}

fn callback_init(
    kinds: &mut Vec<EventKind>,
    node: usize,
    index: usize,
    input: &Input,
    rclcpp: bool,
) {
    let own = handle(node, NODE, 0);
    let rcl = handle(node, IN, index);
    let rmw = handle(node, RMW_IN, index);
    let callback = handle(node, CALLBACK, index);
    match input {
        Input::Timer(period, _) => {
            kinds.push(EventKind::TimerClock {
                timer: rcl,
                clock: handle(node, CLOCK, 0),
            });
            kinds.push(EventKind::TimerInit {
                timer: rcl,
                period_ns: (period * MS) as i64,
            });
            if rclcpp {
                kinds.push(EventKind::TimerCallback {
                    timer: rcl,
                    callback,
                });
                kinds.push(EventKind::TimerNode {
                    timer: rcl,
                    node: own,
                });
            }
        }
        Input::Topic(topic) => {
            kinds.push(EventKind::SubscriptionGid {
                rmw,
                gid: gid(node, IN, index),
            });
            kinds.push(EventKind::SubscriptionInit {
                subscription: rcl,
                node: own,
                rmw,
                topic: text(topic),
                depth: 10,
            });
            if rclcpp {
                let object = handle(node, OBJECT, index);
                kinds.push(EventKind::SubscriptionObject {
                    subscription: rcl,
                    object,
                });
                kinds.push(EventKind::SubscriptionCallback { object, callback });
            }
        }
        Input::Service => {
            kinds.push(EventKind::ServiceInit {
                service: rcl,
                node: own,
                rmw,
                name: text("/plan"),
            });
            if rclcpp {
                kinds.push(EventKind::ServiceCallback {
                    service: rcl,
                    callback,
                });
            }
        }
        // The client is created together with its request.
        Input::Response => {}
    }
}

fn output_init(kinds: &mut Vec<EventKind>, node: usize, number: usize, output: Output) {
    let own = handle(node, NODE, 0);
    match output {
        Publish(topic) => {
            let rmw = handle(node, RMW_OUT, number);
            kinds.push(EventKind::PublisherGid {
                rmw,
                gid: gid(node, OUT, number),
            });
            kinds.push(EventKind::PublisherInit {
                publisher: handle(node, OUT, number),
                node: own,
                rmw,
                topic: text(topic),
                depth: 10,
            });
        }
        Request => {
            let rmw = handle(node, RMW_CLIENT, 0);
            kinds.push(EventKind::ClientGid {
                rmw,
                gid: gid(node, CLIENT, 0),
            });
            kinds.push(EventKind::ClientInit {
                client: handle(node, CLIENT, 0),
                node: own,
                rmw,
                name: text("/plan"),
            });
        }
    }
}
