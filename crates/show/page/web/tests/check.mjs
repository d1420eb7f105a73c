// Opens pages in Chromium and compares what each panel shows with the report's JSON of the same session.
//
//   node check.mjs PAGE REPORT.json [PAGE REPORT.json …]
//
// A page is a file, or an address of `apex dashboard`. Both are of all phases (`--phase all`), so that the figures are of the same time. Says what is wrong and exits with
// status 1. The numbers are formatted here a second time, by rules of their own.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { launch, opened, usable } from './browser.mjs';
import { kernelPage } from './kernel.mjs';

/** Three significant digits and a unit. */
function time(ns) {
  const [scale, unit] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']].find(([scale]) => Math.abs(ns) >= scale) ?? [1, 'ns'];
  const value = ns / scale;
  return `${value.toFixed(value >= 99.95 || value === 0 ? 0 : value >= 9.995 ? 1 : 2)} ${unit}`;
}
const count = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
const plain = (text) => text.replace(/\s+/g, ' ').trim();
const near = (a, b, what, off = 1e-9 * Math.max(1, Math.abs(b))) => assert.ok(Math.abs(a - b) <= off, `${what}: ${a}, not ${b}`);

/** The accounts of all devices, by name. */
function accountsOf(activities) {
  const sums = {};
  const add = (id, ns) => (sums[id] = (sums[id] ?? 0) + ns);
  for (const { accounts } of activities) {
    for (const id of ['kernels', 'collectives', 'waiting', 'copies', 'unknown']) add(id, accounts[id].value);
    for (const [cause, figure] of Object.entries(accounts.idle)) add(cause, figure.value);
  }
  return sums;
}

async function rows(page, selector, read) {
  return page.locator(selector).evaluateAll((all, read) => all.map((row) => new Function('row', `return ${read}`)(row)), read);
}

/** Text of the cells of each row that a selector finds. */
const CELLS = '[...row.children].map((cell) => cell.textContent)';

async function accounts(page, { profile }) {
  const onCpu = profile.devices.every((device) => device.name.startsWith('APEX CPU device'));
  const found = await rows(page, '[data-account]', `({ id: row.dataset.account, ns: Number(row.dataset.ns), cells: ${CELLS} })`);
  if (onCpu) return assert.equal(found.length, 0, 'times of the CPU device are no accounts of a GPU');
  const wanted = accountsOf(profile.activities);
  const span = Object.values(wanted).reduce((sum, ns) => sum + ns, 0);
  for (const [id, ns] of Object.entries(wanted)) {
    const row = found.find((row) => row.id === id);
    if (ns / span < 0.00005) continue;
    assert.ok(row, `the account ${id} is not shown`);
    near(row.ns, ns, `account ${id}`);
    assert.equal(plain(row.cells[1]), `${time(ns)}ᵖ`);
  }
}

async function advice(page, { advice }) {
  const found = await rows(page, '[data-rule]', '({ rule: row.dataset.rule, text: row.textContent })');
  // Those that are known to save next to nothing come last.
  const isMinor = ({ saving }) => saving.of_job !== null && saving.of_job.value < 0.02;
  const wanted = [...advice.findings.filter((finding) => !isMinor(finding)), ...advice.findings.filter(isMinor)];
  assert.deepEqual(found.map((card) => card.rule), wanted.map((finding) => finding.rule));
  wanted.forEach((finding, at) => {
    const text = plain(found[at].text);
    assert.ok(text.includes(plain(finding.title).slice(0, 40)), `${finding.rule} has no title`);
    const share = finding.saving.of_job?.value;
    if (share > 0) assert.ok(text.includes(share < 0.005 ? '<1%' : `${(share * 100).toFixed(0)}%`), `${finding.rule}: ${text}`);
  });
}

