// Frame times of the timeline while it is dragged and zoomed, and the time to the first paint of
// the page.
//
//   node frames.mjs [ADDRESS]
//
// ADDRESS is of `apex dashboard`, with its fragment; without one, the timeline of synthetic.mjs is
// shown: ten million launches. All groups are opened. Chromium is headless and draws in software.
// What is printed goes to docs/results/timeline-frames.txt.
import { cpus, loadavg } from 'node:os';
import { launch } from './browser.mjs';
import { serve } from './synthetic.mjs';

const SECONDS = 6;

/** Starts to collect the times between frames. */
function collect() {
  const times = (globalThis.frames_ = []);
  let before = performance.now();
  const next = (now) => {
    times.push(now - before);
    before = now;
    if (globalThis.frames_ === times) requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}

function stop() {
  const times = globalThis.frames_.slice(2);
  globalThis.frames_ = null;
  return times;
}

const quantile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];

/** CPU time of the page's thread so far, ms: what a loaded machine does not change. */
async function busy(client) {
  const { metrics } = await client.send('Performance.getMetrics');
  return metrics.find(({ name }) => name === 'TaskDuration').value * 1000;
}

async function measured(page, client, name, move) {
  const before = await busy(client);
  await page.evaluate(collect);
  const end = Date.now() + SECONDS * 1000;
  for (let at = 0; Date.now() < end; at++) await move(at);
  const times = (await page.evaluate(stop)).sort((a, b) => a - b);
  const cpu = ((await busy(client)) - before) / times.length;
  const median = quantile(times, 0.5);
  const mean = times.reduce((sum, time) => sum + time, 0) / times.length;
  const slow = times.filter((time) => time > 20.5).length / times.length;
  console.log(
    `${name.padEnd(28)} ${String(times.length).padStart(5)} frames: median ${median.toFixed(1)} ms, 95th percentile ${quantile(times, 0.95).toFixed(1)} ms, ` +
      `longest ${times.at(-1).toFixed(1)} ms; ${(1000 / mean).toFixed(1)} frames a second; ${(slow * 100).toFixed(1)}% take longer than 20 ms; CPU time of the page's thread ${cpu.toFixed(1)} ms a frame`,
  );
}

const synthetic = process.argv[2] ? null : await serve();
const address = process.argv[2] ?? `${synthetic.address}#at=timeline&lanes=0,1,2,3`;
const browser = await launch();
try {
  console.log(`${new Date().toISOString().slice(0, 16)}Z, ${cpus().length} × ${cpus()[0].model}, load ${loadavg()[0].toFixed(2)} at the start`);
  console.log(`Chromium ${browser.version()}, headless, software rendering, 1280 × 900`);
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const client = await page.context().newCDPSession(page);
  await client.send('Performance.enable', { timeDomain: 'threadTicks' });
  await page.goto(address);
  await page.locator('#timeline .group').first().waitFor();
  for (const closed of await page.locator('#timeline .group[aria-expanded=false]').all()) await closed.click();
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  console.log(`first contentful paint after ${paint.toFixed(0)} ms; ${await page.locator('#timeline .labels .lane').count()} lanes in view`);
  const stage = page.locator('#timeline .stage');
  await stage.scrollIntoViewIfNeeded();
  const box = await stage.boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + Math.min(box.height, 500) / 2];
  const drag = async () => {
    await page.mouse.move(x, y);
    await page.mouse.down();
    for (const direction of [-1, 1, -1]) for (let step = 0; step < 25; step++) await page.mouse.move(x + direction * (step - 12) * 16, y);
    await page.mouse.up();
  };
  const wheel = (ticks, by) => async (at) => {
    for (let tick = 0; tick < ticks; tick++) await page.mouse.wheel(0, Math.floor(at / 2) % 2 === 0 ? -by : by);
  };
  await stage.click({ position: { x: 10, y: 10 } });
  await measured(page, client, 'nothing moves', () => page.waitForTimeout(100));
  await measured(page, client, 'wheel, all to single events', wheel(50, 120));
  await page.keyboard.press('Home');
  await measured(page, client, 'drag, 1/8 of the session', async (at) => {
    if (at === 0) for (let press = 0; press < 6; press++) await page.keyboard.press('w');
    await drag();
  });
  await measured(page, client, 'drag, some thousand events', async (at) => {
    if (at === 0) for (let press = 0; press < 16; press++) await page.keyboard.press('w');
    await drag();
  });
  await measured(page, client, 'drag, single events', async (at) => {
    if (at === 0) for (let press = 0; press < 14; press++) await page.keyboard.press('w');
    await drag();
  });
  console.log(`load ${loadavg()[0].toFixed(2)} at the end`);
} finally {
  await browser.close();
  synthetic?.end();
}
