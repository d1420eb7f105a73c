// Pictures of the page for the docs: `node pictures.mjs FOLDER ADDRESS TO`; scripts/page_pictures.sh says of what. Pictures
// without a session are of the dashboard at the address.
import { pathToFileURL } from 'node:url';
import { launch } from './browser.mjs';

const [folder, address, to] = process.argv.slice(2);
const PICTURES = [
  { name: 'page', session: 'torch-eager_training', at: '', width: 1280, height: 1400, scheme: 'light' },
  { name: 'page-dark', session: 'torch-llama_eager', at: '#at=places', width: 1280, height: 1000, scheme: 'dark' },
  { name: 'page-narrow', session: 'torch-llama_eager', at: '', width: 400, height: 1100, scheme: 'light' },
  { name: 'dashboard', at: '', width: 1280, height: 1000, scheme: 'dark' },
  { name: 'dashboard-narrow', at: '#phase=all', width: 400, height: 1000, scheme: 'light' },
];

const browser = await launch();
for (const { name, session, at, width, height, scheme } of PICTURES) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  await page.goto((session ? pathToFileURL(`${folder}/${session}.html`).href : address) + at);
  await page.locator('#overview').waitFor();
  await page.screenshot({ path: `${to}/${name}.png` });
  await page.close();
}
await browser.close();
