// The timeline's parts that draw nothing: views, axis, rows, tiles, pixels. `node timeline.mjs`
// exits with status 1 and says what is wrong.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

const root = fileURLToPath(new URL('..', import.meta.url));
const load = async (name) => (await runnerImport(`./src/${name}.ts`, { root, configFile: false, logLevel: 'error' })).module;
const [viewport, { axis, precise }, rows, tiles, { missing }, { Raster, colour, isLight, mixed }, { commandOf }, { groupsOf }, { matcher, nearest }] = await Promise.all(
  ['viewport', 'axis', 'rows', 'tiles', 'loader', 'raster', 'keys', 'model', 'search'].map((name) => load(`timeline/${name}`)),
);
const [{ isEmpty, nearestWork }, { rangeName, rangeText }, { gpu, ordinal }] = await Promise.all(['timeline/work', 'ranges', 'devices'].map(load));

/** The same numbers each time. */
let seed = 1;
const random = (below) => {
  seed = (Math.imul(seed, 48271) & 0x7fffffff) >>> 0;
  return seed % below;
};
const near = (a, b, off) => assert.ok(Math.abs(a - b) <= off, `${a}, not ${b}`);

const tests = {
  'a view never leaves the session, and zooming keeps what lies under the pointer'() {
    const whole = { from: 1000, to: 1e9 };
    for (let round = 0; round < 2000; round++) {
      const from = random(1e9);
      const view = viewport.within({ from, to: from + 1 + random(1e8) }, whole);
      assert.ok(view.from >= whole.from && view.to <= whole.to && view.to - view.from >= viewport.SHORTEST);
      const [factor, at] = [[0.5, 0.9, 1.1, 3][random(4)], random(1000) / 1000];
      const next = viewport.zoomed(view, factor, at, whole);
      assert.ok(next.from >= whole.from && next.to <= whole.to);
      const fixed = view.from + at * (view.to - view.from);
      const isInside = next.from > whole.from && next.to < whole.to;
      if (isInside) near(next.from + at * (next.to - next.from), fixed, 1e-3);
      const moved = viewport.panned(view, random(100) / 50 - 1, whole);
      near(moved.to - moved.from, view.to - view.from, 1e-3);
    }
    assert.deepEqual(viewport.zoomed({ from: 1000, to: 1e9 }, 2, 0.5, whole), whole, 'no more than all is shown');
    assert.deepEqual(viewport.within({ from: 0, to: 10 }, { from: 0, to: 50 }), { from: 0, to: viewport.SHORTEST }, 'a session of no length');
    assert.deepEqual(viewport.reaching({ from: 5000, to: 6000 }, 5500, whole), { from: 5000, to: 6000 }, 'what is seen does not move');
    assert.deepEqual(viewport.reaching({ from: 5000, to: 6000 }, 9000, whole), { from: 8500, to: 9500 });
  },
  'spans are written into the address and read again'() {
    assert.deepEqual(viewport.spanOf(viewport.spanText({ from: 12.4, to: 99.6 })), { from: 12, to: 100 });
    for (const text of ['', '5', '5-', '7-5', '-1-5', '1e3-2e3', '5-5', `1-${'9'.repeat(40)}`]) assert.equal(viewport.spanOf(text), null, text);
  },
  'marks are round times in one unit, as many as fit'() {
    const texts = (from, to, most) => axis({ from, to }, most).marks.map(({ text }) => text.replace('\u00a0', ' '));
    assert.deepEqual(texts(0, 1e9, 5), ['0.0 s', '0.2 s', '0.4 s', '0.6 s', '0.8 s', '1.0 s']);
    assert.deepEqual(texts(0, 1500, 4), ['0.0 µs', '0.5 µs', '1.0 µs', '1.5 µs']);
    assert.deepEqual(texts(2e6, 2.5e6, 5), ['2.0 ms', '2.1 ms', '2.2 ms', '2.3 ms', '2.4 ms', '2.5 ms']);
    const deep = axis({ from: 3_600_000_001_200, to: 3_600_000_002_200 }, 5);
    assert.equal(deep.base, 3_600_000_000_000);
    assert.equal(deep.baseText, '3,600.000\u00a0s');
    assert.deepEqual(deep.marks.map(({ text }) => text), ['+1.2', '+1.4', '+1.6', '+1.8', '+2.0', '+2.2'].map((text) => `${text}\u00a0µs`));
    for (let round = 0; round < 2000; round++) {
      const from = random(2 ** 30) * (1 + random(4000));
      const to = from + 200 + random(2 ** 30) * random(1000);
      const { marks, base } = axis({ from, to }, 8);
      assert.ok(marks.length <= 9 && marks.length >= 2, `${marks.length} marks from ${from} to ${to}`);
      assert.ok(marks.every(({ ns }) => ns >= from && ns <= to) && base <= from);
      assert.equal(new Set(marks.map(({ text }) => text.split('\u00a0')[1])).size, 1, 'one unit');
      assert.equal(new Set(marks.map(({ text }) => text)).size, marks.length, 'marks differ');
    }
    assert.equal(precise(1_234_567_891), '1.234567891\u00a0s');
    assert.equal(precise(0), '0\u00a0s');
  },
  'the steady state is shown at first, or where work is, unless that is most of the session'() {
    const whole = { from: 0, to: 10_000 };
    const work = [{ from: 5000, to: 6000 }, { from: 5500, to: 8000 }];
    assert.deepEqual(viewport.opening(whole, [7000, 6000], work), { from: 5960, to: 8040 });
    assert.deepEqual(viewport.opening(whole, [], work), { from: 4940, to: 8060 });
    for (const [steady, of] of [[[], [{ from: 2000, to: 9500 }]], [[], []], [[8000], work], [[9000], work]]) {
      assert.equal(viewport.opening(whole, steady, of), whole, JSON.stringify([steady, of]));
    }
    for (let round = 0; round < 1000; round++) {
      const at = () => random(10_000);
      const view = viewport.opening(whole, [at()], [{ from: at(), to: at() }, { from: at(), to: at() }]);
      assert.ok(view.from >= 0 && view.to <= 10_000 && view.to > view.from);
    }
  },
  'an empty view is known, and what is nearest in one that is not'() {
    const store = new tiles.Tiles();
    const view = { from: 0, to: 512 };
    const of = (lane, events, layers = []) => store.put({ level: 0, index: 0 }, { lane, from: 0, columnNs: 1, layers, found: null, events, search: '', version: '1' });
    of('a', { start: [100, 300], end: [110, 300], collective: [] });
    of('b', null, [{ use: 'kernels', shares: Uint8Array.from({ length: 512 }, (_, at) => Number(at === 200)) }]);
    const near = (lanes, at, span = view) => nearestWork(store, lanes, span, 512, at);
    assert.deepEqual([near(['a'], 0), near(['a'], 105), near(['a'], 250), near(['a', 'b'], 250)], [100, 105, 300, 201]);
    const gap = { from: 120, to: 190 };
    assert.deepEqual([near(['a', 'b'], 150, gap), isEmpty(store, ['a', 'b'], gap, 70)], [null, true]);
    assert.deepEqual([isEmpty(store, ['a', 'b'], view, 512), isEmpty(store, ['b'], { from: 0, to: 150 }, 150)], [false, true]);
    assert.deepEqual([near(['unknown'], 5), isEmpty(store, ['unknown'], view, 512)], [undefined, false], 'without tiles nothing is known');
  },
  'encoded names of ranges are readable, others stay'() {
    const named = (raw) => Object.values(rangeName(raw));
    assert.deepEqual(named('XlaModule:#prefix=jit(multiply)/mul,hlo_module=jit_multiply,program_id=21856#'), ['jit_multiply', 'XlaModule, jit(multiply)/mul']);
    assert.deepEqual(named('Thunk:#name=jit(dot)(a,b),hlo_op=gemm_fusion,unique_hlo_op_id=429#'), ['gemm_fusion', 'Thunk, jit(dot)(a,b)']);
    assert.deepEqual(named('Thunk:#name=,hlo_op=copy.1#'), ['copy.1', 'Thunk']);
    assert.deepEqual(named('Step#step_num=7,_r=1#'), ['Step', 'step_num=7, _r=1']);
    for (const raw of ['forward', 'a #1', 'step #3 of 4', '', '##']) assert.ok(rangeText(raw).length >= raw.length || raw === '##', raw);
    assert.deepEqual(named('forward'), ['forward', '']);
    assert.equal(rangeName('x'.repeat(5000)).name.length, 120);
  },
  'GPUs have the ordinals of the program, and ranks where those are alike'() {
    const of = (ordinals, ranks = ordinals.map((_, at) => at)) => ({
      machine: { devices: ordinals.map((ordinal, at) => ({ ordinal, uuid: `GPU-0000000${at}-aa` })) },
      devices: { list: ranks.map((rank, device) => ({ rank, device, pid: 9 - rank })) },
    });
    // (Rank 1 was seen first: the index of its GPU is 0.)
    assert.deepEqual([0, 1, null].map((at) => gpu(of([1, 0], [1, 0]), at)), ['GPU 1', 'GPU 0', 'an unknown GPU']);
    assert.deepEqual([0, 1].map((at) => gpu(of([0, 0], [1, 0]), at)), ['GPU 0 of rank 1', 'GPU 0 of rank 0']);
    assert.deepEqual([0, 1].map((at) => gpu(of([0, 0], [null, null]), at)), ['GPU 0 (GPU-00000000…)', 'GPU 0 (GPU-00000001…)']);
    assert.equal(ordinal(of([null]), 0), 'GPU-00000000', 'processes call it differently');
  },
  'rows stand below each other, and are found by their height'() {
    const lane = (id, kind, process) => ({ id, kind, process, name: id });
    const answer = {
      processes: [{ pid: 5, rank: 0, name: 'python' }, { pid: 6, rank: 1, name: 'python' }, { pid: 7, rank: null, name: 'idle' }],
      lanes: [lane('d0', 'device', 0), lane('s1', 'stream', 0), lane('t2', 'thread', 0), lane('d3', 'device', 1), lane('s4', 'stream', 1)],
    };
    const groups = groupsOf(answer);
    assert.deepEqual(groups.map(({ name }) => name), ['rank 0, python (5)', 'rank 1, python (6)'], 'a process without lanes has no group');
    const turned = { processes: answer.processes.slice(0, 2).reverse(), lanes: answer.lanes.map((lane) => ({ ...lane, process: 1 - lane.process })) };
    assert.deepEqual(groupsOf(turned, ({ id }) => `GPU ${id}`).map(({ id, name, lanes }) => [id, name, lanes[0].name]), [['1', 'rank 0, python (5)', 'GPU d0'], ['0', 'rank 1, python (6)', 'GPU d3']], 'ranks have one order');
    const shown = (text) => rows.rowsOf(groups, rows.openGroups(text, groups));
    const ids = (text) => shown(text).map((row) => row.lane?.id ?? row.group.id);
    assert.deepEqual(ids(''), ['0', 'd0', 's1', 't2', '1', 'd3', 's4'], 'few groups are open');
    assert.deepEqual(ids('none'), ['0', 'd0', '1', 'd3'], 'a closed group shows its device');
    assert.deepEqual(ids(rows.openText(new Set(['1']))), ['0', 'd0', '1', 'd3', 's4']);
    const all = shown('');
    for (let y = 0; y < rows.heightOf(all); y++) {
      const row = rows.rowAt(all, y);
      assert.ok(y >= row.top && y < row.top + row.height);
    }
    assert.equal(rows.rowAt(all, rows.heightOf(all)), null);
    assert.equal(rows.rowAt(all, -1), null);
    for (const [top, bottom] of [[0, 1], [30, 100], [all[2].top, all[3].top]]) {
      const wanted = all.filter((row) => row.top + row.height > top && row.top < bottom);
      assert.deepEqual(rows.rowsBetween(all, top, bottom), wanted);
    }
  },
  'an event is found at a time: the innermost, or the nearest'() {
    const times = { start: [0, 10, 100, 300], end: [50, 20, 200, 300] };
    const at = (time, slack = 0) => rows.eventAt(times, time, slack);
    assert.deepEqual([at(5), at(15), at(30), at(60), at(150), at(250)], [0, 1, 0, -1, 2, -1]);
    assert.deepEqual([at(97, 3), at(96, 3), at(301, 2), at(-2, 2)], [2, -1, 3, 0]);
    assert.equal(rows.eventAt({ start: [], end: [] }, 5, 100), -1);
  },
  'tiles of a level cover a view without overlap'() {
    for (let round = 0; round < 1000; round++) {
      const from = random(2 ** 30);
      const view = { from, to: from + 200 + random(2 ** 30) };
      const width = 100 + random(3000);
      const level = tiles.levelOf(view, width);
      const pixel = (view.to - view.from) / width;
      assert.ok(tiles.columnOf(level) >= pixel * 0.999 && (level === 0 || tiles.columnOf(level) < 2.001 * pixel));
      const spans = tiles.places(view, level).map(tiles.spanOfPlace);
      assert.ok(spans[0].from <= view.from && spans.at(-1).to >= view.to);
      spans.slice(1).forEach((span, at) => assert.equal(span.from, spans[at].to));
      assert.ok(spans.length <= width / tiles.COLUMNS + 2);
    }
    assert.ok(tiles.tileNs(tiles.wholeLevel(1e12)) >= 1e12 && tiles.tileNs(tiles.wholeLevel(1e12) - 1) < 1e12);
  },
  'until a tile is there, others are drawn in its place; the store is bounded'() {
    const store = new tiles.Tiles(20);
    store.whole = 10;
    const tile = (lane, place, search = '') => store.put(place, { lane, from: 0, columnNs: 1, layers: [], found: null, events: null, search, version: '1' });
    const place = (level, index) => ({ level, index });
    assert.deepEqual(store.content('a', place(3, 5)), []);
    tile('a', place(10, 0));
    assert.deepEqual(store.content('a', place(3, 5)).map(({ range }) => range), [tiles.spanOfPlace(place(3, 5))], 'a part of the whole');
    tile('a', place(2, 10));
    assert.equal(store.content('a', place(3, 5)).length, 1, 'half of the finer tiles are not enough');
    tile('a', place(2, 11));
    assert.deepEqual(store.content('a', place(3, 5)).map(({ range }) => range), [place(2, 10), place(2, 11)].map(tiles.spanOfPlace));
    tile('a', place(3, 5));
    assert.equal(store.content('a', place(3, 5))[0].range.from, tiles.spanOfPlace(place(3, 5)).from);
    assert.ok(store.has('a', place(3, 5), '', '1') && !store.has('a', place(3, 5), 'gemm', '1') && !store.has('a', place(3, 5), '', '2'));
    for (let index = 0; index < 200; index++) {
      store.content('a', place(3, 5));
      tile('a', place(4, index));
    }
    assert.equal(store.size, 20);
    assert.ok(store.get('a', place(10, 0)), 'the whole session stays');
    assert.ok(store.get('a', place(3, 5)), 'what is drawn stays');
    assert.equal(store.get('a', place(2, 10)), undefined);
  },
  'what a view lacks is asked for, lanes together'() {
    const store = new tiles.Tiles();
    const view = { from: 0, to: 1024 };
    const wanted = { view, width: 512, lanes: ['a', 'b'], search: '', version: '1' };
    const asked = missing(store, wanted);
    assert.deepEqual(asked.map(({ place, lanes }) => [place.level, place.index, lanes]), [[1, 0, ['a', 'b']], [1, 1, ['a', 'b']]], 'what is shown, then what lies beside');
    store.put(asked[0].place, { lane: 'a', search: '', version: '1' });
    assert.deepEqual(missing(store, wanted)[0].lanes, ['b']);
    assert.equal(new Set(missing(store, { ...wanted, lanes: Array.from({ length: 150 }, (_, at) => `${at}`) }).map(({ key }) => key)).size, 6, '64 lanes at most in a request');
  },
  'an answer becomes shares in a fixed order'() {
    const lane = { id: 's', columns: { time: { copies: [0, 50], kernels: [100, 1] }, top: [3, 4], top_ns: [25, 1] }, events: null };
    const tile = tiles.tileOf({ from_ns: 0, column_ns: 100, names: { 3: 'gemm', 4: 'add' }, version: '1' }, lane, ['kernels', 'copies'], 'gemm');
    assert.deepEqual(tile.layers.map(({ use, shares }) => [use, [...shares]]), [['kernels', [255, 3]], ['copies', [0, 128]]]);
    assert.deepEqual([...tile.found], [64, 0]);
    const events = { start_ns: [5], end_ns: [9], use: ['kernels'], name: [3], basis: ['modelled'], collective: [[0, 17]] };
    const deep = tiles.tileOf({ from_ns: 0, column_ns: 1, names: { 3: 'gemm' }, version: '1' }, { id: 's', columns: null, events }, [], 'ge*');
    assert.deepEqual([deep.events.name, deep.events.found, deep.events.basis, deep.events.collective], [['gemm'], [true], ['modelled'], ['0/17']]);
  },
  'a search means a part of a name, a pattern, or a whole name'() {
    const found = (search) => ['gemm', 'gemm_f32', 'sgemm', 'Softmax'].filter(matcher(search));
    assert.deepEqual(found('gemm'), ['gemm', 'gemm_f32', 'sgemm']);
    assert.deepEqual(found('gemm*'), ['gemm', 'gemm_f32']);
    assert.deepEqual(found('*m*f*2'), ['gemm_f32']);
    assert.deepEqual(found('"gemm"'), ['gemm']);
    assert.deepEqual(found('SOFT'), ['Softmax']);
    assert.deepEqual([found(''), found('g*gemm')], [[], []]);
    const tile = { lane: 's', from: 1000, columnNs: 100, found: Uint8Array.from([0, 9, 0, 9]), events: null };
    const events = { lane: 's', events: { start: [1105, 1500], end: [1110, 1600], found: [true, false] }, found: null };
    const at = (time, isNext) => nearest([tile, events, { ...tile, lane: 'other', from: 0 }], time, isNext, new Set(['s']))?.start;
    assert.deepEqual([at(0, true), at(1100, true), at(1105, true), at(1300, true)], [1105, 1105, 1300, undefined], 'a column with the event is the event');
    assert.deepEqual([at(2000, false), at(1300, false), at(1100, false)], [1300, 1105, undefined]);
  },
  'columns are stacked from the lower edge, events are at least a pixel wide'() {
    const [red, blue] = [colour(255, 0, 0), colour(0, 0, 255)];
    const raster = new Raster(10, 10, { from: 0, to: 100 });
    const layers = [{ shares: Uint8Array.from([255, 0, 127, 1]), colour: red }, { shares: Uint8Array.from([0, 0, 128, 0]), colour: blue }];
    raster.columns(0, 20, layers, { from: 0, to: 70 }, 0, 10);
    const column = (x) => Array.from({ length: 10 }, (_, y) => ({ [red]: 'r', [blue]: 'b', 0: '.' })[raster.pixels[y * 10 + x]]).join('');
    assert.deepEqual([0, 1, 2, 3, 4, 5].map(column), ['rrrrrrrrrr', 'rrrrrrrrrr', '..........', '..........', 'bbbbbrrrrr', 'bbbbbrrrrr']);
    assert.equal(column(6), '.........r', 'the least share is a row');
    assert.equal(column(7), '..........', 'the range ends');
    raster.clear(0);
    raster.event(33, 34, 2, 4, red);
    raster.event(500, 600, 0, 10, red);
    raster.event(-50, 5, 0, 10, blue);
    assert.equal([...raster.pixels].filter((pixel) => pixel === red).length, 2);
    const wide = new Raster(20, 1, { from: 0, to: 20 });
    wide.event(0, 10, 0, 1, red, true);
    wide.event(10, 20, 0, 1, red);
    assert.deepEqual([...wide.pixels].map((pixel) => pixel === red), Array.from({ length: 20 }, (_, at) => at < 19), 'parts of an event have no seam');
    assert.equal(column(0), '..........', 'less than half a pixel of it is seen');
    assert.equal(mixed(red, blue, 0), red);
    assert.equal(mixed(red, blue, 1), blue);
    assert.deepEqual([isLight(colour(255, 255, 255)), isLight(colour(20, 20, 20))], [true, false]);
  },
  'keys of the browser stay those of the browser'() {
    const key = (key, more = {}) => commandOf({ key, ctrlKey: false, metaKey: false, altKey: false, ...more });
    assert.deepEqual([key('a'), key('A'), key('Tab'), key('r', { ctrlKey: true }), key('+')?.[0]], [['pan', -0.15], ['pan', -0.15], null, null, 'zoom']);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    test();
  } catch (error) {
    failed++;
    console.error(`${name}: ${error.stack}`);
  }
}
console.log(`${Object.keys(tests).length - failed} of ${Object.keys(tests).length} hold`);
process.exit(failed > 0 ? 1 : 0);
