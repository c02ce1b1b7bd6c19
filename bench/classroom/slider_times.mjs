// How fast the classroom answers a slider: from the input event to figures on the page, the median and the slowest of 40.
//   tests/browser/run.sh bench/classroom/slider_times.mjs build/browser "$PWD/build/classroom/classroom.html"
import {launch, open} from './browser.mjs';

const page_file = process.argv[2];
const cases = {
  '8 stages x 64 micro-batches': '#model=llama3-8b&cluster=dgx-h100&gpus=8&pp=8&global-batch=64&seq-len=4096',
  '16 stages x 128 micro-batches': '#model=llama3.1-405b&cluster=dgx-h100&gpus=128&tp=8&sp&pp=16&global-batch=128&seq-len=8192&zero=1',
  '64 stages x 512 micro-batches': '#model=gpt3-175b&cluster=dgx-h100&gpus=64&pp=64&global-batch=512&seq-len=2048',
};
const browser = await launch();
console.log('case'.padEnd(32), 'median ms'.padStart(10), 'slowest ms'.padStart(11), 'of it the simulator'.padStart(20));
for (const [name, fragment] of Object.entries(cases)) {
  const page = await open(browser, page_file, {fragment});
  await page.waitForFunction(() => Number(document.querySelector('.workbench').dataset.answers) > 0);
  const times = await page.evaluate(async () => {
    const bench = document.querySelector('.workbench'), slider = bench.querySelector('[data-flag="micro-batches"]');
    const first = Number(slider.value), all = [];
    for (let i = 1; i <= 40; ++i) {  // each another plan: answers are remembered
      const before = bench.dataset.answers;
      slider.value = first - i;
      slider.dispatchEvent(new Event('input', {bubbles: true}));
      while (bench.dataset.answers === before) await new Promise((resolve) => setTimeout(resolve, 1));
      all.push([Number(bench.dataset.answerMs), Number(bench.dataset.engineMs)]);
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    return all.sort((a, b) => a[0] - b[0]);
  });
  const middle = times[times.length >> 1], last = times[times.length - 1];
  console.log(name.padEnd(32), middle[0].toFixed(1).padStart(10), last[0].toFixed(1).padStart(11), middle[1].toFixed(1).padStart(20));
  if (page.faults.length) console.log(page.faults);
  await page.context().close();
}
await browser.close();