async function overTime(page, { profile }) {
  const charts = page.locator('#time [role=slider]');
  const wanted = profile.activities.filter((activity) => activity.over_time && activity.span_ns > 0);
  wanted.sort((a, b) => {
    const [x, y] = [a, b].map((activity) => profile.processes[activity.process]);
    return (x.rank ?? -1) - (y.rank ?? -1) || x.pid - y.pid || (a.device ?? -1) - (b.device ?? -1);
  });
  assert.equal(await charts.count(), wanted.length);
  for (const [at, { over_time: parts, device }] of wanted.entries()) {
    const chart = charts.nth(at);
    if (wanted.length > 1) assert.ok((await chart.getAttribute('aria-label')).includes(`on GPU ${profile.devices[device].ordinals[0]},`), 'GPUs have the ordinals of the program');
    await chart.focus();
    await page.keyboard.press('End');
    await page.keyboard.press('PageDown');
    const part = Number(await chart.getAttribute('aria-valuenow')) - 1;
    assert.equal(part, 229);
    const text = plain(await chart.getAttribute('aria-valuetext'));
    const lists = { ...parts.idle, kernels: parts.kernels, copies: parts.copies, collectives: parts.collectives, waiting: parts.waiting };
    for (const [id, list] of Object.entries(lists)) {
      const share = (list[part] ?? 0) / parts.part_ns;
      if (share < 0.006) continue;
      const told = [...text.matchAll(/ (\d+)%/g)].some(([, percent]) => Math.abs(Number(percent) - share * 100) <= 0.51);
      assert.ok(told, `${id} takes ${share} of part ${part}: ${text}`);
    }
    const ran = (parts.kernels[part] ?? 0) / parts.part_ns;
    if (ran > 0.006) near(Number(/ kernels (\d+)%/.exec(text)[1]), ran * 100, 'kernels', 0.51);
  }
}

/** Of a page that is served: its figures of all of the session, and of one launch. */
async function timeline(page, { profile }) {
  const section = page.locator('#timeline');
  if (!page.url().startsWith('http')) return assert.equal(await section.count(), 0, 'a file has no timeline');
  await section.locator('.group').first().waitFor();
  // (At first the steady state may be shown.)
  await section.getByRole('button', { name: 'All', exact: true }).click();
  await section.getByLabel('Table of the lanes shown').check();
  await section.locator('table[data-from="0"]:has(tr[data-lane])').waitFor();
  const uses = await rows(page, '#timeline tr[data-lane^=d] [data-use]', '[row.dataset.use, Number(row.dataset.ns)]');
  const found = {};
  for (const [use, ns] of uses) found[use] = (found[use] ?? 0) + ns;
  const { collectives = 0, waiting = 0, ...wanted } = accountsOf(profile.activities);
  for (const [id, ns] of Object.entries({ ...wanted, collectives: collectives + waiting })) near(found[id] ?? 0, ns, `the timeline's ${id}`);
  // A launch, by keyboard: of the first stream, in the middle or after it.
  const lanes = await section.locator('[data-lane]:not(tr)').evaluateAll((all) => all.map((one) => one.dataset.lane));
  const stream = lanes.findIndex((lane) => lane.startsWith('s'));
  if (stream < 0) return;
  const stage = section.locator('.stage');
  await stage.focus();
  for (let at = 0; at <= stream; at++) await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  const details = section.locator('.details');
  await details.locator('h3').waitFor();
  // (Copies may lie before it.)
  while ((await details.getByText('theoretical occupancy').count()) === 0) {
    const before = page.url();
    await stage.focus();
    await page.keyboard.press('.');
    await page.waitForURL((url) => url.href !== before);
    await details.locator(`h3[data-event="${new URLSearchParams(new URL(page.url()).hash.slice(1)).get('event')}"]`).waitFor();
  }
  const name = plain(await details.locator('h3').textContent());
  const kernel = profile.kernels.find((kernel) => plain(kernel.short_name) === name);
  assert.ok(kernel, `${name} is no kernel of the report`);
  const text = plain(await details.textContent());
  if (kernel.geometry) {
    const { warps_per_sm: warps, max_warps_per_sm: most } = kernel.geometry.occupancy;
    assert.ok(text.includes(`${((warps / most) * 100).toFixed(warps < most ? 1 : 0)}% (computed`), `${warps} of ${most} warps: ${text}`);
  }
  const event = page.url();
  assert.match(event, new RegExp(`event=${lanes[stream]}%40`));
  // Its kernel is found in the table, and from there in the timeline.
  await details.getByRole('link', { name: 'Highlight' }).click();
  await section.getByText('1 kernel found', { exact: false }).or(section.getByText('kernels found', { exact: false })).waitFor();
  await section.getByRole('button', { name: 'Clear', exact: true }).click();
  await stage.focus();
  await page.keyboard.press('Escape');
}

