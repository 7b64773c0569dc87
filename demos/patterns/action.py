#!/usr/bin/env python3
"""An action of rclpy: a client that sends a goal every 100 ms, a server that executes it."""

import json
import time

import rclpy
from action_type import Text, Walk
from pattern import Program
from rclpy.action import ActionClient, ActionServer, GoalResponse
from rclpy.executors import SingleThreadedExecutor


def main():
    """asker's timer -> goal -> walker -> answer, feedback, result -> asker."""
    program = Program(__doc__)
    rclpy.init()
    walker, asker = program.node("walker"), program.node("asker")
    part = {p: program.name(f"walk/_action/{p}") for p in ("send_goal", "get_result", "feedback")}
    goal = program.callback("walker", f"service({part['send_goal']})",
                            suffix=f"@{program.name('asker')}")
    answer = program.callback("asker", f"client({part['send_goal']})")
    feedback = program.callback("asker", f"subscription({part['feedback']})")
    result = program.callback("asker", f"client({part['get_result']})")
    times = []  # from goal to result, ns

    def on_goal(_):
        with goal.execution() as run:
            run.burn(3)
        return GoalResponse.ACCEPT

    def execute(handle):
        handle.publish_feedback(Text("half"))
        time.sleep(0.005)
        handle.succeed()
        return Text("done")

    server = ActionServer(walker, Walk, "walk", execute, goal_callback=on_goal)
    client = ActionClient(asker, Walk, "walk")

    def on_feedback(_):
        with feedback.execution() as run:
            run.burn(2)

    def send():
        begun = time.monotonic_ns()

        def on_result(_):
            times.append(time.monotonic_ns() - begun)
            with result.execution() as run:
                run.burn(3)

        def on_answer(future):
            with answer.execution() as run:
                run.burn(2)
                future.result().get_result_async().add_done_callback(on_result)

        sent = client.send_goal_async(Text("go"), feedback_callback=on_feedback)
        sent.add_done_callback(on_answer)

    executor = SingleThreadedExecutor()
    executor.add_node(walker)
    executor.add_node(asker)
    program.wait_for(client.server_is_ready)
    program.run(executor, asker.create_timer(0.1, send))
    print(json.dumps({
        "callbacks": [c.truth() for c in program.callbacks],
        "action": {"name": program.name("walk"), "servers": [program.name("walker")],
                   "clients": [program.name("asker")], "goals": len(goal.executions),
                   "results": len(times), "feedback": len(feedback.executions)},
        "goal_to_result_ns": times,
    }), flush=True)
    server.destroy()


if __name__ == "__main__":
    main()
