"""The scene of the demo: a parking lot with cars, a drive through it, and simulated lidars.

It replaces a car, its sensors and its surroundings. The nodes that process the scans do not use it.
"""

import math
from dataclasses import dataclass

import numpy as np

# The lot: a lane along x with a row of parking slots on either side, walls around.
SLOT_WIDTH = 2.6
LANE_HALF_WIDTH = 3.5
CAR_LENGTH, CAR_WIDTH = 4.4, 1.8
WALLS = (-32.0, 18.0, -11.0, 11.0)  # x from, x to, y from, y to
TARGET_SLOT_X = 6.5
TURN_RADIUS = 5.5
MAX_RANGE = 60.0


def boxes(seed=1):
    """Axis-aligned boxes of the scene, as rows of (x0, y0, z0, x1, y1, z1)."""
    rng = np.random.default_rng(seed)
    found = []
    x0, x1, y0, y1 = WALLS
    thick = 0.3
    for wall in ((x0 - thick, y0, x0, y1), (x1, y0, x1 + thick, y1),
                 (x0, y0 - thick, x1, y0), (x0, y1, x1, y1 + thick)):
        found.append((wall[0], wall[1], 0.0, wall[2], wall[3], 3.0))
    for side in (-1, 1):
        for slot in np.arange(x0 + 2.5, x1 - 2.5, SLOT_WIDTH):
            if side == 1 and abs(slot - TARGET_SLOT_X) < SLOT_WIDTH * 0.9:
                continue  # free for us
            if rng.random() < 0.25:
                continue  # a free slot
            length = CAR_LENGTH * rng.uniform(0.85, 1.1)
            near = side * (LANE_HALF_WIDTH + 0.5 + rng.uniform(0, 0.6))
            far = near + side * length
            dx = rng.uniform(-0.2, 0.2)
            low, high = min(near, far), max(near, far)
            half = CAR_WIDTH / 2 * rng.uniform(0.95, 1.1)
            body = rng.uniform(0.75, 0.95)
            found.append((slot + dx - half, low, 0.2, slot + dx + half, high, body))
            # The cabin sits on the middle of the body.
            found.append((slot + dx - half * 0.9, low + length * 0.25, body, slot + dx + half * 0.9,
                          high - length * 0.25, body + rng.uniform(0.5, 0.9)))
    for x in np.arange(x0 + 6, x1, 10.0):  # pillars beside the lane
        for y in (-LANE_HALF_WIDTH - 0.2, LANE_HALF_WIDTH + 0.2):
            if abs(x - TARGET_SLOT_X) > SLOT_WIDTH * 2:
                found.append((x - 0.2, y - 0.2, 0.0, x + 0.2, y + 0.2, 3.0))
    return np.array(found)


