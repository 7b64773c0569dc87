"""`onbeat why --lost`: the causes of planted losses, compared with the application's own counts."""

import json
import os

from harness import load
from registry import expect, test

APPLICATIONS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOSSY = os.path.join(APPLICATIONS, "lossy.py")
OVERFLOWING = os.path.join(APPLICATIONS, "overflowing.py")
SECONDS = 14
SLOW = "/eater:timer(400ms)"
READER = "/reader:subscription(/overflowing/map)"
RIGHT = "/joiner:subscription(/lossy/right)"


def count(topic, kind):
    """The items of a topic that were lost in one way."""
    return sum(cause["count"] for cause in topic["causes"] if cause["kind"] == kind)


def scans(topic, truth):
    """Complaints about the history that overflows."""
    wrong = []
    if topic["executed"] != truth["scans"]:
        wrong.append(f"/lossy/scan: {truth['scans']} were executed, found {topic['executed']}")
    found = count(topic, "overwritten")
    if found != truth["missing"]:
        wrong.append(f"/lossy/scan: {truth['missing']} are missing between others, found {found} overwritten")
    said = [c for c in topic["causes"] if c["kind"] == "overwritten"]
    blamed = sum(m["count"] for c in said for m in c["meanwhile"] if m.get("by", {}).get("callback") == SLOW)
    if not said or said[0]["depth"] != 1:
        wrong.append(f"/lossy/scan: the depth is 1, found {said}")
    if blamed < 0.9 * found or found < 50:
        wrong.append(f"/lossy/scan: {blamed} of {found} are blamed on {SLOW}")
    return wrong


@test
def why_names_the_cause_of_each_lost_item_and_request(harness):
    """Items lost in a history, by QoS and by a synchroniser, and requests without a response have their causes."""
    path = harness.new_file("why-lost.truth.json")
    trace = harness.record("why-lost", [harness.python("kilted"), LOSSY, str(SECONDS), path])
    truth = load(path)
    lost = json.loads(harness.onbeat("why", trace, "--lost", "--json"))
    topics = {(t["topic"], t["to"]): t for t in lost["topics"]}
    by_name = {topic: t for (topic, to), t in topics.items() if ":sync(" not in to}
    wrong = scans(by_name["/lossy/scan"], truth)
    refused = by_name["/lossy/refused"]
    causes = [(c["kind"], c.get("setting")) for c in refused["causes"]]
    if truth["refused"] or refused["executed"] or causes != [("refused", "reliability")] or refused["published"] < 100:
        wrong.append(f"/lossy/refused: {truth['refused']} were executed, found {refused}")
    joins = [t for (topic, to), t in topics.items() if topic == "/lossy/left" and ":sync(" in to]
    if len(joins) != 1:
        wrong.append(f"/lossy/left: {len(joins)} synchronisers")
    for join in joins:
        of = [truth["joined"], truth["passed"]]
        lacks = {c.get("lacks") for c in join["causes"]}
        if [join["executed"], count(join, "passed_over")] != of or lacks != {RIGHT}:
            wrong.append(f"/lossy/left: {of} were joined and passed over, found {join}")
    echo = [s for s in lost["services"] if s["service"] == "/lossy/echo"]
    kinds = {k["kind"]: k["count"] for s in echo for k in s["kinds"]}
    without = truth["asked"] // 3
    open_ones = kinds.get("recording_ended", 0)
    if not without - open_ones <= kinds.get("no_response", 0) <= without or without < 3:
        wrong.append(f"/lossy/echo: {without} of {truth['asked']} requests got no response, found {kinds}")
    harness.figures.append(f"{truth['missing']} of {truth['scans'] + truth['missing']} scans overwritten, requests {kinds}")
    expect(wrong)


def repeated(harness, trace, truth):
    """Complaints about the maps, whose dropped datagrams the middleware sends again."""
    why = json.loads(harness.onbeat("why", trace, "--callback", READER, "--all", "--json"))
    wrong, named = [], 0
    for execution in why["executions"]:
        sums = {}
        for stretch in execution["stretches"]:
            cause = (stretch["kind"], "socket" in stretch.get("by", {}))
            sums[cause] = sums.get(cause, 0) + stretch["ns"]
        named += max(sums, key=sums.get) == ("transport", True)
    late = sum(e["late"] for e in why["executions"])
    harness.figures.append(f"{named} of {len(why['executions'])} maps are late because of a full socket")
    if not len(truth["maps"]) - 1 <= why["count"] <= len(truth["maps"]) + 1 or why["count"] < 5:
        wrong.append(f"{len(truth['maps'])} maps were read, found {why['count']}")
    if named < 0.8 * why["count"]:
        wrong.append(f"a full socket is the first cause of {named} of {why['count']} maps")
    if late != 1:
        wrong.append(f"{late} of {why['count']} maps are late, although one of up to 20 is")
    return wrong


@test
def why_names_a_full_socket_as_the_cause_of_lost_and_repeated_items(harness):
    """Items of 4 MB overflow the receive buffer of a socket: losses and late items have this cause, with its port."""
    path = harness.new_file("why-socket.truth.json")
    trace = harness.record("why-socket", [harness.python("kilted"), OVERFLOWING, "10", path])
    truth = load(path)
    lost = json.loads(harness.onbeat("why", trace, "--lost", "/overflowing/image", "--json"))
    image, = lost["topics"]
    got = truth["got"]
    missing = got[-1] - got[0] + 1 - len(got)
    found = count(image, "socket")
    harness.figures.append(f"{found} of {missing} lost images were dropped at a socket; "
                           f"the kernel dropped {truth['dropped']} datagrams")
    wrong = []
    if missing < 20 or not truth["dropped"]:
        wrong.append(f"only {missing} images were lost, and the kernel dropped {truth['dropped']} datagrams")
    if image["executed"] != len(got):
        wrong.append(f"{len(got)} images were executed, found {image['executed']}")
    # The recorder must find the process of the socket first.
    if not 0.9 * missing <= found <= missing + 5:
        wrong.append(f"{missing} images were dropped at a socket, found {image['causes']}")
    ports = {cause.get("port") for cause in image["causes"] if cause["kind"] == "socket"}
    if len(ports) != 1 or not min(ports) > 1024:
        wrong.append(f"the socket has the ports {ports}")
    expect(wrong + repeated(harness, trace, truth))
