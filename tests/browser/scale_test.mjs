// The page of `meshplan scale`, opened as a person would. Usage: run.sh scale_test.mjs FOLDER MESHPLAN
import assert from 'node:assert/strict';
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import test, {after, before} from 'node:test';
import {command, launch, misplaced, open, saved, temporaryFolder} from './browser.mjs';

const meshplan = process.argv[2];
const folder = temporaryFolder();
const file = (name) => join(folder, name);
const run = (...words) => command(meshplan, words, folder, [0, 3]);
const data = (name) => JSON.parse(readFileSync(file(name), 'utf8'));
let browser;

before(async () => {
  run('simulate', '--model', 'llama3-8b', '--cluster', 'dgx-h100', '--global-batch', '128', '--seq-len', '4096', '--tp', '4', '--sp', '--dp', '2', '--zero', '1', '--out', 'plan.json');
  const curve = ['scale', 'plan.json', '--axis', 'dp', '--to', '256'];
  writeFileSync(file('plain.json'), run(...curve, '--json'));
  const points = data('plain.json').points.filter((one) => one.valid);
  writeFileSync(file('measured.csv'), 'devices,step_time_s\n' + points.map((one) => one.devices + ',' + one.step.step_time_s * 1.05).join('\n') + '\n');
  writeFileSync(file('dp.json'), run(...curve, '--measured', 'measured.csv', '--json', '--out', 'dp.html'));
  run('scale', 'plan.json', '--axis', 'tp', '--to', '128', '--out', 'tp.html');
  run('scale', '--model', 'gpt2-124m', '--cluster', 'dgx-h100', '--global-batch', '64', '--from', '1', '--to', '4', '--out', 'best.html');
  run('scale', '--model', 'llama3-70b', '--cluster', 'dgx-h100', '--global-batch', '8', '--axis', 'dp', '--to', '2', '--out', 'big.html');
  browser = await launch();
});
after(() => browser && browser.close());

// Opens a page, asks something of it, and sees that nothing went wrong meanwhile.
async function onPage(name, options, ask) {
  const page = await open(browser, file(name), options);
  try {
    await ask(page);
    assert.deepEqual(page.faults, []);
  } finally {
    await page.context().close();
  }
}

test('every section is there, with what the data holds', () => onPage('dp.html', {}, async (page) => {
  const curve = data('dp.json');
  assert.deepEqual(await page.$$eval('main > section', (all) => all.map((one) => one.id)), ['card', 'curves', 'shares', 'measured', 'points']);
  assert.match(await page.title(), /llama3-8b on dgx-h100, strong scaling over dp.* meshplan scale/);
  assert.deepEqual(await page.$$eval('svg[data-picture]', (all) => all.map((one) => one.dataset.picture)), ['speedup', 'efficiency', 'shares']);
  const rows = async (label) => page.locator(`table[aria-label="${label}"] tbody tr`).count();
  assert.equal(await rows('All sizes'), curve.points.length);
  assert.equal(await rows('Measured beside predicted'), curve.measured.points.length);
  assert.equal(await rows('Efficiency lost'), curve.points.filter((one) => one.valid).length);
  assert.equal(await page.locator('svg[data-picture="speedup"] circle').count(), curve.points.filter((one) => one.valid).length);
  const words = await page.locator('#card dl').first().innerText();
  for (const line of curve.card) assert.ok(words.includes(line.text), line.text);
}));

test('figures are those that the command prints', () => onPage('dp.html', {}, async (page) => {
  const printed = run('scale', 'plan.json', '--axis', 'dp', '--to', '256', '--no-iso-efficiency').split('\n');
  const cells = await page.$$eval('table[aria-label="All sizes"] tbody tr', (rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
  for (const row of cells.filter((one) => one[2] !== 'no plan')) {
    const [devices, degree, step, , , speedUp, efficiency, mfu] = row;
    assert.ok(printed.some((line) => new RegExp(`^ *${devices} +${degree} +${step} .* ${speedUp} +${efficiency} +${mfu} `).test(line)), row.join(' | '));
  }
}));

test('a size is described under the pointer', async () => {
  await onPage('tp.html', {}, async (page) => {
    await page.locator('svg[data-picture="speedup"] circle').nth(1).hover();
    assert.match(await page.locator('#tip').innerText(), /16 devices: .* times the work a second\n80 % interval .*\nefficiency /);
  });
  await onPage('dp.html', {}, async (page) => {
    await page.locator('svg[data-picture="efficiency"] rect').last().hover();
    assert.match(await page.locator('#tip').innerText(), /^measured on .*: /);
  });
});

for (const name of ['dp', 'tp', 'best', 'big'])
  for (const width of [1280, 390])
    test(`${name}: nothing overlaps or is cut off at ${width} pixels`, () => onPage(name + '.html', {viewport: {width, height: 900}}, async (page) => {
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width);
      assert.deepEqual(await page.$$eval('svg[data-picture]', misplaced), []);
      assert.doesNotMatch(await page.locator('main').innerText(), /NaN|undefined|\[object|Infinity|null/);
    }));

test('sizes without a plan, or that do not fit, say why', async () => {
  await onPage('tp.html', {}, async (page) => assert.match(await page.locator('#card').innerText(), /no plan: num_heads/));
  await onPage('big.html', {}, async (page) => assert.match(await page.locator('#card').innerText(), /does not fit: stage 0 needs/));
});

test('every picture is saved as an SVG that stands by itself', () => onPage('dp.html', {colorScheme: 'dark'}, async (page) => {
  const buttons = page.getByRole('button', {name: /as SVG/});
  assert.equal(await buttons.count(), 3);
  for (let i = 0; i < 3; ++i) {
    const {name, text} = await saved(page, () => buttons.nth(i).click());
    assert.match(name, /^[a-z]+\.svg$/);
    assert.doesNotMatch(text, /var\(|NaN|undefined|Infinity/, name);
  }
}));
