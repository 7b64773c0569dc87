#!/usr/bin/env python3
"""A camera and a lidar, joined by approximate time as message_filters for C++ does.

The nearest camera image is found only when the next one comes: the callback that publishes is not
that of the image that is used. (message_filters for Python publishes at once, and is not installed
everywhere: a few lines here do what the C++ one does for these two inputs.)
"""

import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String


class Approximate:
    """Joins each cloud with the image whose stamp is nearest, once a later image has come."""

    def __init__(self, publish):
        self.publish, self.images, self.cloud = publish, [], None

    def add_image(self, stamp):
        """An image came, which may settle what goes with the cloud."""
        self.images.append(stamp)
        if self.cloud is not None and stamp > self.cloud and len(self.images) > 1:
            best = min(self.images, key=lambda image: abs(image - self.cloud))
            self.publish(best, self.cloud)
            self.images = [image for image in self.images if image > best]
            self.cloud = None

    def add_cloud(self, stamp):
        """A cloud came. It waits."""
        self.cloud = stamp


def main():
    """camera -> /image, lidar -> /cloud, both -> fusion -> /fused -> listener."""
    program = Program(__doc__.splitlines()[0])
    rclpy.init()
    camera, lidar, fusion, listener = (
        program.node(n) for n in ("camera", "lidar", "fusion", "listener"))
    shoot = program.callback("camera", "timer(33ms)", outputs=["image"])
    scan = program.callback("lidar", "timer(99ms)", outputs=["cloud"])
    image = program.callback("fusion", f"subscription({program.name('image')})")
    cloud = program.callback("fusion", f"subscription({program.name('cloud')})")
    sync = program.callback("fusion", f"sync({program.name('fused')})", outputs=["fused"])
    listen = program.callback("listener", f"subscription({program.name('fused')})")
    program.edge(shoot, image, "image")
    program.edge(scan, cloud, "cloud")
    program.edge(image, sync, "image")
    program.edge(cloud, sync, "cloud")
    program.edge(sync, listen, "fused")
    program.junction("and", sync, image, cloud)
    from_image = program.chain(shoot, image, sync, listen)
    from_cloud = program.chain(scan, cloud, sync, listen)

    to_image = camera.create_publisher(String, "image", 10)
    to_cloud = lidar.create_publisher(String, "cloud", 10)
    to_fused = fusion.create_publisher(String, "fused", 10)
    joined = Approximate(lambda a, b: to_fused.publish(String(data=f"{a} {b}")))

    def sensor(callback, publisher):
        def on_timer():
            with callback.execution() as run:
                run.burn(2)
                publisher.publish(String(data=str(run.start_ns)))
        return on_timer

    def taken(callback, add):
        def on_message(message):
            with callback.execution() as run:
                run.burn(2)
                add(int(message.data))
        return on_message

    def on_fused(message):
        with listen.execution() as run:
            run.burn(2)
            now = time.monotonic_ns()
            for latencies, stamp in zip((from_image, from_cloud), message.data.split()):
                latencies.append(now - int(stamp))

    fusion.create_subscription(String, "image", taken(image, joined.add_image), 10)
    fusion.create_subscription(String, "cloud", taken(cloud, joined.add_cloud), 10)
    listener.create_subscription(String, "fused", on_fused, 10)
    executor = SingleThreadedExecutor()
    for node in (camera, lidar, fusion, listener):
        executor.add_node(node)
    program.wait_for(lambda: all(p.get_subscription_count() > 0
                                 for p in (to_image, to_cloud, to_fused)))
    shooting = camera.create_timer(0.033, sensor(shoot, to_image))
    # A few ms after an image, and far from the next one.
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        executor.spin_once(timeout_sec=0.002)
    scanning = lidar.create_timer(0.099, sensor(scan, to_cloud))
    program.run(executor, shooting, scanning)
    program.print_truth()


if __name__ == "__main__":
    main()
