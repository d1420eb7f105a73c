// Compares two sessions of `apex dashboard` in Chromium, and the numbers with those of `apex diff
// --json`.
//
//   node compare.mjs ADDRESS BEFORE AFTER DIFF.json [PICTURE.png]
//
// BEFORE and AFTER are identifiers; BEFORE has advice. Says what is wrong and exits with status 1.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { launch, opened, usable } from './browser.mjs';

const [address, before, after, file, picture] = process.argv.slice(2);
const diff = JSON.parse(readFileSync(file, 'utf8'));
const { comparison } = diff;

const browser = await launch();
try {
  const { page, wrong } = await opened(browser, `${address}#session=${before}`);
  // Advice that is marked as done stays so, in this browser.
  const rule = comparison.followed[0].rule;
  const mark = () => page.locator(`[data-rule=${rule}]`).getByRole('button', { name: 'done' });
  await mark().click();
  await page.reload();
  await mark().and(page.locator('[aria-pressed=true]')).waitFor();

  await page.goto(`${address}#session=${after}`);
  const panel = page.locator('#compare');
  const box = panel.getByRole('checkbox').first();
  await box.check();
  await panel.getByText(diff.verdict).waitFor();
  await page.waitForURL(new RegExp(`before=${before}`));
  const row = (name) => panel.locator(`[data-compared="${name}"]`);
  const shown = { 'Time of a step': comparison.step_ns, 'GPU time': comparison.gpu_time_ns, Launches: comparison.launches };
  for (const { account, time_ns } of comparison.accounts) shown[account] = time_ns;
  let rows = 0;
  for (const [name, change] of Object.entries(shown)) {
    if (!change?.before?.value && !change?.after?.value) continue;
    rows += 1;
    assert.equal(await row(name).getAttribute('data-ratio'), change.ratio === null ? null : String(change.ratio), name);
    const told = change.ratio === 1 ? 'the same' : change.significant === null ? 'cannot be told' : change.significant ? 'more than chance' : 'within chance';
    assert.ok((await row(name).textContent()).includes(told), `${name}: ${told}`);
  }
  assert.ok(rows > 3, 'there is something to compare');
  const followed = panel.locator('[data-followed]');
  assert.equal(await followed.count(), comparison.followed.length);
  for (const [place, one] of comparison.followed.entries()) {
    const attributes = await followed.nth(place).evaluate((row) => ({ ...row.dataset }));
    assert.deepEqual(attributes, { followed: one.rule, state: one.state, ...(one.kept && { kept: one.kept }) });
  }
  assert.ok((await followed.first().textContent()).includes('marked as done'));
  const functions = await panel.locator('[data-function]').evaluateAll((rows) => rows.map((row) => row.dataset.function));
  assert.deepEqual(functions, comparison.functions.slice(0, 10).map((one) => one.name));
  if (picture) {
    await panel.scrollIntoViewIfNeeded();
    await page.screenshot({ path: picture });
  }
  await usable(page, 'sessions that are compared');
  await box.uncheck();
  await panel.getByText(diff.verdict).waitFor({ state: 'detached' });
  assert.deepEqual(wrong, []);
} finally {
  await browser.close();
}
