"""Writes an LTTng session of any length: a timer's callback publishes messages, and a subscription takes them.

The kinds of events are those of a recorded session of the tests; CARET's events are added. Each cycle has ten events.
"""

import os
import re
import struct

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECORDED = os.path.join(ROOT, "crates/observe/ctf/tests/recorded/metadata")
METADATA_PACKET_HEADER = 37
EVENTS_IN_PACKET = 5000
BEGIN_NS = 1_000_000_000_000
CYCLE_NS = 1_000_000
TALKER, LISTENER = 100, 200
# Events of CARET that its analysis needs, with their fields: "u" and "i" are integers of 64 bits, "s" is a text.
CARET = {
    "caret_init": "clock_offset:i distribution:s",
    "construct_executor": "executor_addr:u executor_type_name:s",
    "add_callback_group": "executor_addr:u callback_group_addr:u group_type_name:s",
    "callback_group_add_timer": "callback_group_addr:u timer_handle:u",
    "callback_group_add_subscription": "callback_group_addr:u subscription_handle:u",
    "dds_bind_addr_to_stamp": "addr:u source_stamp:u",
}
FIRST_ID_OF_CARET = 900


def recorded_metadata():
    """The text of the recorded session's metadata, without the headers of its packets."""
    with open(RECORDED, "rb") as file:
        raw = file.read()
    text, at = b"", 0
    while at < len(raw):
        content, packet = (bits // 8 for bits in struct.unpack_from("<II", raw, at + 24))
        text += raw[at + METADATA_PACKET_HEADER:at + content]
        at += packet
    return text.decode()


def declared(name, number, fields):
    """The declaration of an event of CARET."""
    integer = "integer {{ size = 64; align = 8; signed = {}; encoding = none; base = 10; }}"
    types = {"s": "string", "u": integer.format(0), "i": integer.format(1)}
    lines = [f"\t\t{types[kind]} _{field};" for field, kind in (word.split(":") for word in fields.split())]
    return (f'event {{\n\tname = "ros2_caret:{name}";\n\tid = {number};\n\tstream_id = 0;\n\tloglevel = 13;\n'
            "\tfields := struct {\n" + "\n".join(lines) + "\n\t};\n};\n\n")


class Session:
    """A session of one file of events."""

    def __init__(self, folder):
        text = recorded_metadata()
        text += "".join(declared(name, FIRST_ID_OF_CARET + n, fields) for n, (name, fields) in enumerate(CARET.items()))
        os.makedirs(folder)
        with open(os.path.join(folder, "metadata"), "w", encoding="utf-8") as file:
            file.write(text)
        self.uuid = bytes.fromhex(re.search(r'uuid = "(.*?)"', text)[1].replace("-", ""))
        self.offset = int(re.search(r"offset = (\d+)", text)[1])
        self.kinds = {}
        for block in re.findall(r"event \{(.*?)\n\};", text, re.DOTALL):
            fields = re.findall(r"(?:size = (\d+);[^\n]*|string) _(\w+)(?:\[(\d+)\])?;", block.split("struct {")[1])
            name = re.search(r'name = "\w+:(.*?)"', block)[1]
            self.kinds.setdefault(name, (int(re.search(r"\bid = (\d+)", block)[1]), fields))
        self.file = open(os.path.join(folder, "channel0_0"), "wb")
        self.packets, self.count = 0, 0
        self.events, self.times = [], []

    def add(self, time, pid, name, **values):
        """Adds an event. Fields without a value are 0 or empty."""
        number, fields = self.kinds[name]
        out = struct.pack("<HIii17s", number, time & 0xffffffff, pid, pid, b"p%d" % pid)
        for bits, field, length in fields:
            value = values.pop(field, 0)
            if not bits:
                out += (value or "").encode() + b"\0"
            elif length:
                out += bytes(int(length) * int(bits) // 8)
            else:
                out += (value & ((1 << int(bits)) - 1)).to_bytes(int(bits) // 8, "little")
        assert not values, (name, values)
        self.events.append(out)
        self.times.append(time)
        if len(self.events) == EVENTS_IN_PACKET:
            self.end_packet()

    def end_packet(self):
        """Writes the events as one packet."""
        body = b"".join(self.events)
        bits = (84 + len(body)) * 8
        self.file.write(struct.pack("<I16sIQ", 0xC1FC1FC1, self.uuid, 0, 0))
        self.file.write(struct.pack("<QQQQQQI", self.times[0], max(self.times), bits, bits, self.packets, 0, 0) + body)
        self.packets, self.count = self.packets + 1, self.count + len(self.events)
        self.events, self.times = [], []


def created(session):
    """Adds the events that create a node with a timer and a node with a subscription."""
    events = []
    for pid, node, executor, group in ((TALKER, "talker", 0x9100, 0xa100), (LISTENER, "listener", 0x9200, 0xa200)):
        events += [
            (pid, "caret_init", {"clock_offset": session.offset, "distribution": "humble"}),
            (pid, "rcl_init", {"context_handle": pid, "version": "1"}),
            (pid, "rcl_node_init", {"node_handle": pid + 1, "rmw_handle": pid + 2, "node_name": node, "namespace": "/"}),
            (pid, "construct_executor", {"executor_addr": executor, "executor_type_name": "single_threaded_executor"}),
            (pid, "add_callback_group", {"executor_addr": executor, "callback_group_addr": group,
                                         "group_type_name": "mutually_exclusive"}),
        ]
    events += [
        (TALKER, "rmw_publisher_init", {"rmw_publisher_handle": 0x1010}),
        (TALKER, "rcl_publisher_init", {"publisher_handle": 0x10, "node_handle": 101, "rmw_publisher_handle": 0x1010,
                                        "topic_name": "/t", "queue_depth": 10}),
        (TALKER, "rcl_timer_init", {"timer_handle": 0x50, "period": CYCLE_NS}),
        (TALKER, "rclcpp_timer_callback_added", {"timer_handle": 0x50, "callback": 0x60}),
        (TALKER, "rclcpp_timer_link_node", {"timer_handle": 0x50, "node_handle": 101}),
        (TALKER, "rclcpp_callback_register", {"callback": 0x60, "symbol": "Talker::tick()"}),
        (TALKER, "callback_group_add_timer", {"callback_group_addr": 0xa100, "timer_handle": 0x50}),
        (LISTENER, "rmw_subscription_init", {"rmw_subscription_handle": 0x1020}),
        (LISTENER, "rcl_subscription_init", {"subscription_handle": 0x20, "node_handle": 201, "rmw_subscription_handle": 0x1020,
                                             "topic_name": "/t", "queue_depth": 10}),
        (LISTENER, "rclcpp_subscription_init", {"subscription_handle": 0x20, "subscription": 0x25}),
        (LISTENER, "rclcpp_subscription_callback_added", {"subscription": 0x25, "callback": 0x61}),
        (LISTENER, "rclcpp_callback_register", {"callback": 0x61, "symbol": "Listener::heard()"}),
        (LISTENER, "callback_group_add_subscription", {"callback_group_addr": 0xa200, "subscription_handle": 0x20}),
    ]
    for n, (pid, name, values) in enumerate(events):
        session.add(BEGIN_NS + n * 1000, pid, name, **values)


def write(folder, cycles):
    """Writes the session; the number of its events."""
    session = Session(folder)
    created(session)
    session.end_packet()
    for n in range(cycles):
        begin = BEGIN_NS + 1_000_000_000 + n * CYCLE_NS
        # The same pseudo-random load in each run.
        load = n * 7919 % 1000 * 100
        stamp = session.offset + begin + 103_000 + load
        for after, pid, name, values in (
            (0, TALKER, "callback_start", {"callback": 0x60}),
            (101_000 + load, TALKER, "rclcpp_publish", {"message": 0x70}),
            (102_000 + load, TALKER, "rcl_publish", {"publisher_handle": 0x10, "message": 0x70}),
            (104_000 + load, TALKER, "rmw_publish", {"rmw_publisher_handle": 0x1010, "message": 0x70, "timestamp": stamp}),
            (105_000 + load, TALKER, "dds_bind_addr_to_stamp", {"addr": 0x70, "source_stamp": stamp}),
            (110_000 + load, TALKER, "callback_end", {"callback": 0x60}),
            (260_000 + load, LISTENER, "rmw_take", {"rmw_subscription_handle": 0x1020, "message": 0x80,
                                                    "source_timestamp": stamp, "taken": 1}),
            (262_000 + load, LISTENER, "rclcpp_take", {"message": 0x80}),
            (270_000 + load, LISTENER, "callback_start", {"callback": 0x61}),
            (350_000 + 3 * load, LISTENER, "callback_end", {"callback": 0x61}),
        ):
            session.add(begin + after, pid, name, **values)
    if session.events:
        session.end_packet()
    session.file.close()
    return session.count
