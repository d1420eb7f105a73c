// Pictures of the page for the docs: `node pictures.mjs FOLDER ADDRESS TO`; scripts/page_pictures.sh says of what. Pictures
// without a session are of the dashboard at the address. TO/panels gets each panel of the dashboard, the first one light, dark and narrow.
import { pathToFileURL } from 'node:url';
import { launch } from './browser.mjs';

const [folder, address, to] = process.argv.slice(2);
const PICTURES = [
  { name: 'page', session: 'torch-eager_training', at: '', width: 1280, height: 1400, scheme: 'light' },
  { name: 'page-dark', session: 'torch-llama_eager', at: '#at=places', width: 1280, height: 1000, scheme: 'dark' },
  { name: 'page-narrow', session: 'torch-llama_eager', at: '', width: 400, height: 1100, scheme: 'light' },
  { name: 'dashboard', at: '', width: 1280, height: 1000, scheme: 'dark' },
  { name: 'timeline', at: '#at=timeline&shown=6000000000-6800000000', timeline: { zoom: 18 }, width: 1280, height: 1100, scheme: 'light' },
  { name: 'kernel', at: '#phase=all', kernel: 'fused_adam', width: 1280, height: 1560, scheme: 'light' },
  { name: 'kernel-lines', session: 'bad', at: '', kernel: 'transpose', lines: true, width: 1280, height: 900, scheme: 'light' },
  { name: 'dashboard-narrow', at: '#phase=all', width: 400, height: 1000, scheme: 'light' },
];

/** Panels of the dashboard: of a session and a part that have something in each, and their most height. */
const PANELS = [
  { id: 'overview' }, { id: 'advice' }, { id: 'time' }, { id: 'timeline' }, { id: 'kernels' }, { id: 'places', of: 'torch-llama_eager' },
  { id: 'ranges', of: 'torch-llama_eager' }, { id: 'memory' }, { id: 'machine' }, { id: 'compare', before: 'torch-llama_eager' },
];
const LOOKS = [
  { look: 'light', width: 1100, scheme: 'light' },
  { look: 'dark', width: 1100, scheme: 'dark' },
  { look: 'narrow', width: 400, scheme: 'light' },
];
const TALLEST = 1000;

/** The identifiers of sessions by name. */
async function identifiers() {
  const { sessions } = await (await fetch(`${address}api/v1/sessions`)).json();
  return Object.fromEntries(sessions.map((session) => [session.name, session.id]));
}

/** Each panel alone, cut where it is very long. */
async function panels(browser) {
  const ids = await identifiers();
  for (const { id, of = 'torch-eager_training', before } of PANELS) {
    for (const { look, width, scheme } of id === 'overview' ? LOOKS : LOOKS.slice(0, 1)) {
      const page = await browser.newPage({ viewport: { width, height: TALLEST + 200 }, colorScheme: scheme });
      await page.goto(`${address}#session=${ids[of]}&at=${id}${before ? `&before=${ids[before]}` : ''}`);
      const panel = page.locator(`#${id}`);
      await panel.waitFor();
      if (id === 'timeline') await panel.locator('.group').first().waitFor();
      if (id === 'compare') await panel.locator('table').first().waitFor();
      await page.waitForLoadState('networkidle', { timeout: 3000 }).catch(() => {});
      await page.waitForTimeout(500);
      const box = await panel.evaluate((section) => {
        const { x, y, width, height } = section.getBoundingClientRect();
        return { x: x + scrollX, y: y + scrollY, width, height };
      });
      const clip = { x: Math.max(box.x - 16, 0), y: box.y - 8, width: Math.min(box.width + 32, width), height: Math.min(box.height, TALLEST) + 16 };
      await page.screenshot({ path: `${to}/panels/${id}-${look}.png`, clip, fullPage: true });
      await page.close();
    }
  }
}

/** Zooms the timeline in and opens a launch of the first stream. */
async function zoomed(page, { zoom }) {
  await page.locator('#timeline .group').first().waitFor();
  await page.locator('#timeline .stage').focus();
  for (let press = 0; press < zoom; press++) await page.keyboard.press('w');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.locator('#timeline .details h3').waitFor();
  await page.evaluate(() => document.activeElement.blur());
  // What this zoom lacks is fetched.
  await page.waitForLoadState('networkidle', { timeout: 3000 }).catch(() => {});
  await page.waitForTimeout(500);
  await page.locator('#timeline').evaluate((section) => section.scrollIntoView());
}

/**
 * Opens the page of the first kernel that is found by a name; with a server, moves the slider of
 * its block.
 */
async function openedKernel(page, name, isServed) {
  await page.locator('#kernels input[type=search]').fill(name);
  await page.locator('#kernels [data-kernel]').first().getByRole('link').click();
  await page.locator('dialog[open]').waitFor();
  if (isServed) {
    await page.locator('[data-slider=block]').focus();
    for (let press = 0; press < 8; press++) await page.keyboard.press('ArrowLeft');
    await page.locator('table[data-answer]:not([data-answer=""])').waitFor();
  }
  await page.evaluate(() => document.activeElement.blur());
  await page.locator('dialog[open]').evaluate((sheet) => (sheet.scrollTop = 0));
  await page.waitForTimeout(500);
}

const browser = await launch();
for (const { name, session, at, timeline, kernel, lines, width, height, scheme } of PICTURES) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  await page.goto((session ? pathToFileURL(`${folder}/${session}.html`).href : address) + at);
  await page.locator('#overview').waitFor();
  if (timeline) await zoomed(page, timeline);
  if (kernel) await openedKernel(page, kernel, !session);
  if (lines) {
    // Below the head of the sheet, which stays where it is.
    await page.locator('section:has(> #k-code)').evaluate((part) => {
      part.scrollIntoView();
      part.closest('dialog').scrollTop -= 64;
    });
  }
  await page.screenshot({ path: `${to}/${name}.png` });
  await page.close();
}
await panels(browser);
await browser.close();
