//! The iceoryx2 peer: an event wakes the reader, or the reader polls. The flood role uses blocking
//! delivery.

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use onbeat_peers::protocol::Words;
use onbeat_peers::transport::{arrived, fill, serve, Options, Peer, Sample};
use onbeat_peers::{die, now_ns, or_die, sleep_until};
use std::time::Duration;

const DEPTH: usize = 8;
/// The depth of the queue for a publisher that sends without pause. The queue is short, so that the
/// publisher soon has to wait.
const DEPTH_OF_A_FLOOD: usize = 4;

type Ports<T> =
    iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, T, ()>;
type Events = iceoryx2::service::port_factory::event::PortFactory<ipc::Service>;

struct Iceoryx2 {
    sleeps: bool,
    blocks: bool,
}

fn service(peer: &Iceoryx2, topic: &str) -> (Ports<[u8]>, Option<Events>) {
    let node = or_die(NodeBuilder::new().create::<ipc::Service>(), "the node");
    let depth = if peer.blocks { DEPTH_OF_A_FLOOD } else { DEPTH };
    let name = or_die(ServiceName::new(topic), "the name");
    let ports = node
        .service_builder(&name)
        .publish_subscribe::<[u8]>()
        .max_publishers(1)
        .max_subscribers(16)
        .max_nodes(32)
        .history_size(0)
        .subscriber_max_buffer_size(depth)
        .enable_safe_overflow(!peer.blocks)
        .open_or_create();
    let ports = or_die(ports, "the service");
    let events = peer.sleeps.then(|| {
        let made = node
            .service_builder(&name)
            .event()
            .max_listeners(16)
            .max_notifiers(16)
            .max_nodes(32)
            .open_or_create();
        or_die(made, "the event")
    });
    (ports, events)
}

struct Writer {
    ports: Ports<[u8]>,
    events: Option<Events>,
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Option<Notifier<ipc::Service>>,
}

struct Reader {
    _ports: Ports<[u8]>,
    _events: Option<Events>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    listener: Option<Listener<ipc::Service>>,
}

impl Peer for Iceoryx2 {
    type Writer = Writer;
    type Reader = Reader;

    fn writer(&self, topic: &str, bytes: usize) -> Writer {
        let (ports, events) = service(self, topic);
        let strategy = if self.blocks {
            BackpressureStrategy::RetryUntilDelivered
        } else {
            BackpressureStrategy::DiscardData
        };
        let publisher = ports
            .publisher_builder()
            .initial_max_slice_len(bytes)
            .backpressure_strategy(strategy)
            .create();
        let notifier = events
            .as_ref()
            .map(|e| or_die(e.notifier_builder().create(), "the notifier"));
        Writer {
            publisher: or_die(publisher, "the publisher"),
            notifier,
            ports,
            events,
        }
    }

    fn reader(&self, topic: &str, _bytes: usize) -> Reader {
        let (ports, events) = service(self, topic);
        let subscriber = or_die(ports.subscriber_builder().create(), "the subscriber");
        let listener = events
            .as_ref()
            .map(|e| or_die(e.listener_builder().create(), "the listener"));
        Reader {
            _ports: ports,
            _events: events,
            subscriber,
            listener,
        }
    }

    fn matched(&self, writer: &Writer, readers: usize) -> bool {
        let listeners = writer
            .events
            .as_ref()
            .map_or(readers, |e| e.dynamic_config().number_of_listeners());
        listeners >= readers && writer.ports.dynamic_config().number_of_subscribers() >= readers
    }

    fn send(&self, writer: &mut Writer, sample: &Sample, bytes: usize) {
        let loan = or_die(writer.publisher.loan_slice_uninit(bytes), "a loan");
        // SAFETY: a byte may have any value, and the memory is mapped and initialised.
        let mut loan = unsafe { loan.assume_init() };
        fill(loan.payload_mut(), sample);
        or_die(loan.send(), "sending");
        if let Some(notifier) = &writer.notifier {
            or_die(notifier.notify(), "notifying");
        }
    }

    fn receive(&self, reader: &mut Reader, deadline_ns: Option<i64>) -> Option<Sample> {
        loop {
            if let Some(message) = or_die(reader.subscriber.receive(), "receiving") {
                return Some(arrived(message.payload()));
            }
            let left = deadline_ns? - now_ns();
            if left <= 0 {
                return None;
            }
            if let Some(listener) = &reader.listener {
                let left = Duration::from_nanos(left as u64);
                or_die(listener.timed_wait(|_| {}, left), "waiting");
            }
        }
    }

    fn give_back_at(&self, reader: &mut Reader, at_ns: i64) -> Option<(i64, i64)> {
        let limit = now_ns().max(at_ns) + 2_000_000_000;
        sleep_until(at_ns);
        loop {
            let now = now_ns();
            if let Some(message) = or_die(reader.subscriber.receive(), "receiving") {
                return Some((arrived(message.payload()).sequence, now));
            }
            if now > limit {
                return None;
            }
            sleep_until(now + 100_000);
        }
    }
}

fn main() {
    let options = Options::new(&Words::of_command_line());
    set_log_level(LogLevel::Error);
    let blocks = matches!(options.role.as_str(), "slow" | "flood");
    if blocks && !options.spin {
        die("the roles slow and flood cannot wait for events, they only poll: add wait=spin");
    }
    let peer = Iceoryx2 {
        sleeps: !options.spin,
        blocks,
    };
    serve(&peer, &options);
}
