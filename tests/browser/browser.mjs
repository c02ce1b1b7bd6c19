// What the scripts of this folder share: a browser, a page that reports what goes wrong, and files that it saves.
import {execFileSync} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {chromium} from 'playwright-core';

export async function launch() {
  return chromium.launch({executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu']});
}

// A folder of its own, that is gone at the end.
export function temporaryFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'meshplan-browser-'));
  process.on('exit', () => rmSync(folder, {recursive: true, force: true}));
  return folder;
}

// Runs the command; exit codes other than `codes` are faults.
export function command(program, words, folder, codes = [0]) {
  try {
    return execFileSync(program, words, {cwd: folder, encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe']});
  } catch (error) {
    if (codes.includes(error.status)) return error.stdout;
    throw new Error(`${words.join(' ')}: exit code ${error.status}: ${error.stderr}`);
  }
}

// Opens a file, at `options.fragment` of it. `page.faults` collects errors, warnings and requests that leave the page.
export async function open(browser, file, options = {}) {
  const {fragment = '', ...rest} = options;
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, acceptDownloads: true, ...rest});
  context.setDefaultTimeout(180000);  // only what never happens fails, also on a slow machine
  const page = await context.newPage();
  page.faults = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) page.faults.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => page.faults.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => { page.faults.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => {
    const url = request.url();
    if (url.split('#')[0] !== 'file://' + file && !/^(blob|data):/.test(url)) page.faults.push(`request: ${url}`);
  });
  await page.goto('file://' + file + fragment);
  await page.waitForSelector('html[data-ready]');
  return page;
}

// What a click makes the page save.
export async function saved(page, click) {
  const [download] = await Promise.all([page.waitForEvent('download'), click()]);
  return {name: download.suggestedFilename(), text: readFileSync(await download.path(), 'utf8')};
}

// Texts of a picture that lie on one another, or outside of it.
export const misplaced = (pictures) => pictures.flatMap((picture) => {
  const frame = picture.getBoundingClientRect(), faults = [];
  const boxes = [...picture.querySelectorAll('text')].map((one) => ({text: one.textContent, box: one.getBoundingClientRect()}));
  boxes.forEach(({text, box}, i) => {
    if (box.left < frame.left - 2 || box.right > frame.right + 2) faults.push(`${picture.dataset.picture}: outside: ${text}`);
    for (const other of boxes.slice(i + 1))
      if (Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left) > 1 &&
          Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top) > 4)
        faults.push(`${picture.dataset.picture}: "${text}" on "${other.text}"`);
  });
  return faults;
});
