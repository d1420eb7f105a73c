// A server of the dashboard's interface whose session has ten million launches, none of which is
// stored: each follows from its number. The timeline is measured (frames.mjs) and tried without a
// program on it.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

export const LAUNCHES = 10_000_000;
const RANKS = 4;
const STREAMS = 2;
/** From one launch of a stream to the next. */
const PERIOD = 12_000;
const EACH = LAUNCHES / (RANKS * STREAMS);
export const END = EACH * PERIOD;
const KERNELS = ['gemm_128x64', 'softmax', 'layernorm_forward', 'elementwise_add', 'attention_fused', 'reduce_sum', 'cast_bf16', 'ncclDevKernel_AllReduce'];
/** Launches of a column that its sums are taken from. */
const SAMPLED = 48;

const hash = (value) => {
  let x = Math.imul(value ^ (value >>> 16), 0x45d9f3b) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x45d9f3b) >>> 0;
  return (x ^ (x >>> 16)) >>> 0;
};

/**
 * The `i`-th event of a lane: kernels on streams, calls on threads. Phases of a second have
 * different loads.
 */
function event(lane, i) {
  const h = hash(i * 31 + lane.process * 7 + lane.id.charCodeAt(1));
  const begins = i * PERIOD;
  const busy = 0.35 + 0.5 * (hash(Math.floor(begins / 1e9)) / 2 ** 32);
  if (lane.kind === 'thread') return { start: begins + 500, end: begins + 2500 + (h % 2000), use: i % 40 === 0 ? 'synchronising' : 'launching', name: 8, collective: null };
  const kernel = i % 64 === 63 ? 7 : h % 7;
  const start = begins + 4000 + (h % 1000);
  const collective = kernel === 7 ? [0, Math.floor(i / 64)] : null;
  return { start, end: start + Math.round((2000 + (h % 5000)) * busy), use: kernel === 7 ? 'collectives' : 'kernels', name: kernel, collective };
}

const lanes = Array.from({ length: RANKS }, (_, process) => {
  const of = (id, kind, name) => ({ id: `${id}${process}`, kind, process, device: 'NVIDIA H200', device_uuid: null, name, start_ns: 0, end_ns: END, count: EACH });
  return [of('d', 'device', 'NVIDIA H200'), ...Array.from({ length: STREAMS }, (_, at) => of(`${'sx'[at]}`, 'stream', `stream ${7 + at}`)), of('t', 'thread', `python (${4711 + process})`)];
}).flat();

/** Time of a lane's column by use, from some of its events. */
function sums(lane, from, columnNs) {
  const [first, last] = [Math.max(0, Math.floor(from / PERIOD) - 1), Math.min(EACH - 1, Math.ceil((from + columnNs) / PERIOD))];
  const time = {};
  const step = Math.max(1, (last - first + 1) / SAMPLED);
  for (let i = first; i <= last; i += step) {
    const { start, end, use, name } = event(lane, Math.floor(i));
    const inside = Math.max(0, Math.min(end, from + columnNs) - Math.max(start, from)) * step;
    time[use] = (time[use] ?? 0) + inside;
    if (inside > 0) time[`kernel ${name}`] = (time[`kernel ${name}`] ?? 0) + inside;
  }
  if (lane.kind === 'device') time.host_code = Math.max(0, columnNs - (time.kernels ?? 0) - (time.collectives ?? 0));
  return time;
}

const names = Object.fromEntries([...KERNELS, 'cuLaunchKernel'].map((name, key) => [key, name]));

/** A time in which nothing happens. */
let gap = [0, 0];
const isInGap = (ns) => ns >= gap[0] && ns < gap[1];

