#!/usr/bin/env python3
"""Threads of one's own: a driver that publishes, a worker that gets its work through a queue, and a
thread that only computes, so that Python's lock goes from thread to thread in the middle of it all."""

import queue
import threading
import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String


def main():
    """driver's thread -> /scan -> worker -> (queue) -> worker's thread -> /worked -> ears."""
    program = Program(__doc__)
    rclpy.init()
    driver, worker, ears = (program.node(n) for n in ("driver", "worker", "ears"))
    drive = program.callback("driver", f"thread({program.name('scan')})", outputs=["scan"])
    scan = program.callback("worker", f"subscription({program.name('scan')})")
    work = program.callback("worker", f"thread({program.name('worked')})", outputs=["worked"])
    hear = program.callback("ears", f"subscription({program.name('worked')})")
    program.edge(drive, scan, "scan")
    program.edge(scan, work)
    program.edge(work, hear, "worked")
    program.chain(drive, scan, work, hear)

    to_scan = driver.create_publisher(String, "scan", 10)
    to_worked = worker.create_publisher(String, "worked", 10)
    todo, over = queue.Queue(), threading.Event()

    def on_scan(_message):
        with scan.execution() as run:
            run.burn(5)
            todo.put(run.start_ns)

    def on_worked(_message):
        with hear.execution() as run:
            run.burn(4)

    def driving():
        while not over.wait(0.2):
            with drive.execution() as run:
                run.burn(5)
                to_scan.publish(String(data="scan"))

    def working():
        while (item := todo.get()) is not None:
            with work.execution() as run:
                run.burn(6)
                to_worked.publish(String(data=str(item)))

    def computing():
        # Computes nothing for anybody; it wants Python's lock while the others work.
        while not over.wait(0.09):
            until = time.thread_time_ns() + 1_000_000
            while time.thread_time_ns() < until:
                pass

    worker.create_subscription(String, "scan", on_scan, 10)
    ears.create_subscription(String, "worked", on_worked, 10)
    executor = SingleThreadedExecutor()
    for node in (driver, worker, ears):
        executor.add_node(node)
    program.wait_for(lambda: to_scan.get_subscription_count() > 0
                     and to_worked.get_subscription_count() > 0)
    threads = [threading.Thread(target=t) for t in (driving, working, computing)]
    for thread in threads:
        thread.start()
    program.run(executor, quiet=0)
    over.set()
    threads[0].join()
    program.duration = 0.5
    program.run(executor, quiet=0)
    todo.put(None)
    for thread in threads[1:]:
        thread.join()
    program.print_truth()


if __name__ == "__main__":
    main()
