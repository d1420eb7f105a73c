// Makes one file of the page: script and style stand inside of it. The content security policy names the script by its
// hash, so that no other can run, and lets the page ask no host for anything.
import { createHash } from 'node:crypto';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

const inline = {
  name: 'one-file',
  enforce: 'post',
  generateBundle(_, bundle) {
    const find = (ending) => Object.values(bundle).find((file) => file.fileName.endsWith(ending));
    const [page, script, style] = [find('.html'), find('.js'), find('.css')];
    const code = `\n${script.code.trim().replaceAll('</script', '<\\/script')}\n`;
    const hash = createHash('sha256').update(code).digest('base64');
    const policy = `default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'`;
    page.source = page.source
      .replace(/<script type="module"[^>]*><\/script>\s*/, '')
      .replace(/<link rel="stylesheet"[^>]*>/, () => `<style>\n${style.source.trim()}\n</style>`)
      .replace('<!--policy-->', () => `<meta http-equiv="Content-Security-Policy" content="${policy}">`)
      .replace('<!--script-->', () => `<script type="module">${code}</script>`);
    page.fileName = 'page.html';
    delete bundle[script.fileName];
    delete bundle[style.fileName];
  },
};

export default defineConfig({
  plugins: [svelte({ emitCss: true }), inline],
  build: {
    outDir: process.env.APEX_PAGE_OUT ?? '../built',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  logLevel: 'warn',
});
