// A kernel's page: what it shows is what the report says of the kernel, and it opens and closes by
// link, keyboard and address.
import assert from 'node:assert/strict';
import { fits } from './browser.mjs';

const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), `${what}: ${a}, not ${b}`);
/** Resources in the order of the report's `block_limits`. */
const RESOURCES = ['warps', 'blocks', 'registers', 'shared memory', 'barriers'];
/** Kernels of a session that are looked at. */
const LOOKS = 4;

/** Lines that a file has of a kernel. */
const LINES_OF_FILE = 80;

/** What each line did: of a page that is served all lines, of a file the first. */
async function showsLines(page, sheet, lines) {
  assert.equal(await sheet.locator('#k-code').count(), lines.length > 0 ? 1 : 0);
  if (lines.length === 0) return;
  await sheet.locator('[data-lines]:not([data-lines=""])').waitFor();
  const executed = new Map(lines.map(({ file, line, warp_instructions: count }) => [`${file}:${line}`, count]));
  const shown = await sheet.locator('[data-line]').evaluateAll((all) => all.map((row) => [row.dataset.line, Number(row.dataset.executed), Number(row.children[1].textContent.replace(/[^0-9]/g, ''))]));
  for (const [line, count, text] of shown) assert.deepEqual([count, text], [executed.get(line), executed.get(line)], line);
  assert.equal(shown.length, page.url().startsWith('http') ? lines.length : Math.min(lines.length, LINES_OF_FILE));
  const marked = await sheet.locator('[data-line]:has(.fault)').evaluateAll((all) => all.map((row) => row.dataset.line).sort());
  const faulty = lines.filter((line) => line.global_excess + line.shared_excess + line.divergent_branches > 0).map(({ file, line }) => `${file}:${line}`);
  assert.deepEqual(marked, faulty.filter((line) => shown.some(([key]) => key === line)).sort());
  // By keyboard: a line that one jumps to has the focus; the order stands in the address.
  const jump = sheet.getByRole('list', { name: 'Jump to a line' }).getByRole('button').first();
  await jump.focus();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement.dataset.line);
  const busiest = Math.max(...lines.map(({ warp_instructions: count }) => count));
  assert.equal(await page.evaluate(() => Number(document.activeElement.dataset.executed)), busiest);
  await sheet.getByRole('button', { name: 'Busiest first' }).click();
  await page.waitForURL(/lines=worst/);
  const ordered = await sheet.locator('[data-line]').evaluateAll((all) => all.map((row) => Number(row.dataset.executed)));
  assert.deepEqual(ordered, shown.map(([, count]) => count).sort((a, b) => b - a));
  await sheet.getByRole('button', { name: 'As in the file' }).click();
  await page.waitForURL((url) => !/lines=/.test(url.href));
}

/** What the open page shows of a kernel. */
async function shows(page, profile, at) {
  const kernel = profile.kernels[at];
  const sheet = page.locator('dialog[open]');
  const shown = await sheet.locator('tr.shown').getAttribute('data-shape');
  assert.equal(Number(shown), at);
  const shapes = profile.kernels.filter((other) => other.name === kernel.name && other.short_name === kernel.short_name && other.device === kernel.device);
  assert.equal(await sheet.locator('[data-shape]').count(), shapes.filter(({ launches }) => Object.values(launches).some(Boolean)).length);
  if (kernel.geometry) {
    const { occupancy, waves } = kernel.geometry;
    near(Number(await sheet.locator('[data-occupancy]').getAttribute('data-occupancy')), occupancy.warps_per_sm / occupancy.max_warps_per_sm, 'occupancy');
    const limits = await sheet.locator('[data-limit]').evaluateAll((all) => all.map((row) => [row.dataset.limit, Number(row.children[1].textContent.replaceAll(',', '')), row.classList.contains('binds')]));
    const wanted = occupancy.block_limits.flatMap((blocks, of) => (blocks === null ? [] : [[RESOURCES[of], blocks, blocks === occupancy.blocks_per_sm]]));
    assert.deepEqual(limits, wanted);
    const map = sheet.locator('#k-waves ~ .map');
    const sms = profile.devices[kernel.device].sms;
    assert.equal(await map.count(), waves.capacity > 0 && sms > 0 ? 1 : 0);
    if (await map.count()) {
      near(Number(await map.getAttribute('data-waves')), waves.waves, 'waves');
      // Each wave that is drawn holds what it should, the last one the tail.
      const drawn = await map.locator('svg').evaluateAll((all) => all.map((row) => Number(row.dataset.blocks)));
      const last = drawn.pop();
      assert.equal(last, waves.tail_blocks || waves.capacity);
      assert.ok(drawn.every((blocks) => blocks === waves.capacity), `${drawn} of ${waves.capacity}`);
      const all = waves.full + (waves.tail_blocks > 0 ? 1 : 0);
      assert.equal(drawn.length + 1, all <= 7 ? all : 6);
    }
  }
  // What is counted on the CPU device, and what a roofline takes.
  const spots = await sheet.locator('[data-hotspot]').evaluateAll((all) => all.map((row) => [row.dataset.hotspot, Number(row.children[3].textContent.replace(/[^0-9]/g, ''))]));
  const shownPlace = ({ file, line, ptx_line: ptx, instruction }) => (file ? `${file}:${line}` : `PTX line ${ptx} (${instruction})`);
  assert.deepEqual(spots, (kernel.counts?.hotspots ?? []).slice(0, 10).map(({ place, total }) => [shownPlace(place), total]));
  await showsLines(page, sheet, kernel.counts?.lines ?? []);
  const hasWork = shapes.some(({ prediction }) => prediction?.work?.global_bytes > 0);
  assert.equal(await sheet.locator('[data-roofline]').count() > 0, hasWork);
  assert.equal(await sheet.locator('[data-roofline-missing]').count() > 0, !hasWork);
  const durations = Object.fromEntries(await sheet.locator('[data-duration]').evaluateAll((all) => all.map((one) => [one.dataset.duration, Number(one.dataset.ns)])));
  const { duration_ns: predicted, measured_duration_ns: measured } = kernel.prediction ?? {};
  assert.equal(durations.predicted === undefined, !predicted);
  if (predicted) near(durations.predicted, predicted.value, 'predicted');
  if (measured) near(durations.measured, measured.value, 'measured');
  // What was measured has one definition on the card: no mean is above its maximum, nor another mean.
  for (const of of await sheet.locator('[data-spread]').all()) {
    const [mean, most] = [Number(await of.getAttribute('data-spread')), Number(await of.getAttribute('data-most'))];
    near(mean, measured?.value ?? kernel.gpu.each.mean_ns, 'the mean of the spread');
    assert.ok(mean <= most, `a mean of ${mean} above a maximum of ${most}`);
  }
}