function data(lane, from, columnNs, count, most) {
  const [first, last] = [Math.max(0, Math.floor(from / PERIOD) - 1), Math.min(EACH - 1, Math.ceil((from + columnNs * count) / PERIOD))];
  if (lane.kind !== 'device' && last - first < most) {
    const all = Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => event(lane, first + at)).filter(({ start }) => !isInGap(start));
    const of = (read) => all.map(read);
    const events = { start_ns: of((one) => one.start), end_ns: of((one) => one.end), use: of((one) => one.use), name: of((one) => one.name), basis: of((one) => (lane.kind === 'thread' || one.start % 9 === 0 ? 'measured' : 'modelled')), collective: of((one) => one.collective) };
    return { ...lane, columns: null, events };
  }
  const columns = Array.from({ length: count }, (_, at) => (from + at * columnNs < END && !isInGap(from + at * columnNs) ? sums(lane, from + at * columnNs, columnNs) : {}));
  const uses = [...new Set(columns.flatMap(Object.keys))].filter((use) => !use.startsWith('kernel '));
  const time = Object.fromEntries(uses.map((use) => [use, columns.map((column) => Math.min(columnNs, Math.round(column[use] ?? 0)))]));
  const tops = columns.map((column) => KERNELS.map((_, key) => [column[`kernel ${key}`] ?? 0, key]).sort(([a], [b]) => b - a)[0]);
  return { ...lane, columns: { time, top: tops.map(([, key]) => key), top_ns: tops.map(([ns]) => ns) }, events: null };
}

/** Where the steady state begins; 0 for none. */
let steady = 0;

function timeline(query) {
  const number = (name, otherwise) => Number(query.get(name) ?? otherwise);
  const [from, to, most] = [number('from', 0), number('to', END), number('columns', 1000)];
  let columnNs = 1;
  const covered = () => Math.ceil(to / columnNs) - Math.floor(from / columnNs);
  while (covered() > most) columnNs *= 2;
  const [start, count] = [Math.floor(from / columnNs) * columnNs, covered()];
  const wanted = query.getAll('lane');
  const of = (lane) => (wanted.length === 0 || wanted.includes(lane.id) ? data(lane, start, columnNs, count, number('events', 2000)) : { ...lane, columns: null, events: null });
  return {
    schema: 'apex.timeline/1', apex_version: '0', state: 'ready', progress: null, message: null, growing: false, version: '1',
    start_ns: 0, end_ns: END, from_ns: start, to_ns: start + columnNs * count, column_ns: columnNs, column_count: count,
    processes: Array.from({ length: RANKS }, (_, rank) => ({ pid: 4711 + rank, rank, name: 'python', start_ns: 0 })),
    phases: steady > 0 ? [{ process: 0, kind: 'steady', start_ns: steady }] : [], names, lanes: lanes.map(of),
  };
}

function launch(query) {
  const lane = lanes.find((lane) => lane.id === query.get('lane')) ?? lanes[1];
  const step = { next: 1, previous: -1 }[query.get('step')] ?? 0;
  const at = Number(query.get('at'));
  const i = isInGap(at) ? (step > 0 ? Math.ceil(gap[1] / PERIOD) : Math.floor(gap[0] / PERIOD) - 1) : Math.floor(at / PERIOD) + step;
  const { start, end, use, name, collective } = event(lane, Math.max(0, i));
  const ranks = collective ? lanes.filter((other) => other.id[0] === lane.id[0] && other !== lane).map((other) => ({ rank: other.process, pid: 4711 + other.process, lane: other.id, start_ns: event(other, i).start, duration_ns: event(other, i).end - event(other, i).start })) : [];
  return {
    lane: lane.id, use, name: names[name], full_name: `void ${names[name]}<float>(float const*, float*)`,
    start_ns: { value: start, kind: 'predicted', low: null, high: null }, duration_ns: { value: end - start, kind: 'measured', low: null, high: null }, bytes: null,
    call: { name: 'cuLaunchKernel', lane: `t${lane.process}`, pid: 4711, rank: lane.process, thread: 4711, start_ns: start - 3000, duration_ns: 2000, return_to_work_ns: 1000 },
    kernel: {
      symbol: names[name], operation: 'unknown', grid: [128, 1, 1], block: [256, 1, 1], cluster: null, dynamic_shared_bytes: 0, static_shared_bytes: 16384, registers: 64,
      occupancy: 0.5, limiters: ['registers'], waves: 1.2, launches: EACH, timed: { samples: 40, mean_ns: 4000, p10_ns: 2000, median_ns: 4000, p90_ns: 6000, longest_ns: 7000 },
      prediction: { duration_ns: { value: 3900, kind: 'predicted', low: 3000, high: 5000 } },
    },
    stack: { of_this_launch: false, frames: [{ function: 'forward', file: 'model.py', line: 12 }] }, range: 'step / forward',
    collective: collective && { group: collective[0], ordinal: collective[1], ranks },
  };
}

