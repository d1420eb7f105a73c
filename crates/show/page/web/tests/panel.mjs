// What hands and keys do to the timeline, in Chromium, on the session of synthetic.mjs: ten million
// launches. Says what is wrong and exits with status 1.
import assert from 'node:assert/strict';
import { PATIENCE, launch, opened, usable } from './browser.mjs';
import { END, serve } from './synthetic.mjs';

let server = await serve({ building: true });
const browser = await launch();
const fragment = (page) => new URLSearchParams(new URL(page.url()).hash.slice(1));
/** Length and ends of what an address shows. */
function sized(address) {
  const text = new URLSearchParams(new URL(address).hash.slice(1)).get('shown') ?? `0-${END}`;
  const [from, to] = text.split('-').map(Number);
  return [to - from, [from, to]];
}

/** The address once the chosen event lies in the view and a second passes without a change: it follows a view that rests. */
async function settled(page) {
  await page.waitForFunction(() => {
    const said = new URLSearchParams(location.hash.slice(1));
    const [start, end] = said.get('shown').split('-').map(Number);
    const event = Number(said.get('event').split('@')[1]);
    return start <= event && event <= end;
  });
  for (let last = ''; last !== page.url(); await page.waitForTimeout(1000)) last = page.url();
  return page.url();
}

/** Waits until the address says that what is shown fulfils a condition. */
async function until(page, condition) {
  await page.waitForURL((url) => condition(...sized(url)));
  return sized(page.url())[1];
}

