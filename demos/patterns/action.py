#!/usr/bin/env python3
"""An action of rclpy: a client that sends a goal every 600 ms, a server that executes it."""

import time

import rclpy
from action_type import Text, Walk
from pattern import Program
from rclpy.action import ActionClient, ActionServer, GoalResponse
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import Header


def main(executor=SingleThreadedExecutor, description=__doc__):
    """asker's timer -> goal -> walker -> answer, feedback, result -> asker."""
    program = Program(description)
    rclpy.init()
    walker, asker, witness = (program.node(n) for n in ("walker", "asker", "witness"))
    send_goal, get_result, feedback_topic = (f"walk/_action/{p}" for p in
                                             ("send_goal", "get_result", "feedback"))
    client_of, service_of = (lambda p: f"client({program.name(p)})",
                             lambda p: f"service({program.name(p)})")
    caller = f"@{program.name('asker')}"
    # The state's publications depend on what is overwritten: not in the truth.
    status = "walk/_action/status"
    timer = program.callback("asker", "timer(600ms)", outputs=[f"{send_goal}/request"])
    goal = program.callback("walker", service_of(send_goal), suffix=caller,
                            outputs=[f"{send_goal}/response", status])
    task = program.callback("walker", f"task({program.name('walk')})",
                            outputs=[feedback_topic, status, f"{get_result}/response"])
    answer = program.callback("asker", client_of(send_goal), outputs=[f"{get_result}/request"])
    asked = program.callback("walker", service_of(get_result), suffix=caller)
    feedback = program.callback("asker", f"subscription({program.name(feedback_topic)})")
    result = program.callback("asker", client_of(get_result), outputs=["done"])
    end = program.callback("witness", f"subscription({program.name('done')})")
    program.edge(timer, goal, f"{send_goal}/request")
    program.edge(goal, answer, f"{send_goal}/response")
    program.edge(goal, task)
    program.edge(answer, asked, f"{get_result}/request")
    program.edge(task, feedback, feedback_topic)
    program.edge(task, result, f"{get_result}/response")
    program.edge(result, end, "done")
    program.chain(timer, goal, answer, asked)
    program.chain(timer, goal, task, feedback)
    program.chain(timer, goal, task, result, end)
    times = []  # from goal to result, ns

    def on_goal(_):
        with goal.execution() as run:
            run.burn(4)
        return GoalResponse.ACCEPT

    def execute(handle):
        with task.execution() as run:
            run.burn(4)
            handle.publish_feedback(Text("half"))
            time.sleep(0.005)
            run.burn(4)
            handle.succeed()
            return Text("done")

    server = ActionServer(walker, Walk, "walk", execute, goal_callback=on_goal)
    client = ActionClient(asker, Walk, "walk")

    done = asker.create_publisher(Header, "done", 10)

    def on_done(_):
        with end.execution() as run:
            run.burn(4)

    witness.create_subscription(Header, "done", on_done, 10)

    def on_feedback(_):
        with feedback.execution() as run:
            run.burn(4)

    def send():
        with timer.execution() as run:
            run.burn(4)
        begun = time.monotonic_ns()

        def on_result(_):
            times.append(time.monotonic_ns() - begun)
            with result.execution() as run:
                run.burn(4)
                done.publish(Header())

        def on_answer(future):
            with answer.execution() as run:
                run.burn(4)
                future.result().get_result_async().add_done_callback(on_result)

        sent = client.send_goal_async(Text("go"), feedback_callback=on_feedback)
        sent.add_done_callback(on_answer)

    # Rare enough that goals do not overlap: whose result is whose could not be told then.
    executor = executor()
    for node in (walker, asker, witness):
        executor.add_node(node)
    program.wait_for(client.server_is_ready)
    program.run(executor, asker.create_timer(0.6, send))
    program.more = {
        "action": {"name": program.name("walk"), "servers": [program.name("walker")],
                   "clients": [program.name("asker")], "goals": len(goal.executions),
                   "results": len(times), "feedback": len(feedback.executions)},
        "goal_to_result_ns": times,
    }
    program.print_truth()
    server.destroy()


if __name__ == "__main__":
    main()