function span(query) {
  const [from, to] = [Number(query.get('from')), Number(query.get('to'))];
  const of = lanes.filter((lane) => query.getAll('lane').includes(lane.id)).map((lane) => {
    const all = sums(lane, from, to - from);
    const time = Object.fromEntries(Object.entries(all).filter(([use]) => !use.startsWith('kernel ')).map(([use, ns]) => [use, Math.round(ns)]));
    return { lane: lane.id, time, count: Math.round((to - from) / PERIOD), top: [] };
  });
  return { schema: 'apex.timeline.span/1', state: 'ready', message: null, version: '1', from_ns: from, to_ns: to, names: {}, lanes: of };
}

const spread = { count: 0, total_ns: 0, mean_ns: 0, p10_ns: 0, median_ns: 0, p90_ns: 0, max_ns: 0 };
const page = {
  schema: 'apex.page/1', apex_version: '0',
  session: { name: 'synthetic', command: 'python train.py', folder: null, started_ns: null, wall_ns: END, on_cpu_device: false, timing: null, problems: [] },
  verdict: ['A synthetic session of ten million launches.'], notes: [],
  key: { gpu_busy: null, launches: LAUNCHES, saving_of_job: null, overhead_share: null, lost_records: 0, step_ns: null, step: null, step_launches: null },
  accounts: { of: 'run', steps: null, span_ns: 0, entries: [] }, devices: { list: [], left_out: 0 },
  flows: [],
  advice: { findings: [], clear: [], unjudged: [], rules: 0 },
  kernels: { list: [], left_out: { kernels: 0, launches: 0, gpu_time_ns: 0 }, gpu_time_ns: null, unpredicted: [] },
  places: { root: { name: 'program', kind: 'other', gpu_time_ns: 0, launches: 0 }, samples: 0, list: [], left_out: 0 },
  ranges: { list: [], left_out: 0 }, memory: { kinds: [], over_time: [], over_time_left_out: 0, copies: [], calls: [{ name: 'cuLaunchKernel', count: LAUNCHES, failed: 0, bytes: 0, cpu: spread }], calls_left_out: 0, streams: [], streams_left_out: 0 }, fast: [],
  machine: { devices: [], host: null, processes: [], processes_left_out: 0, recorder: { records: LAUNCHES, timings: 0, recording_ns: 0, timing_ns: 0, dropped: 0, overwritten: 0 } },
};

/**
 * Starts the server. While `session.building`, it says that the session is being read; while
 * `session.growing`, the end grows with each answer about all of it. In `gap`, nothing happens; the
 * steady state begins at `steady`; the list of sessions comes `sessionsAfter` ms late.
 */
export async function serve({ building = false, ...more } = {}) {
  ({ gap = [0, 0], steady = 0 } = more);
  const session = { building, growing: false, end: END, requests: [] };
  const built = readFileSync(new URL('../../built/page.html', import.meta.url), 'utf8').replace(/(Content-Security-Policy" content="[^"]*)"/, `$1; connect-src 'self'"`);
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://localhost');
    const json = (of) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(of));
    if (pathname === '/') return response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(built);
    if (pathname.endsWith('/sessions')) return setTimeout(json, more.sessionsAfter ?? 0, { sessions: [{ id: 's', name: 'synthetic', folder: '/s', command: 'python train.py', started_ns: null, ended_ns: null }] });
    if (pathname.endsWith('/events')) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`event: condition\ndata: {"state":"ended","running":[],"message":null}\n\n`);
      return response.write(`event: document\ndata: ${JSON.stringify(page)}\n\n`);
    }
    if (pathname.endsWith('/timeline')) {
      session.requests.push(searchParams);
      if (session.building) return json({ ...timeline(searchParams), state: 'building', progress: 0.25, lanes: [] });
      if (session.growing && !searchParams.has('from')) session.end += 1e9;
      return json({ ...timeline(searchParams), growing: session.growing, end_ns: session.end, version: String(session.end) });
    }
    if (pathname.endsWith('/launch')) return json({ schema: 'apex.timeline.launch/1', state: 'ready', message: null, version: '1', event: launch(searchParams) });
    if (pathname.endsWith('/span')) return json(span(searchParams));
    response.writeHead(204).end();
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { session, address: `http://127.0.0.1:${server.address().port}/`, end: () => server.closeAllConnections() ?? server.close() };
}
