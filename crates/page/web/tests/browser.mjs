// Chromium for tests and screenshots: nothing but files, no network.
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

export const EXECUTABLE = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

export function launch() {
  const quiet = ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'];
  const still = ['--disable-component-update', '--disable-sync'];
  const root = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath: EXECUTABLE, args: [...quiet, ...still, ...root] });
}
