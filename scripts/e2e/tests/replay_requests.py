"""Requests of services and actions, recorded by service introspection, are sent again by `replay --requests`.

The recording is written here from serialised service events, so that the truth is known. The servers are rclpy's.
"""

import json
import os
import subprocess

from harness import ONBEAT, ROOT
from registry import TIMED_TEST, need, test
from tests.replay import WATCHDOG_S, compare, mcap, ros_variables, times

COUNT = 60
# Prints for each event: the topic, the number of its time, the serialised event, and the hash of its request. The hash is that of
# all fields, because padding between them is any bytes.
# Arguments: namespace, number of requests. Strings and doubles give the requests' fields all alignments.
EVENTS = """
import hashlib, sys
from rclpy.serialization import serialize_message
from action_msgs.srv import CancelGoal
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import DescribeParameters, GetParameterTypes, SetParameters
from std_srvs.srv import SetBool, Trigger
namespace, count = sys.argv[1], int(sys.argv[2])
SENT, RECEIVED, ANSWERED, GOT = range(4)
def put(service, time, kind, event, **parts):
    event.info.event_type, event.info.sequence_number = kind, time
    for name, value in parts.items():
        setattr(event, name, [value])
    digest = hashlib.sha1(repr(parts["request"]).encode()).hexdigest() if "request" in parts else "-"
    print(f"{namespace}/{service}/_service_event", time, serialize_message(event).hex(), digest)
goal = lambda n: f"{n:032x}"
for n in range(count):
    name = "silent" if n == 7 else "n" * (n % 9)
    value = ParameterValue(type=3, double_value=n / 7, integer_value=-n, string_value="x" * (n % 5))
    request = SetParameters.Request(parameters=[Parameter(name=name, value=value)] * (1 + n % 3))
    put("set", n, SENT, SetParameters.Event(), request=request)
    put("set", n, RECEIVED, SetParameters.Event(), request=request)
    put("set", n, ANSWERED, SetParameters.Event(), response=SetParameters.Response())
    # Only the client recorded contents.
    put("bool", n, SENT, SetBool.Event(), request=SetBool.Request(data=n % 3 == 0))
    put("bool", n, RECEIVED, SetBool.Event())
    if n % 10 == 0:
        put("nobody", n, RECEIVED, Trigger.Event(), request=Trigger.Request())
        put("walk/_action/send_goal", n, RECEIVED, GetParameterTypes.Event(),
            request=GetParameterTypes.Request(names=[goal(n), f"walk {n}"]))
    if n % 10 == 1:
        put("walk/_action/get_result", n, RECEIVED, DescribeParameters.Event(),
            request=DescribeParameters.Request(names=[goal(n - 1)]))
    if n == 32:
        cancel = CancelGoal.Request()
        cancel.goal_info.goal_id.uuid = list(bytes.fromhex(goal(30)))
        put("walk/_action/cancel_goal", n, RECEIVED, CancelGoal.Event(), request=cancel)
put("set", count, RECEIVED, SetParameters.Event())
"""
# Serves the services and the action; prints "ready", then a line for each request.
SERVER = """
import hashlib, sys, rclpy
from action_type import Text, Walk
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.qos import QoSProfile
from rclpy.task import Future
from rcl_interfaces.srv import SetParameters
from std_srvs.srv import SetBool
namespace = sys.argv[1]
rclpy.init()
node = rclpy.create_node("under_test", namespace=namespace)
def show(*words):
    print(*words, flush=True)
def take(service):
    async def answer(request, response):
        show(service, hashlib.sha1(repr(request).encode()).hexdigest())
        if service == "set" and request.parameters[0].name == "silent":
            await Future()
        return response
    return answer
qos, group = QoSProfile(depth=1000), ReentrantCallbackGroup()
services = [node.create_service(kind, name, take(name), qos_profile=qos, callback_group=group)
            for name, kind in (("set", SetParameters), ("bool", SetBool))]
cancelled = set()
def accept(goal):
    return GoalResponse.ACCEPT
def cancel(handle):
    show("cancel", bytes(handle.goal_id.uuid).hex())
    cancelled.add(bytes(handle.goal_id.uuid).hex())
    return CancelResponse.ACCEPT
async def execute(handle):
    name = bytes(handle.goal_id.uuid).hex()
    show("goal", name, handle.request.text)
    # The cancelled goal ends with its cancellation, all others at once.
    if handle.request.text == "walk 30":
        while name not in cancelled:
            waiting = Future()
            timer = node.create_timer(0.01, lambda: waiting.set_result(None))
            await waiting
            timer.destroy()
        handle.canceled()
    else:
        handle.succeed()
    show("done", name)
    return Text(name)
server = ActionServer(node, Walk, "walk", execute, goal_callback=accept, cancel_callback=cancel,
                      callback_group=group)
show("ready")
rclpy.spin(node)
"""