/** Starts to count frames in which a lane of the device has no colour but the background's. */
function watchForBlanks() {
  const canvas = document.querySelector('#timeline canvas');
  const context = canvas.getContext('2d');
  const watched = (globalThis.watched = { frames: 0, blank: 0 });
  const look = () => {
    const { data } = context.getImageData(0, 24 + 26 + 17, canvas.width, 1);
    const pixels = new Set(new Uint32Array(data.buffer));
    // (The background and the marks of the axis are nearly white; all that happens has a colour.)
    watched.frames++;
    if ([...pixels].every((pixel) => [0, 8, 16].every((shift) => ((pixel >>> shift) & 255) > 215))) watched.blank++;
    if (globalThis.watched === watched) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}

try {
  const { page, wrong } = await opened(browser, `${server.address}#lanes=0,1`);
  const stage = page.locator('#timeline .stage');
  const details = page.locator('#timeline .details');
  const said = (text) => page.locator('#timeline [role=status]', { hasText: text }).first().waitFor({ state: 'attached' });

  // The server reads the session; then its lanes come.
  await page.getByText('Reading the session: 25%').waitFor();
  assert.equal(await page.locator('#timeline progress').getAttribute('value'), '0.25');
  server.session.building = false;
  await page.locator('#timeline .group').first().waitFor();
  const lanes = () => page.locator('#timeline [data-lane]:not(tr)').evaluateAll((all) => all.map((one) => one.dataset.lane));
  assert.deepEqual(await lanes(), ['d0', 's0', 'x0', 't0', 'd1', 's1', 'x1', 't1', 'd2', 'd3'], 'a closed group shows its device');
  await page.getByRole('button', { name: 'rank 1, python' }).press('Enter');
  assert.deepEqual(await lanes(), ['d0', 's0', 'x0', 't0', 'd1', 'd2', 'd3']);
  assert.equal(fragment(page).get('lanes'), '0');

  // Keys zoom, move, and show all; no frame is blank meanwhile.
  await stage.focus();
  await page.evaluate(watchForBlanks);
  for (let press = 0; press < 30; press++) await page.keyboard.press('w');
  const zoomed = await until(page, (size) => Math.abs(size / (END * 0.7 ** 30) - 1) < 0.01);
  await page.keyboard.press('d');
  const [from] = await until(page, (_, [from]) => from > zoomed[0]);
  assert.ok(Math.abs((from - zoomed[0]) / (zoomed[1] - zoomed[0]) - 0.15) < 0.001);
  await page.keyboard.press('Home');
  await until(page, (size) => size === END);
  assert.equal(fragment(page).get('shown'), null, 'all needs no place in the address');

  // The wheel, once the timeline has the focus, around the pointer; without it the page scrolls.
  const box = await stage.boundingBox();
  await page.mouse.move(box.x + box.width / 4, box.y + 80);
  await page.mouse.wheel(0, -1000);
  const wheeled = await until(page, (size) => size < END * 0.5);
  const under = wheeled[0] + (wheeled[1] - wheeled[0]) / 4;
  assert.ok(Math.abs(under / (END / 4) - 1) < 0.002, `what lies under the pointer stays there: ${under / END}`);
  await page.getByRole('button', { name: 'All', exact: true }).focus();
  const scrolled = () => page.evaluate(() => scrollY);
  const before = await scrolled();
  await page.mouse.wheel(0, 300);
  await page.waitForFunction((before) => scrollY > before, before);
  assert.deepEqual(sized(page.url())[1], wheeled);

  // A drag moves what is shown with the pointer.
  await stage.scrollIntoViewIfNeeded();
  const place = await stage.boundingBox();
  await page.mouse.move(place.x + 600, place.y + 80);
  await page.mouse.down();
  await page.mouse.move(place.x + 400, place.y + 80, { steps: 5 });
  await page.mouse.up();
  const dragged = await until(page, (size, [from]) => Math.abs((from - wheeled[0]) / size - 200 / place.width) < 0.005);

  // With the shift key it selects; the figures of the span come.
  await page.keyboard.down('Shift');
  await page.mouse.move(place.x + 100, place.y + 80);
  await page.mouse.down();
  await page.mouse.move(place.x + 300, place.y + 80, { steps: 5 });
  await page.mouse.up();
  await page.keyboard.up('Shift');
  await page.locator('#timeline tr[data-lane=s0]').waitFor();
  const span = fragment(page).get('span').split('-').map(Number);
  assert.ok(Math.abs((span[1] - span[0]) / (dragged[1] - dragged[0]) - 200 / place.width) < 0.005);
  assert.equal(await page.locator('#timeline table').getAttribute('data-from'), String(span[0]));

  // Down to single events, one opened by keys, the next, and a collective on all ranks.
  await stage.focus();
  await page.keyboard.press('Home');
  for (let press = 0; press < 38; press++) await page.keyboard.press('w');
  await until(page, (size) => size < 1e5);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await said('stream 7 of rank 0');
  await page.keyboard.press('Enter');
  await details.getByText('theoretical occupancy').waitFor();
  assert.match(fragment(page).get('event'), /^s0@\d+$/);
  const first = fragment(page).get('event');
  await page.keyboard.press('.');
  await page.waitForFunction((first) => !location.hash.includes(encodeURIComponent(first)), first);
  for (const text of ['(measured)', '(computed, limited by registers)', '(predicted, 3.00–5.00', 'model.py:12']) {
    await details.getByText(text, { exact: false }).first().waitFor();
  }
  await page.getByRole('searchbox', { name: 'Highlight kernels by name' }).fill('AllReduce');
  await page.keyboard.press('Enter');
  await stage.focus();
  for (let press = 0; press < 12; press++) await page.keyboard.press('s');
  await until(page, (size) => size > 1e6);
  // (The events of this zoom come by themselves.)
  await page.waitForFunction(
    () => {
      document.querySelector('#timeline .stage').dispatchEvent(new KeyboardEvent('keydown', { key: 'n', bubbles: true }));
      return document.querySelector('#timeline .details h3')?.textContent.includes('AllReduce');
    },
    null,
    { polling: 200 },
  );
  await details.locator('.jump').nth(2).waitFor();
  assert.deepEqual(await details.locator('.jump').allTextContents(), ['rank 1', 'rank 2', 'rank 3']);
  const watched = await page.evaluate(() => [globalThis.watched, (globalThis.watched = null)][0]);
  assert.ok(watched.frames > 50);
  assert.equal(watched.blank, 0, `${watched.blank} of ${watched.frames} frames are blank`);
  assert.ok(server.session.requests.length < 200, `${server.session.requests.length} requests`);

  // A link shows the same.
  const address = await settled(page);
  await page.reload();
  await details.locator('h3', { hasText: 'AllReduce' }).waitFor();
  assert.equal(await settled(page), address);
  await details.locator('.jump').first().click();
   await details.getByText('of rank 1, python').waitFor();
  assert.equal(fragment(page).get('lanes'), '0,1', 'its group opens');
  await usable(page, 'the timeline');

  // Keys end what they began.
  await stage.focus();
  await page.keyboard.press('Escape');
  await details.getByText('Click an event').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('Clear selection').waitFor({ state: 'detached' });

  // A session that grows: its end is followed.
  await page.getByRole('button', { name: 'Clear', exact: true }).click();
  server.session.growing = true;
  await page.reload();
  await page.locator('#timeline .group').first().waitFor();
  await page.getByRole('button', { name: 'Follow' }).click();
  await page.waitForFunction(() => document.querySelector('#timeline button[aria-pressed=true]')?.textContent === 'Follow');
  const ends = async () => {
    await stage.focus();
    await page.keyboard.press('m');
    return Number(fragment(page).get('span').split('-')[1]);
  };
  const end = await ends();
  while ((await ends()) <= end) await page.evaluate(() => new Promise(requestAnimationFrame));
  server.session.growing = false;
  assert.deepEqual(wrong, []);
  await page.close();

  // It opens on the steady state. A link to it arrives, though the list of sessions comes late.
  server.end();
  server = await serve({ steady: 9e9, gap: [1e9, 3e9], sessionsAfter: 300 });
  const other = await browser.newPage({ viewport: { width: 1280, height: 500 } });
  other.setDefaultTimeout(PATIENCE);
  const at = `${server.address}#session=s&lanes=0&at=timeline`;
  await other.goto(at);
  await other.locator('#timeline .group').first().waitFor();
  await other.waitForFunction(() => Math.abs(document.getElementById('timeline').getBoundingClientRect().top - 68) < 2);
  await other.getByLabel('Table of the lanes shown').check();
  const table = other.locator('#timeline table');
  await table.waitFor();
  assert.equal(Number(await table.getAttribute('data-from')), 9e9 - 0.02 * 6e9);
  assert.equal(fragment(other).get('shown'), null, 'what is shown at first needs no place in the address');
  const field = other.locator('#timeline .stage');
  await field.focus();
  await other.keyboard.press('Home');
  await other.waitForURL((url) => fragment({ url: () => url.href }).get('shown') === 'all');
  // Keys zoom at the pointer, …
  const frame = await field.boundingBox();
  await other.mouse.move(frame.x + frame.width / 4, frame.y + 80);
  for (let press = 0; press < 5; press++) await other.keyboard.press('w');
  const closer = await until(other, (size) => Math.abs(size / (END * 0.7 ** 5) - 1) < 0.01);
  assert.ok(Math.abs((closer[0] + (closer[1] - closer[0]) / 4) / (END / 4) - 1) < 0.002, `${closer}`);
  // … and not into a part where nothing happens.
  await other.mouse.move(0, 0);
  await other.goto(`${at}&shown=500000000-2600000000`);
  await other.waitForFunction(() => document.querySelector('#timeline table')?.dataset.from === '500000000');
  await field.focus();
  for (let press = 0; press < 12; press++) await other.keyboard.press('w');
  const kept = await until(other, (size) => Math.abs(size / (2.1e9 * 0.7 ** 12) - 1) < 0.01);
  assert.ok(kept[0] < 1e9, `${kept} is empty`);
  // An empty part says so, and leads to where something is; so does Enter.
  for (const leave of ['button', 'e', 'Enter']) {
    await other.goto(`${at}&shown=1900000000-1900100000`);
    await other.getByText('Nothing happens from 1.9', { exact: false }).waitFor();
    await field.focus();
    await other.keyboard.press('w');
    if (leave === 'button') await other.getByRole('button', { name: 'Go to the nearest event' }).click();
    else await other.keyboard.press(leave);
    const [seen] = [await until(other, (size, [from, to]) => Math.abs(size - 1e5) < 2 && (to < 1.1e9 || from > 2.9e9))];
    const event = Number(fragment(other).get('event').split('@')[1]);
    assert.ok(event >= seen[0] && event <= seen[1], `${leave}: ${event} is not in ${seen}`);
  }
  await other.close();

  // Fingers: one moves, two zoom, a tap opens.
  const context = await browser.newContext({ viewport: { width: 400, height: 800 }, hasTouch: true, isMobile: true });
  const phone = await context.newPage();
  phone.setDefaultTimeout(PATIENCE);
  await phone.goto(`${server.address}#lanes=0&at=timeline&shown=6000000000-8000000000`);
  await phone.locator('#timeline .group').first().waitFor();
  const touched = phone.locator('#timeline .stage');
  await touched.scrollIntoViewIfNeeded();
  const area = await touched.boundingBox();
  const client = await context.newCDPSession(phone);
  const touch = (type, ...points) => client.send('Input.dispatchTouchEvent', { type, touchPoints: points.map(([x, y], id) => ({ x: area.x + x, y: area.y + y, id })) });
  await touch('touchStart', [200, 90]);
  for (let x = 190; x >= 100; x -= 10) await touch('touchMove', [x, 90]);
  await touch('touchEnd');
  const swept = await until(phone, (_, [from]) => from > 6e9);
  assert.ok(Math.abs(swept[1] - swept[0] - 2e9) < 1e3, 'one finger does not zoom');
  await touch('touchStart', [140, 90], [160, 90]);
  for (let by = 2; by <= 40; by += 2) await touch('touchMove', [140 - by, 90], [160 + by, 90]);
  await touch('touchEnd');
  // From 20 pixels to 100.
  await until(phone, (size) => Math.abs(size / 2e9 - 0.2) < 0.03);
  await phone.touchscreen.tap(area.x + 150, area.y + 24 + 26 + 34 + 11);
  await phone.locator('#timeline .details h3').waitFor();
  console.log('the timeline does what hands and keys ask for');
} finally {
  await browser.close();
  server.end();
}