async function kernels(page, { profile }) {
  const launched = profile.kernels.filter(({ launches }) => launches.calls + launches.by_graphs + launches.captured + launches.failed > 0);
  if (launched.length === 0) return;
  const all = page.locator('#kernels .all');
  if (await all.count()) await all.click();
  const found = await rows(page, '#kernels [data-kernel]', `({
    at: Number(row.dataset.kernel),
    cells: ${CELLS},
    total: row.querySelector('[data-ns]')?.textContent,
    bars: (row.querySelector('.when path')?.getAttribute('d').match(/M/g) ?? []).length,
  })`);
  assert.equal(found.length, launched.length);
  for (const { at, cells, total, bars } of found) {
    const kernel = profile.kernels[at];
    assert.ok(cells[0].includes(kernel.short_name.slice(0, 20)) || cells[0].includes('\\'), `${cells[0]} is not ${kernel.short_name}`);
    if (new Set(launched.map(({ device }) => device)).size > 1) assert.ok(cells[0].includes(`GPU ${profile.devices[kernel.device].ordinals[0]} `), cells[0]);
    assert.equal(plain(cells[1]), count(kernel.launches.calls + kernel.launches.by_graphs));
    // A graph has one time for all of its kernels.
    if (kernel.gpu && kernel.launches.by_graphs === 0) assert.equal(plain(total), time(kernel.gpu.total_ns.value));
    const of = profile.activities.flatMap((activity) => activity.launches_over_time.filter((one) => one.kernel === at));
    const parts = new Set(of.flatMap((one) => one.parts.flatMap((launches, part) => (launches > 0 ? [part] : []))));
    assert.equal(bars, parts.size, `parts of the run with launches of ${kernel.short_name}`);
  }
  // Sorted by launches, searched by the name of the first.
  await page.locator('#kernels thead button', { hasText: 'Launches' }).click();
  const launches = await rows(page, '#kernels [data-kernel] td:nth-of-type(1)', 'Number(row.textContent.replaceAll(",", ""))');
  assert.deepEqual(launches, launches.toSorted((a, b) => b - a));
  await page.waitForURL(/sort=-launches/);
  await page.locator('#kernels input[type=search]').fill('no kernel has this name');
  assert.equal(await page.locator('#kernels [data-kernel]').count(), 0);
  await page.locator('#kernels input[type=search]').fill('');
  // By function, with the same totals.
  const totals = async () => plain((await page.locator('#kernels tfoot tr').allTextContents()).join());
  const before = await totals();
  await page.locator('#kernels input[type=checkbox]').check();
  const functions = new Set(launched.map(({ device, name }) => `${device} ${name}`));
  assert.equal(await page.locator('#kernels [data-kernel]').count(), functions.size);
  if (functions.size > 1) assert.equal(await totals(), before);
  await page.waitForURL(/rows=function/);
  await page.locator('#kernels input[type=checkbox]').uncheck();
  await kernelPage(page, profile);
}

async function places(page, report) {
  const found = await rows(page, '[data-place]', `({ launches: Number(row.dataset.launches), cells: ${CELLS} })`);
  assert.equal(found.length, Math.min(12, report.places.length));
  found.forEach(({ launches }, at) => near(launches, report.places[at].launches, `launches of place ${at}`));
  if (found.length === 0) return;
  const root = plain(await page.locator('[role=treeitem]').first().getAttribute('aria-label'));
  const sum = report.places.reduce((sum, place) => sum + place.gpu_time_ns, 0);
  if (sum > 0) assert.equal(root, `program: ${time(sum)}, 100%`);
  // Down into the first call path and back, by keyboard.
  await page.locator('[role=treeitem]').first().focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForURL(/zoom=0/);
  await page.keyboard.press('Escape');
  await page.waitForURL((url) => !/zoom=/.test(url.href));
}

