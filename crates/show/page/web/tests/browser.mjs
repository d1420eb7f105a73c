// Chromium for tests and screenshots: files and servers of this machine, no network.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

/**
 * Longer than anything here takes, even on a busy machine, ms: reaching it is a failure, not a
 * measurement.
 */
export const PATIENCE = 120_000;

export const EXECUTABLE = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

export function launch() {
  const quiet = ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'];
  const still = ['--disable-component-update', '--disable-sync'];
  const root = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath: EXECUTABLE, timeout: PATIENCE, args: [...quiet, ...still, ...root] });
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** A page that shows a document, and what is wrong with it: errors, and requests to anybody else. */
export async function opened(browser, address) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  page.setDefaultTimeout(PATIENCE);
  const wrong = [];
  page.on('console', (message) => wrong.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  const { protocol, origin, href } = new URL(address);
  const own = protocol === 'file:' ? href.split('#')[0] : `${origin}/`;
  page.on('request', (request) => request.url().startsWith(own) || wrong.push(`request: ${request.url()}`));
  await page.goto(address);
  await page.locator('#overview').waitFor();
  return { page, wrong };
}

/**
 * Waits until what observes sizes has seen those of now: it is told after a frame, and what follows
 * is drawn in the next one.
 */
const laidOut = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));

/** Themes, narrow windows, and what axe finds in each. */
export async function fits(page, what) {
  await page.evaluate(AXE);
  for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [400, 'light'], [320, 'dark']]) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme: scheme });
    await laidOut(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${what}: ${wide} pixels wide in a window of ${width}`);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
    const found = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(' | ')}`);
    assert.deepEqual(found, [], `${what} at ${width}, ${scheme}`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}

/** The same, and the switch of themes by keyboard. */
export async function usable(page, what) {
  await fits(page, what);
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await background();
  await page.locator('.theme').focus();
  await page.keyboard.press('Enter');
  assert.notEqual(await background(), before, 'the switch changes the colours');
  await page.waitForURL(/theme=light/);
  // Back to the colours of the system.
  await page.evaluate(() => (location.hash = location.hash.replace(/&?theme=light/, '')));
}
