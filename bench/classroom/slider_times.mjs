// How fast the classroom answers a slider: from the input event to figures on the page, the median and the slowest of 40.
// First come the estimate's figures, then those of the played step, with pictures.
//   tests/browser/run.sh bench/classroom/slider_times.mjs build/browser "$PWD/build/classroom/classroom.html"
import {launch, open} from './browser.mjs';

const page_file = process.argv[2];
const cases = {
  '8 stages x 64 micro-batches': '#model=llama3-8b&cluster=dgx-h100&gpus=8&pp=8&global-batch=64&seq-len=4096',
  '16 stages x 128 micro-batches': '#model=llama3.1-405b&cluster=dgx-h100&gpus=128&tp=8&sp&pp=16&global-batch=128&seq-len=8192',
  '64 stages x 512 micro-batches': '#model=gpt3-175b&cluster=dgx-h100&gpus=64&pp=64&global-batch=512&seq-len=2048',
};
const browser = await launch();
const row = (...cells) => console.log(cells[0].padEnd(30), ...cells.slice(1).map((cell) => String(cell).padStart(13)));
row('milliseconds', 'estimate', 'slowest', 'played step', 'slowest', 'the simulator');
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
      all.push(['estimateMs', 'answerMs', 'engineMs'].map((name) => Number(bench.dataset[name])));
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    return all;
  });
  if (times.some((one) => one.some(Number.isNaN))) throw new Error(name + ': a plan was refused');
  const sorted = (i) => times.map((one) => one[i]).sort((a, b) => a - b);
  const middle = (i) => sorted(i)[times.length >> 1].toFixed(1), slowest = (i) => sorted(i).at(-1).toFixed(1);
  row(name, middle(0), slowest(0), middle(1), slowest(1), middle(2));
  if (page.faults.length) console.log(page.faults);
  await page.context().close();
}
await browser.close();