def lines(command, **options):
    """The lines that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S, check=False, **options)
    need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout.splitlines()


def recording(harness, path):
    """Writes the recording. Returns the hashes of the requests of each service, in their order."""
    topics, items, requests = [], [], {}
    clock = list(times(COUNT + 2, 0.03))
    for line in lines([harness.python("kilted"), "-c", EVENTS, harness.namespace, str(COUNT)]):
        topic, number, event, digest = line.split()
        if topic not in topics:
            topics.append(topic)
        items.append((clock[int(number)], topics.index(topic), bytes.fromhex(event)))
        side = items[-1][2][4]
        service = topic[len(harness.namespace) + 1:].removesuffix("/_service_event")
        if digest != "-" and side == (0 if service == "bool" else 1):
            requests.setdefault(service, []).append(digest)
    damaged = items[0][2]
    # Two requests in one event, and an event that ends within its head.
    items.append((clock[-1], 0, damaged[:44] + b"\2" + damaged[45:]))
    items.append((clock[-1], 0, damaged[:30]))
    # What the server published is not published once more.
    topics.append(f"{harness.namespace}/walk/_action/status")
    items.append((clock[-1], len(topics) - 1, b"\0\1\0\0\0\0\0\0"))
    kinds = {"set": "rcl_interfaces/srv/SetParameters", "bool": "std_srvs/srv/SetBool", "nobody": "std_srvs/srv/Trigger",
             "walk/_action/send_goal": "rcl_interfaces/srv/GetParameterTypes",
             "walk/_action/get_result": "rcl_interfaces/srv/DescribeParameters",
             "walk/_action/cancel_goal": "action_msgs/srv/CancelGoal"}
    types = {f"{harness.namespace}/{name}/_service_event": kind + "_Event" for name, kind in kinds.items()}
    types[topics[-1]] = "action_msgs/msg/GoalStatusArray"
    mcap(path, items, topics, others=types)
    return requests


@test(places=TIMED_TEST)
def replay_sends_each_recorded_request_once_to_its_server(harness):
    """Requests of two services and an action reach rclpy's servers once, in order, with their bytes; all are counted"""
    path, report = harness.file("requests.mcap"), harness.new_file("requests.json")
    sent = recording(harness, path)
    variables = ros_variables(harness, "kilted")
    server = subprocess.Popen([harness.python("kilted"), "-c", SERVER, harness.namespace], stdout=subprocess.PIPE,
                              text=True, env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "demos/patterns")))
    try:
        need(server.stdout.readline().strip() == "ready", "the servers did not start")
        plan = json.loads("".join(lines([ONBEAT, "replay", path, "--plan", "--json"])))
        done = subprocess.run([ONBEAT, "replay", path, "--requests", "--wait", "6s", "--report", report],
                              capture_output=True, text=True, timeout=WATCHDOG_S, check=False, env=variables)
        need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr}")
    finally:
        server.kill()
        server.wait()
    got = [line.split() for line in server.stdout]
    for service in ("set", "bool"):
        compare(service, [words[1] for words in got if words[0] == service], sent[service])
    goals = [f"{n:032x}" for n in range(0, COUNT, 10)]
    compare("goals", [words[1] for words in got if words[0] == "goal"], goals)
    compare("cancelled goals", [words[1] for words in got if words[0] == "cancel"], [f"{30:032x}"])
    with open(report, encoding="utf-8") as file:
        seen = json.load(file)
    figures = {f["service"].removeprefix(harness.namespace + "/"): f for f in seen["requests"]}
    counts = {name: [f[key] for key in ("sent", "answered", "unanswered", "without_server", "without_contents",
                                        "damaged", "additional_responses")] for name, f in figures.items()}
    goals = len(goals)
    need(counts == {"set": [COUNT, COUNT - 1, 1, 0, 1, 2, 0], "bool": [COUNT, COUNT, 0, 0, 0, 0, 0],
                    "nobody": [0, 0, 0, goals, 0, 0, 0], "walk/_action/send_goal": [goals, goals, 0, 0, 0, 0, 0],
                    "walk/_action/get_result": [goals, goals, 0, 0, 0, 0, 0],
                    "walk/_action/cancel_goal": [1, 1, 0, 0, 0, 0, 0]}, f"counted: {counts}")
    need(seen["items"]["lost"] == seen["items"]["not_played"] == 0, f"{seen['items']}")
    need("/nobody has no server within" in done.stderr, f"nothing on the server that is not there: {done.stderr}")
    need(any("/walk/_action/status" in said for said in seen["damage"]), f"{seen['damage']}")
    playable = {f["service"].removeprefix(harness.namespace + "/"): f["by_server"] for f in plan["recording"]["requests"]}
    need(playable["set"] == COUNT and playable["bool"] == 0, f"the plan has {playable}")
    p50 = figures["set"]["response_ns"]["p50"]
    harness.figures.append(f"{sum(f['sent'] for f in figures.values())} requests, response p50 {p50 / 1e6:.1f} ms")
