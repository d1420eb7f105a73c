// Opens the page of `apex dashboard` in Chromium while a program is recorded.
//
//   node live.mjs ADDRESS FOLDER [PICTURE.png]
//
// The timeline follows the session, with an event selected, until that is deleted: it says so, asks
// nothing more, and keeps what it has shown. The program has launched 100 kernels. It launches 50
// more when FOLDER/more is made, and ends when FOLDER/end is. Its session is FOLDER/s. Says what is
// wrong and exits with status 1.
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { launch, opened, usable } from './browser.mjs';

const [address, folder, picture] = process.argv.slice(2);

const browser = await launch();
try {
  const { page, wrong } = await opened(browser, address);
  const launches = (count) => page.locator('dl.figures div', { hasText: 'Launches' }).getByText(String(count), { exact: false }).first().waitFor();
  const is = (state) => page.locator(`[data-state=${state}]`).waitFor();
  const press = (name) => page.getByRole('button', { name, exact: true }).click();
  await is('running');
  await launches('100');
  await usable(page, 'a session that runs');
  // Its last seconds, in the address too; and back.
  await press('Last 5 min');
  await page.getByText('The last seconds: from', { exact: false }).waitFor();
  await page.waitForURL(/last=300/);
  await launches('100');
  if (picture) await page.screenshot({ path: picture });
  // An event of the timeline, with the figures of its lanes: both are asked for again as the
  // session grows.
  const timeline = page.locator('#timeline');
  const stage = timeline.locator('.stage');
  await timeline.locator('.group').first().waitFor();
  await stage.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  const selected = timeline.locator('[data-event]');
  await selected.waitFor();
  await page.getByLabel('Table of the lanes shown').check();
  await timeline.locator('tr[data-lane]').first().waitFor();
  // Who reads holds the page: what is new comes afterwards.
  await press('Hold');
  writeFileSync(`${folder}/more`, '');
  await press('Hold');
  await launches('150');
  await press('Whole run');
  await page.waitForURL((url) => !/last=/.test(url.href));
  await launches('150');
  // Filters: what they leave empty is said, and what was shown stays.
  await page.getByText('Filters', { exact: true }).click();
  await page.getByLabel('Kernel', { exact: true }).fill('none*');
  await press('Apply');
  await page.getByRole('status').getByText('no kernel matches').waitFor();
  await page.waitForURL(/only=none/);
  await page.getByLabel('Window').fill('nonsense');
  await press('Apply');
  await page.getByRole('status').getByText('`nonsense` is no window').waitFor();
  assert.deepEqual(wrong.splice(0).filter((what) => !what.includes('400 (Bad Request)')), [], 'a refusal is all that the console tells');
  await page.getByLabel('Window').fill('');
  await page.getByLabel('Kernel', { exact: true }).fill('');
  await press('Apply');
  writeFileSync(`${folder}/end`, '');
  await is('ended');
  await launches('150');
  await usable(page, 'a session that has ended');
  rmSync(`${folder}/s`, { recursive: true });
  await is('deleted');
  await page.getByRole('status').getByText('the folder of the session s is gone').waitFor();
  await launches('150');
  await timeline.getByText('the timeline shows what was last known of it').waitFor();
  // What is shown stays, whatever is looked for; nobody is asked.
  const asked = [];
  page.on('request', (request) => request.url().includes('/timeline') && asked.push(request.url()));
  const event = await selected.getAttribute('data-event');
  await stage.focus();
  for (const key of ['.', 'w', 'w', 'm', 'd']) await page.keyboard.press(key);
  await timeline.locator('.table').getByText('nothing more can be looked up').waitFor();
  await page.keyboard.press('Home');
  assert.equal(await selected.getAttribute('data-event'), event);
  await usable(page, 'a session that is gone');
  assert.deepEqual(asked, []);
  assert.deepEqual(wrong, []);
} finally {
  await browser.close();
}