@dataclass
class Pose:
    """Position in metres and heading in radians."""

    x: float
    y: float
    yaw: float

    def matrix(self):
        """As a 4x4 transform from the car's frame (on the ground, mid axle) into the map's."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return np.array([[c, -s, 0, self.x], [s, c, 0, self.y], [0, 0, 1, 0], [0, 0, 0, 1.0]])


class Drive:
    """Drive in, turn into the slot, stay, and drive back out the same way."""

    START_X = -24.0
    IN_SLOT = 2.0

    def __init__(self, duration):
        self.duration = duration
        self.straight = TARGET_SLOT_X - TURN_RADIUS - self.START_X
        self.arc = TURN_RADIUS * math.pi / 2
        self.length = self.straight + self.arc + self.IN_SLOT

    def at_distance(self, s):
        """Pose after `s` metres of the way in."""
        if s <= self.straight:
            return Pose(self.START_X + s, -1.0, 0.0)
        s -= self.straight
        if s <= self.arc:
            angle = s / TURN_RADIUS
            return Pose(TARGET_SLOT_X - TURN_RADIUS + TURN_RADIUS * math.sin(angle),
                        -1.0 + TURN_RADIUS * (1 - math.cos(angle)), angle)
        return Pose(TARGET_SLOT_X, -1.0 + TURN_RADIUS + s - self.arc, math.pi / 2)

    def distance(self, t):
        """Metres from the start at time `t`: they grow, stay, and shrink again."""
        part = min(max(t / self.duration, 0.0), 1.0)
        if part > 0.5:
            part = 1.0 - part
        progress = min(max((part - 0.05) / 0.40, 0.0), 1.0)
        return self.length * (progress - math.sin(2 * math.pi * progress) / (2 * math.pi))

    def pose(self, t):
        """Pose `t` seconds after the start."""
        return self.at_distance(self.distance(t))


@dataclass
class Mount:
    """Where a lidar sits on the car."""

    x: float
    z: float
    yaw: float

    def matrix(self):
        """Transform from the lidar's frame into the car's."""
        transform = Pose(self.x, 0.0, self.yaw).matrix()
        transform[2, 3] = self.z
        return transform


MOUNTS = {"front": Mount(2.0, 1.1, 0.0), "rear": Mount(-2.0, 1.1, math.pi)}


class Lidar:
    """A scanner with 16 rings, 2 degrees apart, as a VLP-16 has."""

    def __init__(self, scene, columns, noise=0.02, seed=0):
        self.scene = np.asarray(scene, dtype=np.float32)
        self.noise, self.rng = noise, np.random.default_rng(seed)
        self.azimuth = np.linspace(-np.pi, np.pi, columns, endpoint=False, dtype=np.float32)
        self.elevation = np.radians(np.arange(-15, 16, 2)).astype(np.float32)

    def scan(self, sensor):
        """Points in the sensor's frame, (rings x columns, 4): x, y, z, intensity; NaN: no echo."""
        origin = sensor[:3, 3]
        yaw = math.atan2(sensor[1, 0], sensor[0, 0])
        cos_e, tan_e = np.cos(self.elevation), np.tan(self.elevation)
        # All surfaces are upright or level, so distances are found in the plane, per column.
        ground = np.full((16, len(self.azimuth)), np.inf, dtype=np.float32)
        down = tan_e < 0
        ground[down] = (-origin[2] / tan_e[down])[:, None]
        best = ground
        world = self.azimuth + np.float32(yaw)
        dx, dy = np.cos(world), np.sin(world)
        with np.errstate(divide="ignore", invalid="ignore"):
            for x0, y0, z0, x1, y1, z1 in self.scene:
                corners = np.arctan2([y0 - origin[1], y0 - origin[1], y1 - origin[1], y1 - origin[1]],
                                     [x0 - origin[0], x1 - origin[0], x0 - origin[0], x1 - origin[0]])
                centre = math.atan2((y0 + y1) / 2 - origin[1], (x0 + x1) / 2 - origin[0])
                spread = np.abs((corners - centre + np.pi) % (2 * np.pi) - np.pi).max() + 0.02
                off = np.abs((world - centre + np.pi) % (2 * np.pi) - np.pi)
                columns = np.nonzero(off <= spread)[0]
                if len(columns) == 0:
                    continue
                cx, cy = dx[columns], dy[columns]
                tx0, tx1 = (x0 - origin[0]) / cx, (x1 - origin[0]) / cx
                ty0, ty1 = (y0 - origin[1]) / cy, (y1 - origin[1]) / cy
                enter = np.maximum(np.minimum(tx0, tx1), np.minimum(ty0, ty1))
                leave = np.minimum(np.maximum(tx0, tx1), np.maximum(ty0, ty1))
                hit = (enter < leave) & (enter > 0)
                columns, enter, leave = columns[hit], enter[hit], leave[hit]
                if len(columns) == 0:
                    continue
                # The side, or the top where the ray comes in above and goes down onto it.
                height = origin[2] + enter * tan_e[:, None]
                side = np.where((height >= z0) & (height <= z1), enter, np.inf)
                top = (z1 - origin[2]) / tan_e[:, None]
                top = np.where((height > z1) & (top > enter) & (top < leave), top, np.inf)
                best[:, columns] = np.minimum(best[:, columns], np.minimum(side, top))
        distance = best + self.rng.normal(0, self.noise, best.shape).astype(np.float32)
        distance[best / cos_e[:, None] > MAX_RANGE] = np.nan
        points = np.empty(best.shape + (4,), dtype=np.float32)
        points[..., 0] = distance * np.cos(self.azimuth)
        points[..., 1] = distance * np.sin(self.azimuth)
        points[..., 2] = distance * tan_e[:, None]
        points[..., 3] = 100.0 / (1.0 + distance)
        return points.reshape(-1, 4)


def survey(scene, step=1.0):
    """A map of the scene, merged from scans along the path: (n, 3) in the map's frame."""
    drive, lidar = Drive(1.0), Lidar(scene, 720, noise=0.01, seed=99)
    clouds = []
    for s in np.arange(0.0, drive.length, step):
        for mount in MOUNTS.values():
            sensor = drive.at_distance(s).matrix() @ mount.matrix()
            points = lidar.scan(sensor)[:, :3]
            points = points[np.isfinite(points).all(axis=1)]
            points = points[np.linalg.norm(points[:, :2], axis=1) < 25.0]
            clouds.append(points @ sensor[:3, :3].T + sensor[:3, 3])
    return np.concatenate(clouds)