/** Other configurations: of a page that is served by sliders, of a file in a table. */
async function whatIf(page, { geometry }) {
  const sheet = page.locator('dialog[open]');
  if (!page.url().startsWith('http')) {
    const own = sheet.locator('[data-tried].own');
    assert.equal(await sheet.locator('[data-tried]').count() >= 1 && (await own.count()), 1);
    const { warps_per_sm: warps, max_warps_per_sm: most } = geometry.occupancy;
    near(Number(await own.locator('[data-occupancy-of]').getAttribute('data-occupancy-of')), warps / most, 'occupancy in its own block');
    return;
  }
  // The last registers of the slider, and what the server says of them.
  const slider = sheet.locator('[data-slider=registers]');
  await slider.focus();
  await page.keyboard.press('End');
  const answer = sheet.locator('table[data-answer]:not([data-answer=""])');
  await answer.waitFor();
  await page.waitForURL(/change=registers%3D255/);
  const hash = new URLSearchParams(new URL(page.url()).hash.slice(1));
  const asked = `/api/v1/sessions/${hash.get('session')}/kernels/${hash.get('kernel')}/what-if?phase=all&registers=255`;
  const said = await page.evaluate(async (address) => (await fetch(address)).json(), asked);
  assert.equal(said.registers, 255);
  const text = (await answer.textContent()).replace(/\s+/g, ' ');
  if (said.geometry) assert.ok(text.includes(`${(said.geometry.occupancy * 100).toFixed(said.geometry.occupancy < 1 ? 1 : 0)}%`), text);
  else assert.ok(await sheet.getByText('It cannot run').count());
  if (said.prediction) near(Number(await answer.locator('td[data-ns]').getAttribute('data-ns')), said.prediction.duration_ns.value, 'predicted');
  await fits(page, 'a kernel with other registers');
  await sheet.getByRole('button', { name: 'As launched' }).click();
  await page.waitForURL((url) => !/change=/.test(url.href));
  await sheet.locator('table[data-answer=""]').waitFor();
}

export async function kernelPage(page, profile) {
  const rows = page.locator('#kernels [data-kernel]');
  const at = Number(await rows.first().getAttribute('data-kernel'));
  await rows.first().getByRole('link').focus();
  await page.keyboard.press('Enter');
  const sheet = page.locator('dialog[open]');
  await sheet.waitFor();
  await page.waitForURL(/kernel=[0-9a-f]{16}/);
  await shows(page, profile, at);
  await fits(page, 'a page of a kernel');
  if (profile.kernels[at].geometry) await whatIf(page, profile.kernels[at]);
  // From the address.
  await page.reload();
  await sheet.waitFor();
  await shows(page, profile, at);
  await page.keyboard.press('Escape');
  await sheet.waitFor({ state: 'hidden' });
  await page.waitForURL((url) => !/kernel=/.test(url.href));
  for (let row = 0; row < Math.min(LOOKS, await rows.count()); row++) {
    const link = rows.nth(row).getByRole('link');
    await link.click();
    await sheet.waitFor();
    await shows(page, profile, Number(await rows.nth(row).getAttribute('data-kernel')));
    // The browser's way back.
    await page.goBack();
    await sheet.waitFor({ state: 'hidden' });
  }
}