/** The first ranges, then those that the page has; the names of XLA's are readable. */
async function ranges(page, { profile }) {
  const listed = Math.min(500, profile.ranges.length);
  const rows = page.locator('#ranges [data-range]');
  assert.equal(await rows.count(), Math.min(25, listed));
  for (const name of await rows.locator('.mono').allTextContents()) assert.ok(!/#.*=.*#/.test(name), name);
  if (listed <= 25) return;
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.locator('#ranges .all').click();
  assert.equal(await rows.count(), listed);
  await page.locator('#ranges .all').click();
  assert.equal(await page.evaluate(() => document.documentElement.scrollHeight), height);
}

/** Bytes with three significant digits and a binary prefix. */
function bytes(count) {
  const step = count < 1024 ? 0 : Math.floor(Math.log2(count) / 10);
  const value = count / 1024 ** step;
  const digits = step === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'][step]}`;
}

/**
 * Pictures of what was allocated, those with the highest peaks first: the peak, its places, and a
 * part by keyboard.
 */
async function memoryOverTime(page, { profile }) {
  const listed = profile.memory_over_time.toSorted((a, b) => b.peak_bytes - a.peak_bytes).slice(0, 16);
  // Those of ranks in their order, devices first; small ones come last and are folded.
  const isSmall = ({ peak_bytes: peak }) => peak < 0.001 * listed[0].peak_bytes;
  const place = (of) => [isSmall(of) ? 1 : 0, ...(profile.processes[of.process].rank === null ? [] : [of.on_host ? 1 : 0, profile.processes[of.process].rank])];
  const wanted = listed.toSorted((a, b) => {
    const [x, y] = [place(a), place(b)];
    const at = x.findIndex((value, at) => value !== y[at]);
    return at < 0 ? 0 : x[at] - y[at];
  });
  const all = page.locator('#memory > .all');
  if (await all.count()) await all.first().click();
  for (const folded of await page.locator('#memory details.folded > summary').all()) await folded.click();
  const pictures = page.locator('#memory [data-picture]');
  assert.equal(await pictures.count(), wanted.length);
  for (const [at, of] of wanted.entries()) {
    const places = await rows(page, `#memory [data-picture="${at}"] [data-memory-place]`, '[row.dataset.memoryPlace, Number(row.dataset.peak)]');
    const told = of.places.map(({ place, peak_bytes: peak }) => [place, peak]);
    if (of.rest.some((bytes) => bytes > 0)) told.push(['all other places', of.peak_bytes - told.reduce((sum, [, peak]) => sum + peak, 0)]);
    assert.deepEqual(places.map(([, peak]) => peak), told.map(([, peak]) => peak));
    assert.equal(told.reduce((sum, [, peak]) => sum + peak, 0), of.peak_bytes);
    const text = plain(await pictures.nth(at).textContent());
    assert.ok(text.includes(`Peak ${bytes(of.peak_bytes)}ᵐ`), `${bytes(of.peak_bytes)} is not the peak: ${text}`);
    const chart = pictures.nth(at).getByRole('slider');
    const part = of.most.indexOf(of.peak_bytes);
    await chart.focus();
    // (The page has moved to the chart: a pointer that rests on it points at another part.)
    await page.mouse.move(0, 0);
    await page.keyboard.press('Home');
    for (let tens = 0; tens < Math.floor(part / 10); tens++) await page.keyboard.press('PageUp');
    for (let ones = 0; ones < part % 10; ones++) await page.keyboard.press('ArrowRight');
    assert.equal(Number(await chart.getAttribute('aria-valuenow')), part + 1);
    const said = plain(await chart.getAttribute('aria-valuetext'));
    assert.ok(said.includes(`${bytes(of.most[part])} allocated`), `part ${part}: ${said}`);
    if (of.least[part] < of.most[part]) assert.ok(said.includes(`: ${bytes(of.least[part])} to `), `part ${part}: ${said}`);
    assert.ok(said.includes(`; ${bytes(Math.round((of.allocated[part] / of.part_ns) * 1e9))}/s allocated anew`), `part ${part}: ${said}`);
    const here = await rows(page, `#memory [data-picture="${at}"] [data-memory-place]`, 'row.querySelector(".here").textContent');
    assert.deepEqual(here.map(plain), told.map(([, peak]) => bytes(peak)), 'the column of the peak shows the peak');
  }
}

async function memory(page, { profile }) {
  const kinds = await rows(page, '[data-memory]', '[row.dataset.memory, Number(row.dataset.peak)]');
  assert.deepEqual(kinds, profile.memory.map(({ kind, peak_bytes }) => [kind, peak_bytes]));
  const bytes = await rows(page, '[data-bytes]', 'Number(row.dataset.bytes)');
  assert.deepEqual(bytes, profile.copies.map((copies) => copies.bytes));
  const calls = await rows(page, '[data-call]', CELLS);
  profile.calls.slice(0, 10).forEach((call, at) => {
    assert.equal(plain(calls[at][0]), call.name);
    assert.equal(plain(calls[at][2]), time(call.cpu.total_ns));
  });
}

async function machine(page, { profile, machine }) {
  const groups = machine === null ? [] : [...machine.devices, { uuid: 'host', readings: machine.host }];
  // What is zero all the time has no picture.
  const told = (readings) => Object.entries(readings).filter(([, { least, most }]) => least !== 0 || most !== 0);
  for (const { uuid, readings } of groups) {
    const found = await rows(page, `[data-machine="${uuid}"] [data-quantity]`, '({ id: row.dataset.quantity, mean: Number(row.dataset.mean) })');
    assert.deepEqual(found.map(({ id }) => id).sort(), told(readings).map(([id]) => id).sort());
    for (const { id, mean } of found) near(mean, readings[id].mean, `${id} of ${uuid}`, 1e-3 * readings[id].mean);
  }
  const moment = page.locator('#machine-moment');
  assert.equal(await moment.count(), machine === null ? 0 : 1);
  if (machine?.devices[0]?.readings.power_w) {
    const watts = page.locator('[data-quantity=power_w] .value').first();
    const label = page.locator('#machine .moment label');
    assert.equal(plain(await watts.textContent()), `${machine.devices[0].readings.power_w.mean.toFixed(0)} W`);
    await moment.focus();
    await page.keyboard.press('End');
    assert.match(await label.textContent(), / to /);
    await page.keyboard.press('Home');
    assert.match(await label.textContent(), /all the time/);
  }
  const names = await page.locator('#machine .grid h3').allTextContents();
  profile.devices.forEach((device, at) => {
    assert.ok(names[at].length > 0);
    if (/^[\w ]+$/.test(device.name)) assert.ok(names[at].includes(device.name), `${names[at]} is not ${device.name}`);
  });
}

async function check(browser, file, report) {
  const address = file.startsWith('http://') ? file : pathToFileURL(file).href;
  const { page, wrong } = await opened(browser, address);
  const shifts = () => new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().reduce((sum, one) => sum + one.value, 0))).observe({ type: 'layout-shift', buffered: true }));
  const shifted = await page.evaluate(`Promise.race([(${shifts})(), new Promise((done) => setTimeout(done, 100, 0))])`);
  assert.ok(shifted < 0.01, `the layout shifts by ${shifted}`);
  for (const panel of [accounts, advice, overTime, timeline, kernels, places, ranges, memoryOverTime, memory, machine]) await panel(page, report);
  await usable(page, file);
  // What is foreign is text: it makes no element and runs nothing.
  assert.equal(await page.locator('img, iframe, object, embed, main script').count(), 0);
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.deepEqual(wrong, []);
  await page.close();
}

const browser = await launch();
try {
  for (let at = 2; at + 1 < process.argv.length; at += 2) {
    const [file, report] = process.argv.slice(at, at + 2);
    await check(browser, file, JSON.parse(readFileSync(report, 'utf8')));
    console.log(`${file}: as its report says`);
  }
} finally {
  await browser.close();
}
