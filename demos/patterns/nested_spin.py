#!/usr/bin/env python3
"""A callback that spins an executor of its own until a service answers, as behaviour trees do."""

import rclpy
from parts import connected, hearer, server
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String
from std_srvs.srv import SetBool


def main():
    """planner's timer asks /plan by way of its helper, and then publishes /path, which viewer and
    the helper hear: the helper only while the planner spins it, one round later."""
    program = Program(__doc__)
    plan = program.callback("planner", "timer(200ms)",
                            outputs=["path", "plan/request"])
    serve = program.callback("server", f"service({program.name('plan')})",
                             suffix=f"@{program.name('helper')}", outputs=["plan/response"])
    client = program.callback("helper", f"client({program.name('plan')})")
    see = program.callback("helper", f"subscription({program.name('path')})")
    view = program.callback("viewer", f"subscription({program.name('path')})")
    program.edge(plan, serve, "plan/request")
    program.edge(serve, client, "plan/response")
    program.edge(client, plan)
    program.edge(plan, see, "path")
    program.edge(plan, view, "path")
    program.chain(plan, serve, client)
    program.chain(plan, see)
    latencies = program.chain(plan, view)

    def planner():
        rclpy.init()
        node, helper = program.node("planner"), program.node("helper")
        to_path = node.create_publisher(String, "path", 1)
        to_plan = helper.create_client(SetBool, "plan")
        inner, executor = SingleThreadedExecutor(), SingleThreadedExecutor()
        inner.add_node(helper)
        executor.add_node(node)

        def on_path(_):
            with see.execution() as run:
                run.burn(4)

        def on_timer():
            with plan.execution() as run:
                run.burn(2)
                future = to_plan.call_async(SetBool.Request())
                inner.spin_until_future_complete(future)
                run.burn(3)
                to_path.publish(String(data=str(run.start_ns)))

        helper.create_subscription(String, "path", on_path, 1)
        connected(program, lambda: to_path.get_subscription_count() > 1
                  and to_plan.service_is_ready())
        program.run(executor, node.create_timer(0.2, on_timer))

    program.apart(planner, server(program, serve, "plan", 5),
                  hearer(program, "viewer", view, "path", latencies))
    program.print_truth()


if __name__ == "__main__":
    main()
