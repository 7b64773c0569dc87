#!/usr/bin/env python3
"""A program's first thread that publishes, as a script does, beside a thread that spins."""

import threading
import time

import rclpy
from parts import connected, hearer
from pattern import Program
from rclpy.executors import ExternalShutdownException
from std_msgs.msg import String


def main():
    """driver's first thread publishes /scan, which reader takes; another thread runs a timer."""
    program = Program(__doc__)
    drive = program.callback("driver", f"thread({program.name('scan')})", outputs=["scan"])
    beat = program.callback("driver", "timer(150ms)")
    read = program.callback("reader", f"subscription({program.name('scan')})")
    program.edge(drive, read, "scan")
    program.chain(drive, read)
    program.chain(beat)

    def driver():
        rclpy.init()
        node = program.node("driver")
        to_scan = node.create_publisher(String, "scan", 10)

        def on_beat():
            with beat.execution() as run:
                run.burn(4)

        def spin():
            try:
                rclpy.spin(node)
            except ExternalShutdownException:
                pass

        node.create_timer(0.15, on_beat)
        spinning = threading.Thread(target=spin)
        spinning.start()
        connected(program, lambda: to_scan.get_subscription_count() > 0)
        program.all_connected()
        over = program.end_of(program.duration)
        while not over.done():
            time.sleep(0.2)
            with drive.execution() as run:
                run.burn(5)
                to_scan.publish(String(data=str(run.start_ns)))
        time.sleep(0.5)
        program.over[program.part] = 1
        time.sleep(1)
        rclpy.shutdown()
        spinning.join()

    program.apart(driver, hearer(program, "reader", read, "scan", []))
    program.print_truth()


if __name__ == "__main__":
    main()
