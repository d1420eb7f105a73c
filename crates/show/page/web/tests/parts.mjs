// The parts of a kernel's page that draw nothing: waves, sliders, rooflines. `node parts.mjs` exits
// with status 1 and says what is wrong.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

const root = fileURLToPath(new URL('..', import.meta.url));
const load = async (name) => (await runnerImport(`./src/kernel/${name}.ts`, { root, configFile: false, logLevel: 'error' })).module;
const [waves, options, roofline, of] = await Promise.all(['waves', 'options', 'roofline', 'of'].map(load));

const sum = (list) => list.reduce((all, one) => all + one, 0);
const near = (a, b) => assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), `${a}, not ${b}`);
/** A grid in waves, as crate `occupancy` computes it. */
const grid = (blocks, each, sms) => ({
  full_waves: Math.floor(blocks / (each * sms)), tail_blocks: blocks % (each * sms), wave_blocks: each * sms, blocks_per_sm: each,
});
const kernel = (changes = {}) => ({
  id: 'a', name: 'f', short_name: 'f', device: 0, grid: [100, 1, 1], block: [256, 1, 1], registers: 40, static_shared_bytes: 1024,
  dynamic_shared_bytes: 0, prediction: null, ...changes,
});

const tests = {
  'the waves that are drawn hold all blocks of a grid': () => {
    for (const [blocks, each, sms] of [[1, 8, 132], [131, 1, 132], [132, 1, 132], [133, 1, 132], [5000, 8, 132], [924, 1, 132], [925, 1, 132], [7, 3, 2]]) {
      const rows = waves.rows(grid(blocks, each, sms), sms);
      assert.equal(sum(rows.map((row) => (row.last - row.first + 1) * sum(row.blocks))), blocks, `${blocks} blocks`);
      assert.ok(rows.length <= 7 && rows.filter((row) => row.summary).length <= 1);
      assert.ok(rows.every((row) => Math.max(...row.blocks) <= each));
      assert.ok(rows.every((row, at) => row.first === (rows[at - 1]?.last ?? 0) + 1), 'no wave is left out');
    }
    assert.deepEqual(waves.rows(grid(10, 0, 132), 132), [], 'what cannot run has no waves');
    assert.deepEqual(waves.rows(grid(10, 1, 0), 0), []);
  },
  'equal neighbours are one shape': () => {
    const row = { first: 1, last: 1, blocks: [2, 2, 1, 0], summary: false };
    assert.equal(waves.shape(row, 2), 'M0 100V0H2V100zM2 100V50H3V100z');
  },
  'sliders offer what a launch can have, and its own values': () => {
    assert.deepEqual(options.blocks(kernel({ block: [100, 1, 1] }), 160), [32, 64, 96, 100, 128, 160]);
    assert.deepEqual(options.blocks(kernel({ block: [48, 2, 1] }), 256), [96, 192]);
    assert.deepEqual(options.registers(33, 40), [16, 24, 32, 33, 40]);
    assert.deepEqual(options.shared(kernel(), 3 * 1024 + 1), [0, 1024, 2048]);
    assert.deepEqual(options.blockOf([16, 16, 1], 512), [16, 32, 1]);
    assert.equal(options.blockOf([48, 2, 1], 64), null);
  },
  'changes stand in the address, and nonsense there changes nothing': () => {
    const changed = options.changesOf(kernel(), 'block=512&registers=32&shared=2048');
    assert.deepEqual(changed, { block: [512, 1, 1], registers: 32, shared: 2048 });
    assert.equal(options.textOf(kernel(), changed), 'block=512&registers=32&shared=2048');
    assert.equal(String(options.queryOf(kernel({ block: [16, 16, 1] }), { block: [16, 8, 1], registers: 40, shared: 0 })), 'block=16%2C8%2C1');
    for (const text of ['', 'block=x&registers=-1&shared=1e3', 'other=5', 'block=256']) {
      assert.equal(options.textOf(kernel(), options.changesOf(kernel(), text)), '', text);
    }
  },
  'points lie below the roof that allows them': () => {
    const roofs = { warp_instructions: 1000, memory_bytes: 5000 };
    const duration_ns = { value: 100, low: 50, high: 200 };
    const work = { warp_instructions: 10_000, global_bytes: 1_000_000, assumed: false };
    const at = (prediction) => roofline.points([kernel({ prediction })], roofs);
    const [predicted] = at({ duration_ns, measured_ns: null, work });
    near(predicted.intensity, 0.01);
    assert.deepEqual([predicted.rate, predicted.low, predicted.high, predicted.isMeasured], [100, 50, 200, false]);
    near(predicted.share, 100 / 50);
    const [measured] = at({ duration_ns, measured_ns: { value: 1000 }, work });
    assert.deepEqual([measured.rate, measured.isMeasured], [10, true]);
    near(roofline.roofAt(roofs, 1), 1000);
    for (const lacking of [null, { duration_ns, measured_ns: null, work: null }, { duration_ns, measured_ns: null, work: { ...work, global_bytes: 0 } }]) {
      assert.deepEqual(at(lacking), []);
    }
    assert.deepEqual(roofline.decades([0.02, 30]), [-2, -1, 0, 1, 2]);
    assert.deepEqual(roofline.decades([1]), [0, 1]);
  },
  'a launch of the timeline is found among the kernels': () => {
    const list = [kernel(), kernel({ id: 'b', grid: [7, 1, 1] }), kernel({ id: 'c', short_name: 'g' }), kernel({ id: 'd', device: 1 })];
    const launch = { name: 'f', kernel: { grid: [7, 1, 1], block: [256, 1, 1], dynamic_shared_bytes: 0 } };
    assert.equal(of.kernelOf(list, launch).id, 'b');
    assert.equal(of.kernelOf(list, { ...launch, name: 'h' }), undefined);
    assert.equal(of.kernelOf(list, { name: 'copy', kernel: null }), undefined);
    assert.deepEqual(of.shapesOf(list, list[0]).map(({ id }) => id), ['a', 'b']);
  },
};

for (const [name, test] of Object.entries(tests)) {
  try {
    test();
  } catch (error) {
    console.error(name);
    throw error;
  }
}
