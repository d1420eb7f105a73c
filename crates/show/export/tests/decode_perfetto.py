"""Prints a Perfetto trace as JSON lines, decoded by the format's own generated classes. Exits with 77 without them."""
import json
import sys

try:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
except ImportError as error:
    print(error)
    sys.exit(77)

trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

names, annotations = {}, {}
for packet in trace.packet:
    if packet.sequence_flags & 1:
        names, annotations = {}, {}
    for entry in packet.interned_data.event_names:
        names[entry.iid] = entry.name
    for entry in packet.interned_data.debug_annotation_names:
        annotations[entry.iid] = entry.name
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        line = {"track": track.uuid, "parent": track.parent_uuid, "name": track.name}
        if track.HasField("process"):
            line |= {"pid": track.process.pid, "name": track.process.process_name}
        if track.HasField("thread"):
            line |= {"pid": track.thread.pid, "tid": track.thread.tid, "name": track.thread.thread_name}
        if track.HasField("counter"):
            line |= {"unit": track.counter.unit}
    else:
        event = packet.track_event
        line = {"at": packet.timestamp, "type": TrackEvent.Type.Name(event.type), "on": event.track_uuid}
        if event.name_iid:
            line["name"] = names[event.name_iid]
        if event.flow_ids:
            line["flows"] = list(event.flow_ids)
        if event.HasField("counter_value"):
            line["value"] = event.counter_value
        for note in event.debug_annotations:
            line.setdefault("details", {})[annotations[note.name_iid]] = note.string_value or note.int_value
    print(json.dumps(line))
