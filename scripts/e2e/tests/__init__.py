"""The tests, a module for each subject; importing them registers them in this order."""

from tests import (observe, btf, preload, zoo, patterns, events, own_loop, actions, late, flow, dds, link,
                   shaper, shape, shape_inside, gate, container, faults, interrupted, replay, replay_sized, replay_can,
                   replay_parking, replay_compare, replay_remote, replay_requests, replay_rosbags, diff, qos, influence,
                   modes, hosts, engines, advise, why, why_lost, why_planted, why_shaped, top, monitor, imported, python_api)

__all__ = ["observe", "btf", "preload", "zoo", "patterns", "events", "own_loop", "actions", "late", "flow",
           "dds", "link", "shaper", "shape", "shape_inside", "gate", "container", "faults", "interrupted", "replay",
           "replay_sized", "replay_can", "replay_parking", "replay_compare", "replay_remote", "replay_requests",
           "replay_rosbags", "diff", "qos", "influence", "modes", "hosts", "engines", "advise", "why", "why_lost",
           "why_planted", "why_shaped", "top", "monitor", "imported", "python_api"]
