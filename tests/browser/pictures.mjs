// The pictures of docs/classroom, docs/report (its search) and docs/scaling, of what is built now.
//   tests/browser/run.sh pictures.mjs build/browser "$PWD/build/classroom/classroom.html" "$PWD/build/release/cli/meshplan" "$PWD/docs"
import {join} from 'node:path';
import {command, launch, open, temporaryFolder} from './browser.mjs';

const [classroom, meshplan, docs] = process.argv.slice(2);
const folder = temporaryFolder();
const run = (...words) => command(meshplan, words, folder);
const browser = await launch();

// A picture of what `fragment` of the classroom shows when `act` is done, `height` pixels of it.
async function fromClassroom(name, fragment, height, act = async () => {}) {
  const page = await open(browser, classroom, {fragment, viewport: {width: 1280, height}});
  await act(page);
  if (await page.locator('.workbench').count()) await page.waitForFunction(() => document.querySelector('.workbench').dataset.thorough > 0);
  await page.waitForTimeout(500);
  await page.screenshot({path: join(docs, 'classroom', name)});
  if (page.faults.length) console.log(name, page.faults);
  await page.context().close();
}

// A picture of the part in `box` of a page that meshplan wrote.
async function fromPage(path, html, options, box) {
  const page = await open(browser, join(folder, html), {viewport: {width: 1200, height: 1000}, ...options});
  await page.waitForTimeout(500);
  const {x, y, width, height} = await box(page);
  await page.screenshot({path: join(docs, path), fullPage: true, clip: {x, y, width, height}});
  await page.context().close();
}

// From the top of the element that holds one thing to the end of the one that holds another.
const between = (first, last) => async (page) => {
  const top = await page.locator(first).first().boundingBox(), end = await page.locator(last).last().boundingBox(), margin = 12;
  return {x: Math.max(0, top.x - margin), y: top.y - margin, width: end.width + 2 * margin, height: end.y + end.height - top.y + 2 * margin};
};

await fromClassroom('workbench.png', '#model=llama3-8b&cluster=dgx-h100&gpus=16&global-batch=64&seq-len=4096&tp=2&sp&pp=4&zero=1', 1180);
await fromClassroom('lesson.png', '#at=lesson-1', 1250, async (page) => {
  await page.getByLabel('Your prediction').fill('60');
  await page.getByRole('button', {name: 'Answer'}).click();
  await page.waitForSelector('.explanation:not([hidden])', {timeout: 60000});
  await page.evaluate(() => {
    const slider = document.querySelector('[data-flag="global-batch"]');
    slider.value = Number(slider.value) + 3;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    window.scrollTo(0, 0);
  });
});
await fromClassroom('failures.png', '#at=workbench&model=llama3.1-405b&cluster=dgx-h100&gpus=16384&global-batch=2048&seq-len=8192&tp=8&sp&pp=16&zero=1&estimate&failures&days=54&storage-bandwidth=2000&checkpoint-seconds=60', 1180);
await fromClassroom('runs.png', '#at=runs', 1250);

run('plan', '--model', 'llama3-70b', '--cluster', 'dgx-h100', '--gpus', '128', '--global-batch', '1024', '--out', 'plan.json');
run('report', 'plan.json', '--search', '--out', 'report.html');
await fromPage('report/search.png', 'report.html', {colorScheme: 'dark'},
  between('h3:has-text("Tensor and pipeline")', 'svg[data-picture="pareto"]'));
run('scale', '--model', 'llama3-8b', '--cluster', 'dgx-h100', '--gpus', '8', '--global-batch', '512', '--seq-len', '4096', '--tp', '4', '--sp', '--dp', '2',
  '--micro-batch', '1', '--zero', '1', '--axis', 'dp', '--to', '2048', '--out', 'scale.html');
await fromPage('scaling/curves.png', 'scale.html', {}, between('#curves h2', '#curves svg'));
await browser.close();
