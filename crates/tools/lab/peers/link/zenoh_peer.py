"""zenoh in the `link` experiment: one process of one host.

Settings and samples are those of `../rust/src/bin/link/`; `../README.md` describes the protocol.
"""

import os
import resource
import struct
import sys
import threading
import time

import zenoh

UNIT = 16
MAGIC = 0x6F6E6274
CONNECT_S = 20
ROUNDS = 9  # of turns per period of the first stream, as in main.rs

PRIORITIES = (zenoh.Priority.DATA_LOW, zenoh.Priority.DATA, zenoh.Priority.REAL_TIME)


def die(why):
    print(f"zenoh_peer: {why}", file=sys.stderr)
    os._exit(1)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def sleep_until(at_ns):
    while (left := at_ns - now_ns()) > 0:
        time.sleep(left / 1e9)


def say(line):
    os.write(1, f"{line}\n".encode())


def command(word):
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    words = line.split()
    if words[0] != word:
        die(f"expected '{word}', not '{line.strip()}'")
    return int(words[1]) if len(words) > 1 else 0


class Stream:
    def __init__(self, number, text):
        self.id = int(number)
        numbers = [int(n) for n in text.split(",")]
        self.priority, self.bytes, self.period_ns, self.count, self.offset_ns = numbers

    def key(self):
        return f"link/{self.id}"

    def unit(self, number):
        return struct.pack("<IIQ", MAGIC, self.id, number)


class Usage:
    def __init__(self):
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu_ns = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
        self.voluntary, self.involuntary = used.ru_nvcsw, used.ru_nivcsw

    def done(self, messages):
        now = Usage()
        cpu_ns = now.cpu_ns - self.cpu_ns
        say(
            f"done {messages} {cpu_ns} {now.voluntary - self.voluntary} {now.involuntary - self.involuntary}"
        )


def session(settings, listens):
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    # zenoh notices that the hosts share a machine. Without this it would send through shared
    # memory.
    config.insert_json5("transport/shared_memory/enabled", "false")
    endpoint = f'["tcp/{settings["host"]}:{settings["port"]}"]'
    config.insert_json5("transport/unicast/qos/enabled", "true")
    if listens:
        config.insert_json5("listen/endpoints", endpoint)
    else:
        config.insert_json5("listen/endpoints", "[]")
        config.insert_json5("connect/endpoints", endpoint)
        config.insert_json5("connect/timeout_ms", str(CONNECT_S * 1000))
    return zenoh.open(config)


class Sending:
    def __init__(self, opened, stream):
        self.stream = stream
        self.publisher = opened.declare_publisher(
            stream.key(),
            priority=PRIORITIES[stream.priority],
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )

    def matched(self):
        return self.publisher.matching_status.matching

    def one(self, number, intended_ns):
        unit = self.stream.unit(number)
        content = bytearray(unit * (self.stream.bytes // UNIT))
        content[UNIT : 2 * UNIT] = struct.pack("<qq", intended_ns, now_ns())
        self.publisher.put(bytes(content))

    def by_time(self, start, stopped):
        stream, number = self.stream, 0
        while stream.count == 0 or number < stream.count:
            intended = start + stream.offset_ns + number * stream.period_ns
            sleep_until(intended)
            if stream.period_ns == 0:
                intended = now_ns()
            if stopped.is_set():
                return
            self.one(number, intended)
            number += 1


def in_turns(senders, start, turn):
    """Sends in rounds of `turn` messages of each stream, one stream after the other, numbered over all."""
    streams = [s.stream for s in senders]
    sent, number = 0, 0
    while sent < streams[0].count:
        if sent % (ROUNDS * turn) == 0:
            sleep_until(start + sent // (ROUNDS * turn) * streams[0].period_ns)
        for sender in senders:
            for _ in range(turn):
                sender.one(number, now_ns())
                number += 1
        sent += turn


def send_all(settings, streams):
    opened = session(settings, listens=False)
    senders = [Sending(opened, s) for s in streams]
    until = now_ns() + CONNECT_S * 1_000_000_000
    while not all(s.matched() for s in senders):
        if now_ns() > until:
            die("no subscriber connected within 20 s")
        time.sleep(0.005)
    say("ready")
    start = command("start")
    began, stopped = Usage(), threading.Event()
    if "turn" in settings:
        in_turns(senders, start, int(settings["turn"]))
    else:
        threads = [
            (s, threading.Thread(target=s.by_time, args=(start, stopped), daemon=True))
            for s in senders
        ]
        for _, thread in threads:
            thread.start()
        for sender, thread in threads:
            if sender.stream.count:
                thread.join()
    began.done(sum(s.count for s in streams))
    command("stop")
    stopped.set()


class Receiving:
    def __init__(self, stream, samples, progress):
        self.stream, self.samples, self.progress, self.came = (
            stream,
            samples,
            progress,
            0,
        )

    def take(self, sample):
        received = now_ns()
        content = sample.payload.to_bytes()
        magic, stream, number, intended, sent = struct.unpack_from("<IIQqq", content)
        whole = magic == MAGIC and content.endswith(self.stream.unit(number))
        if not whole or len(content) != self.stream.bytes or stream != self.stream.id:
            die("a message is incomplete")
        line = (stream, number, intended, sent, received, now_ns())
        with self.progress:
            self.samples.append(line)
            self.came += 1
            if self.came == self.stream.count:
                self.progress.notify_all()

    def finished(self):
        return self.came >= self.stream.count


def receive_all(settings, streams):
    opened = session(settings, listens=True)
    samples, progress = [], threading.Condition()
    receivers = [Receiving(s, samples, progress) for s in streams]
    kept = [opened.declare_subscriber(r.stream.key(), r.take) for r in receivers]
    say("ready")
    command("start")
    began = Usage()
    with progress:
        progress.wait_for(lambda: all(r.finished() for r in receivers))
    began.done(sum(s.count for s in streams))
    command("stop")
    with progress, open(settings["file"], "w", encoding="ascii") as out:
        for sample in samples:
            out.write(",".join(map(str, sample)) + "\n")
    return kept


def main():
    settings = dict(word.split("=", 1) for word in sys.argv[1:])
    streams = [Stream(n, settings[f"s{n}"]) for n in settings["streams"].split(",")]
    if "network" in settings:
        die("this peer does not support network=")
    if settings["side"] == "send":
        send_all(settings, streams)
        kept = None
    else:
        kept = receive_all(settings, streams)
    say("written")
    sys.stdin.readline()
    del kept
    os._exit(0)


try:
    main()
except Exception as error:  # Any failure becomes one line.
    die(error)
