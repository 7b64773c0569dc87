"""Plants violations live, and looks for each in the saved incidents: once, with the planted cause first."""

import collections
import os
import re

import service
from service import say

CAUSES = ["neighbour", "lock", "callback"]
SLOTS_PER_S = 20
# Until all nodes know one another, and until the monitor knows the chains.
FIRST_SLOT = 20 * SLOTS_PER_S
# A chain violates its limit for the window of 10 s, and its incident ends 10 s later. With ten chains in turn, each
# has its next plant after 23 s. The step is odd, so that each plant meets the next chain.
STEP = 46
# One slow callback at the rate of the scans would look like an input that the outputs of all chains need.
MINUTE_CAUSES = ["callback", "neighbour", "callback", "lock", "neighbour"]
AFTER_S = 1
# A planted cause takes 25 ms, and its execution 3 ms more.
UNDISTURBED_MS = 40


def singles(count):
    """Returns the causes of so many single violations by slot, each on the next chain."""
    causes, slot = {}, FIRST_SLOT
    for number in range(count):
        causes[slot + (number - slot) % service.CHAINS] = CAUSES[number % len(CAUSES)]
        slot += STEP
    return causes


def plan(count):
    """Returns causes and chains by slot, and the number of the last slot."""
    causes, chains, slot = singles(count), {}, FIRST_SLOT + count * STEP
    # A burst: twenty violations of one chain in one second. The other chains have a break.
    slot += 25 * SLOTS_PER_S
    for at in range(slot, slot + SLOTS_PER_S):
        causes[at], chains[at] = "neighbour", 0
    for at in range(slot + SLOTS_PER_S, slot + SLOTS_PER_S + 4):
        chains[at] = None
    # Five chains are late for a minute each, begun 3 s one after another.
    slot += 25 * SLOTS_PER_S
    for number in range(len(MINUTE_CAUSES)):
        begin = slot + number * 3 * SLOTS_PER_S
        for at in range(begin, begin + 60 * SLOTS_PER_S):
            if at % service.CHAINS == number:
                causes[at] = MINUTE_CAUSES[number]
    return causes, chains, max(causes) + 25 * SLOTS_PER_S


def expected(cause, chain):
    """A pattern of the first cause in a sentence."""
    scan = rf"/victim:subscription\(/watched/scan_{chain}\)"
    return re.compile({
        "neighbour": rf"are preemptions of {scan} by neighbour",
        "lock": rf"are time in which {scan} slept, woken by /victim",
        "callback": r"are waits in the executor of /victim behind /victim:subscription\(/watched/slow\)",
    }[cause])


def first_cause(sentence):
    """The first cause that a sentence names."""
    return sentence.split("Of this difference, ", 1)[-1].split("; ")[0]


def latency_ms(row):
    """The latency of an execution by the application's clock."""
    return (row["out"][1] - row["stamp"]) / 1e6


def match(rows, found):
    """Returns for each late execution of the application the incidents that have it, as (name, content)."""
    at = collections.defaultdict(list)
    for name, incident in found:
        for late in incident["executions"]:
            at[late["end_ns"]].append((name, incident))
    ends = sorted(at)
    matched = []
    for row in rows:
        before, after = row["out"]
        within = [end for end in ends if before <= end <= after]
        matched.append((row, [pair for end in within for pair in at[end]]))
    return matched


def judge(folder, kept):
    """Compares the incidents with the log of the application. Returns complaints."""
    rows = service.read_lines(os.path.join(folder, "application/victim.log"))
    # A slow callback that takes its message after the scan delays nothing.
    late = [row for row in rows if latency_ms(row) > service.LIMIT_MS]
    planted = [row for row in late if row["cause"]]
    # The plan leaves the other executions alone: other programs have delayed them.
    others = [row for row in late if not row["cause"]]
    found = [(os.path.basename(path), service.read_json(os.path.join(path, "incident.json")))
             for path in service.incidents(kept)]
    wrong, of_incident = [], collections.defaultdict(list)
    for row, pairs in match(planted, found):
        if len(pairs) != 1:
            wrong.append(f"{row['cause']} on chain {row['chain']} at {row['stamp']} is in {len(pairs)} incidents")
        for name, _ in pairs:
            of_incident[name].append(row)
    right, unplanned = 0, {name for row, pairs in match(others, found) for name, _ in pairs}
    unplanned |= {name for name, rows in of_incident.items() if max(map(latency_ms, rows)) > UNDISTURBED_MS}
    for name, incident in found:
        mine = of_incident.get(name, [])
        if name in unplanned:
            # Other programs may be the first cause.
            continue
        if not mine:
            wrong.append(f"{name} has no late execution: {incident['violations'][0]['subject']}")
            continue
        row, sentence = mine[0], incident["sentence"] or "nothing"
        if expected(row["cause"], row["chain"]).search(first_cause(sentence)):
            right += 1
        else:
            wrong.append(f"{name}: {row['cause']} was planted on chain {row['chain']}: {sentence}")
    sizes = collections.Counter(len(rows) for rows in of_incident.values())
    say(f"{len(planted)} violations planted; {len(found)} incidents, by number of planted violations: {dict(sizes)}")
    say(f"other programs delayed {len(others)} other executions and disturbed {len(unplanned)} incidents; the planted "
        f"cause is first in {right} of the {len(found) - len(unplanned)} others")
    causes = collections.Counter(row["cause"] for row in planted)
    say(f"planted: {dict(causes)}")
    return wrong


def run(folder, count):
    """Plants single violations, a burst and five minutes of them. Returns complaints."""
    path, requirements = os.path.join(folder, "plan.json"), os.path.join(folder, "requirements.yaml")
    kept, domain = os.path.join(folder, "incidents"), service.free_domain()
    causes, chains, last = plan(count)
    service.write_plan(path, last, causes, chains)
    service.write_requirements(requirements)
    say(f"it takes {last // SLOTS_PER_S} s")
    monitor = service.Monitor(folder, [
        requirements, "--incidents", kept, "--domain", str(domain), "--recording", "16M", "--window", "10s",
        "--after", f"{AFTER_S}s", "--before", "5s", "--saves-per-hour", "10000"], watchdog_s=30)
    application = None
    try:
        monitor.watches()
        application = service.start_application(service.ros_python(), os.path.join(folder, "application"), path, domain)
        application.wait(last / SLOTS_PER_S + 120)
        monitor.watches()
    finally:
        status = monitor.end()
        if application:
            service.end_application(application)
    wrong = judge(folder, kept)
    if monitor.starts != 1 or status != 0:
        wrong.append(f"the monitor was started {monitor.starts} times, ended with {[*monitor.ends, status]}")
    return wrong
