// How fast the page of `meshplan report` is with half a million bars: until it is drawn, and while it is moved.
//   tests/browser/run.sh bench/reports/page_times.mjs build/browser build/release/cli/meshplan
import {statSync} from 'node:fs';
import {join} from 'node:path';
import {command, launch, open, temporaryFolder} from './browser.mjs';

const meshplan = process.argv[2];
const folder = temporaryFolder();
const browser = await launch();

// Frames a second while the timeline is panned by its keys for a while: requestAnimationFrame counts them.
async function framesWhile(page, act) {
  return page.evaluate(async (source) => {
    const step = new Function('i', source);
    let frames = 0, slowest = 0, last = performance.now();
    const begin = last;
    while (performance.now() - begin < 3000) {
      step(frames);
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      if (frames > 2) slowest = Math.max(slowest, now - last);
      last = now;
      ++frames;
    }
    return {perSecond: frames / (performance.now() - begin) * 1000, slowest};
  }, act);
}

const key = (name) => `document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: ${name}, bubbles: true}));`;
const cases = [
  ['4 stages', ['--model', 'llama3-70b', '--cluster', 'dgx-h100', '--tp', '4', '--sp', '--pp', '4', '--dp', '8', '--global-batch', '1024', '--seq-len', '8192', '--recompute', 'selective', '--zero', '1']],
  ['16 stages', ['--model', 'llama3.1-405b', '--cluster', 'dgx-h100', '--tp', '8', '--sp', '--pp', '16', '--dp', '8', '--global-batch', '1024', '--seq-len', '8192', '--recompute', 'full', '--zero', '1']],
  ['32 stages', ['--model', 'gpt3-175b', '--cluster', 'dgx-h100', '--tp', '2', '--sp', '--pp', '32', '--dp', '8', '--global-batch', '4096', '--seq-len', '2048', '--recompute', 'full', '--zero', '1']],
];
console.log('case'.padEnd(10), 'bars'.padStart(8), 'in sight'.padStart(9), 'file MiB'.padStart(9), 'drawn s'.padStart(8), 'draw ms'.padStart(8), 'pan/s'.padStart(7), 'slowest ms'.padStart(11), 'zoom/s'.padStart(7));
for (const [name, words] of cases) {
  command(meshplan, ['simulate', ...words, '--out', 'plan.json'], folder, [0, 3]);
  command(meshplan, ['report', 'plan.json', '--out', 'page.html'], folder, [0, 3]);
  const begin = performance.now();
  const page = await open(browser, join(folder, 'page.html'));
  const drawn = (performance.now() - begin) / 1000;
  const {total, bars, drawMs} = await page.$eval('canvas', (canvas) => ({...canvas.dataset}));
  for (const word of ['+']) await page.locator('canvas').press(word);  // so that there is something to pan
  const pan = await framesWhile(page, key("i % 20 < 10 ? 'ArrowRight' : 'ArrowLeft'"));
  const zoom = await framesWhile(page, key("i % 20 < 10 ? '+' : '-'"));
  console.log(name.padEnd(10), total.padStart(8), bars.padStart(9), (statSync(join(folder, 'page.html')).size / 2 ** 20).toFixed(1).padStart(9),
    drawn.toFixed(2).padStart(8), drawMs.padStart(8), pan.perSecond.toFixed(0).padStart(7), pan.slowest.toFixed(0).padStart(11),
    zoom.perSecond.toFixed(0).padStart(7));
  if (page.faults.length) console.log(page.faults);
  await page.context().close();
}
await browser.close();
