"""Reads a CTF trace into one dictionary per event, as tracetools_read does."""

import sys

import bt2


def plain(value):
    """Returns a field's value without bt2's wrapper."""
    if isinstance(value, bt2._ArrayFieldConst):
        return [int(v) for v in value]
    return str(value) if isinstance(value, bt2._StringFieldConst) else int(value)


def to_dict(message):
    """Returns name, time stamp, context and payload of an event."""
    event = message.event
    result = {"_name": event.name, "_timestamp": message.default_clock_snapshot.ns_from_origin}
    for part in (event.common_context_field, event.payload_field):
        if part is not None:
            result.update((name, plain(value)) for name, value in part.items())
    return result


def main():
    """Prints the number of events."""
    messages = bt2.TraceCollectionMessageIterator(sys.argv[1])
    events = [to_dict(m) for m in messages if type(m) is bt2._EventMessageConst]
    print(len(events), "events")


main()
