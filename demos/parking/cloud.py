"""sensor_msgs/PointCloud2 to numpy and back, with as few copies as possible."""

import array

import numpy as np
from sensor_msgs.msg import PointCloud2, PointField

FIELDS = [
    PointField(name=name, offset=4 * i, datatype=PointField.FLOAT32, count=1)
    for i, name in enumerate(("x", "y", "z", "intensity"))
]


def to_numpy(msg):
    """The points of a message as (n, 4): x, y, z, intensity. Read-only."""
    return np.frombuffer(msg.data, dtype=np.float32).reshape(-1, 4)


def to_message(points, header):
    """A message with these points; header.stamp and header.frame_id are taken over."""
    msg = PointCloud2(header=header, height=1, width=len(points), fields=FIELDS,
                      is_bigendian=False, point_step=16, row_step=16 * len(points), is_dense=True)
    # The setter takes an array.array as it is, but checks anything else item by item.
    data = array.array("B")
    data.frombytes(np.ascontiguousarray(points, dtype=np.float32).tobytes())
    msg.data = data
    return msg


def stamp_ns(msg):
    """A message's time stamp in nanoseconds."""
    return msg.header.stamp.sec * 10**9 + msg.header.stamp.nanosec
