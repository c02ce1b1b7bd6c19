// The page of `meshplan report`, opened as a person would. Usage: run.sh report_test.mjs FOLDER MESHPLAN
import assert from 'node:assert/strict';
import {readFileSync, statSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import test, {after, before} from 'node:test';
import {command, launch, misplaced, open, saved, temporaryFolder} from './browser.mjs';

const meshplan = process.argv[2];
const folder = temporaryFolder();
const file = (name) => join(folder, name);
const run = (...words) => command(meshplan, words, folder, [0, 3]);
const data = (name) => JSON.parse(readFileSync(file(name), 'utf8'));
let browser, shared;

// A run that took a tenth longer than predicted, but for some operations.
function pretendToMeasure(trace) {
  trace.measured = true;
  trace.source = 'a machine';
  trace.step_times_s = [1.4, 1.15, 1.1, 1.12, 1.09].map((factor) => factor * trace.step_times_s[0]);
  trace.peak_memory_bytes *= 1.05;
  delete trace.plan.cluster_hash;  // numbers are spelled otherwise in what this script writes
  for (const span of trace.spans) {
    span.start_s *= 1.1;
    span.end_s *= span.name.startsWith('attention') ? 1.1005 : 1.1;
  }
  return trace;
}

before(async () => {
  const llama = ['--model', 'llama3-8b', '--cluster', 'dgx-h100', '--gpus', '16', '--global-batch', '16', '--seq-len', '4096'];
  run('plan', ...llama, '--pp', '4', '--tp', '2', '--schedule', '1f1b', '--out', 'plan.json');
  run('simulate', 'plan.json', '--trace', 'predicted.json');
  writeFileSync(file('measured.json'), JSON.stringify(pretendToMeasure(data('predicted.json'))));
  run('report', 'plan.json', '--out', 'plain.html');
  const full = ['report', 'plan.json', '--measured', 'measured.json', '--search', '--max', 'pp=4'];
  writeFileSync(file('full.json'), run(...full, '--json', '--out', 'full.html'));
  browser = await launch();
  shared = await open(browser, file('full.html'));
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

// For tests of full.html that need no page of their own.
async function inSharedPage(ask) {
  try {
    await ask(shared);
    assert.deepEqual(shared.faults, []);
  } finally {
    shared.faults.length = 0;
  }
}

const view = (page) => page.$eval('canvas', (canvas) => ({...canvas.dataset, width: +canvas.dataset.to - +canvas.dataset.from}));

// The next frame after the view has changed.
async function changed(page, act) {
  const {draws} = await view(page);
  await act();
  await page.waitForFunction((before) => +document.querySelector('canvas').dataset.draws > before, +draws);
  return view(page);
}

async function canvasBox(page) {
  await page.locator('canvas').scrollIntoViewIfNeeded();
  return page.locator('canvas').boundingBox();
}

test('the page is small and whole', () => {
  const html = readFileSync(file('plain.html'), 'utf8');
  const packed = [...html.matchAll(/<script type="application\/json" id="data">([^]*?)<\/script>/g)];
  assert.equal(packed.length, 1);
  assert.ok(html.length - packed[0][1].length < 300e3, 'the page without its data');
  assert.doesNotMatch(html.replace(packed[0][1], ''), /(src|href)="?https?:/);
});

test('every section is there, with what the data holds', () => inSharedPage(async (page) => {
  const page_data = data('full.json');
  assert.deepEqual(await page.$$eval('main > section', (all) => all.map((one) => one.id)),
    ['overview', 'timeline', 'step', 'comparison', 'memory', 'traffic', 'mesh', 'search']);
  assert.equal(await page.locator('h1').textContent(), page_data.title);
  assert.match(await page.title(), /llama3-8b on dgx-h100.*meshplan report/);
  assert.equal(await page.locator('nav a').count(), 8);
  const rows = async (label) => page.locator(`table[aria-label="${label}"] tbody tr`).count();
  assert.equal(await rows('Ranked plans'), page_data.search.outcome.ranked.length);
  assert.equal(await rows('Where the step goes'), page_data.parts.filter((part) => part.seconds !== 0).length + 1);
  assert.equal(await rows('Time of each stage'), 4);
  assert.equal(await rows('How well each term is known'), page_data.terms.length);
  assert.equal(await rows('Peak memory of each stage'), 4);
  assert.equal(await rows('The best plan of each tp and pp'), page_data.search.cells.length);
  assert.equal(await rows('Plans of which none is both faster and smaller'), page_data.search.frontier.length);
  assert.deepEqual(await page.$$eval('svg[data-picture]', (all) => all.map((one) => one.dataset.picture)),
    ['waterfall', 'stages', 'sensitivity', 'intervals', 'gap', 'memory', 'traffic', 'mesh', 'heatmap', 'pareto']);
  assert.equal(await page.locator('svg[data-picture="mesh"] rect[rx="2"]').count(), 16);
  const marks = await page.$$eval('svg[data-picture="heatmap"] text', (all) => all.map((one) => one.textContent));
  for (const cell of page_data.search.cells) assert.ok(marks.includes(String(cell.tp)) && marks.includes(String(cell.pp)));
}));

test('figures are those that the command prints', () => inSharedPage(async (page) => {
  const printed = run('simulate', 'plan.json');
  const cards = await page.$$eval('.card b', (all) => all.map((one) => one.textContent));
  const [, step] = /step time {2}([\d.]+ \w+)/.exec(printed);
  const [, memory] = /fits: ([\d.]+ GiB)/.exec(printed);
  const [, mfu] = /MFU ([\d.]+ %)/.exec(printed);
  assert.equal(cards[0], step);
  assert.ok(cards.includes(memory) && cards.includes(mfu), cards.join(', '));
  const explained = run('explain', 'plan.json');
  for (const [words, time] of await page.$$eval('table[aria-label="Where the step goes"] tbody tr',
    (rows) => rows.map((row) => [row.cells[0].textContent, row.cells[1].textContent])))
    if (/^-?[\d.]+ m?s$/.test(time) && explained.includes(words))
      assert.ok(explained.split('\n').some((line) => line.includes(words) && line.includes(time)), words + ' ' + time);
  const compared = run('compare', 'predicted.json', 'measured.json', '--operations', '3');
  const first = await page.locator('table[aria-label="Operations, largest difference first"] tbody tr td').first().textContent();
  assert.ok(compared.split('\n').some((line) => line.startsWith(first + ' ')), first);
}));

test('the wheel, buttons, keys and a drag move the timeline', () => onPage('full.html', {}, async (page) => {
  const whole = await view(page);
  const box = await canvasBox(page);
  const [x, y] = [box.x + box.width * 0.6, box.y + 60];
  await page.mouse.move(x, y);
  const near = await changed(page, () => page.mouse.wheel(0, -400));
  assert.ok(near.width < whole.width * 0.7);
  const at = (one) => +one.from + (x - box.x - 134) / (box.width - 134) * one.width;
  assert.ok(Math.abs(at(near) - at(whole)) < 0.01 * whole.width, 'what is under the pointer stays there');
  const far = await changed(page, () => page.mouse.wheel(0, 200));
  assert.ok(far.width > near.width);

  const before = await view(page);
  await page.mouse.down();
  const dragged = await changed(page, () => page.mouse.move(x - 150, y, {steps: 3}));
  await page.mouse.up();
  assert.ok(+dragged.from > +before.from && Math.abs(dragged.width - before.width) < 1);

  await page.locator('canvas').focus();
  const keyed = await changed(page, () => page.keyboard.press('+'));
  assert.ok(keyed.width < dragged.width);
  assert.ok(+(await changed(page, () => page.keyboard.press('ArrowRight'))).from > +keyed.from);
  assert.ok((await changed(page, () => page.keyboard.press('-'))).width > keyed.width);
  assert.equal((await changed(page, () => page.keyboard.press('Home'))).width, whole.width);
  assert.ok((await changed(page, () => page.getByRole('button', {name: 'Zoom in'}).click())).width < whole.width);
  assert.equal((await changed(page, () => page.getByRole('button', {name: 'Show the whole step'}).click())).width, whole.width);
  for (let i = 0; i < 60; ++i) await page.keyboard.press('+');
  await page.locator('canvas').focus();
  for (let i = 0; i < 60; ++i) await page.keyboard.press('+');
  await page.waitForFunction(() => +document.querySelector('canvas').dataset.to - +document.querySelector('canvas').dataset.from <= 1000);  // single operations
}));

test('two fingers zoom', () => onPage('full.html', {hasTouch: true}, async (page) => {
  const whole = await view(page);
  const box = await canvasBox(page);
  const session = await page.context().newCDPSession(page);
  const fingers = (apart) => [-1, 1].map((side, id) => ({x: box.x + box.width / 2 + side * apart, y: box.y + 60, id}));
  await session.send('Input.dispatchTouchEvent', {type: 'touchStart', touchPoints: fingers(50)});
  for (const apart of [70, 100, 140, 200])
    await session.send('Input.dispatchTouchEvent', {type: 'touchMove', touchPoints: fingers(apart)});
  await session.send('Input.dispatchTouchEvent', {type: 'touchEnd', touchPoints: []});
  await page.waitForFunction((most) => +document.querySelector('canvas').dataset.to - +document.querySelector('canvas').dataset.from < most, whole.width * 0.6);
}));

test('the page scrolls where the timeline has nothing to zoom out to', () => inSharedPage(async (page) => {
  const box = await canvasBox(page);
  await page.mouse.move(box.x + 300, box.y + 50);
  const before = await page.evaluate(() => scrollY);
  await page.mouse.wheel(0, 300);
  await page.waitForFunction((y) => scrollY > y, before);
}));

test('an operation is described under the pointer, and by keys for a screen reader', () => inSharedPage(async (page) => {
  const box = await canvasBox(page);
  await page.mouse.move(box.x + box.width * 0.5, box.y + 36);
  const tip = await page.locator('#tip').innerText();
  assert.match(tip, /predicted: [\d.]+ (s|ms|\u00b5s), from/);
  assert.match(tip, /measured: .* predicted against measured/);
  assert.match(tip, /stage 0, rank 0, lane compute/);
  await page.mouse.move(5, 5);
  assert.equal(await page.locator('#tip').isVisible(), false);

  const canvas = page.locator('canvas');
  assert.match(await canvas.getAttribute('aria-label'), /Timeline from 0 to .* operations in sight/);
  assert.equal(await canvas.getAttribute('tabindex'), '0');
  await canvas.focus();
  const live = page.locator('[aria-live="polite"]');
  await page.keyboard.press('n');
  const first = await live.textContent();
  assert.match(first, /; predicted: /);
  await page.keyboard.press('n');
  assert.notEqual(await live.textContent(), first);
  await page.keyboard.press('p');
  assert.equal(await live.textContent(), first);
  await page.keyboard.press('j');
  assert.match(await live.textContent(), /lane (?!compute)/);
  const before = await view(page);
  assert.ok((await changed(page, () => page.keyboard.press('Enter'))).width < before.width);
  await page.keyboard.press('Escape');
  assert.equal(await live.textContent(), '');
}));

test('predicted, measured, lanes and ranks can be chosen', () => onPage('full.html', {}, async (page) => {
  const both = +(await view(page)).bars;
  const predicted = +(await changed(page, () => page.getByLabel('Show', {exact: true}).selectOption('predicted'))).bars;
  assert.ok(predicted > 0 && predicted < both);
  const computing = +(await changed(page, () => page.getByLabel('Lanes').selectOption('compute'))).bars;
  assert.ok(computing > 0 && computing < predicted);
}));

test('every picture has a name, a caption and a table beside it', () => inSharedPage(async (page) => {
  for (const label of await page.$$eval('svg[data-picture]', (all) => all.map((one) => one.getAttribute('aria-label'))))
    assert.ok(label.length > 15, label);
  for (const name of await page.$$eval('button', (all) => all.map((one) => one.getAttribute('aria-label')))) assert.ok(name);
  assert.equal(await page.$$eval('main select', (all) => all.filter((one) => !one.closest('label')).length), 0);
  const levels = await page.$$eval('h1, h2, h3', (all) => all.map((one) => +one.tagName[1]));
  levels.reduce((before, level) => { assert.ok(level <= before + 1); return level; });
  assert.ok(await page.locator('details table').count() >= 6);
}));

for (const width of [1280, 768, 390])
  test(`nothing overlaps or is cut off at ${width} pixels`, () => onPage('full.html', {viewport: {width, height: 900}}, async (page) => {
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width);
    assert.deepEqual(await page.$$eval('svg[data-picture]', misplaced), []);
  }));

test('light and dark, as the system says or as asked', async () => {
  const ground = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await inSharedPage(async (page) => assert.equal(await ground(page), 'rgb(255, 255, 255)'));
  await onPage('full.html', {colorScheme: 'dark'}, async (page) => {
    const dark = await ground(page);
    assert.notEqual(dark, 'rgb(255, 255, 255)');
    await page.getByLabel('Colours').selectOption('light');
    assert.equal(await ground(page), 'rgb(255, 255, 255)');
    await page.getByLabel('Colours').selectOption('dark');
    assert.equal(await ground(page), dark);
  });
});

test('it prints: on white, without controls, on several pages', () => onPage('full.html', {colorScheme: 'dark'}, async (page) => {
  const pdf = await page.pdf({format: 'A4', printBackground: true});
  assert.equal(pdf.subarray(0, 5).toString(), '%PDF-');
  await page.emulateMedia({media: 'print'});
  for (const hidden of ['.bar', '.controls', '.keys', 'button'])
    assert.equal(await page.locator(hidden).first().isVisible(), false, hidden);
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  await page.evaluate(() => dispatchEvent(new Event('afterprint')));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
}));

test('every picture is saved as an SVG that stands by itself', () => inSharedPage(async (page) => {
  const buttons = page.getByRole('button', {name: /as SVG/});
  const count = await buttons.count();
  assert.equal(count, 11);
  for (let i = 0; i < count; ++i) {
    if (i === 6) await page.waitForTimeout(1500);  // Chromium drops what is beyond 10 files at once
    const {name, text} = await saved(page, () => buttons.nth(i).click());
    assert.match(name, /^[a-z]+\.svg$/);
    assert.doesNotMatch(text, /var\(|NaN|undefined|Infinity/, name);
    const root = await page.evaluate((svg) => {
      const parsed = new DOMParser().parseFromString(svg, 'image/svg+xml');
      return {error: parsed.querySelector('parsererror')?.textContent, tag: parsed.documentElement.tagName,
        shapes: parsed.querySelectorAll('rect, path, circle').length, texts: parsed.querySelectorAll('text').length,
        width: +parsed.documentElement.getAttribute('width'), height: +parsed.documentElement.getAttribute('height')};
    }, text);
    assert.equal(root.error, undefined, name);
    assert.equal(root.tag, 'svg');
    assert.ok(root.shapes > 1 && root.texts > 2 && root.width > 300 && root.height > 40, `${name}: ${JSON.stringify(root)}`);
  }
}));

test('the trace is saved for Perfetto', () => inSharedPage(async (page) => {
  const {name, text} = await saved(page, () => page.getByRole('button', {name: /Save the trace/}).click());
  assert.equal(name, 'trace.json');
  const events = JSON.parse(text).traceEvents;
  const spans = [data('predicted.json'), data('measured.json')].flatMap((trace) => trace.spans);
  const slices = events.filter((event) => event.ph === 'X');
  assert.equal(slices.length, spans.length);
  const sum = (all, of) => all.reduce((total, one) => total + of(one), 0);
  const microseconds = sum(spans, (span) => (span.end_s - span.start_s) * 1e6);
  assert.ok(Math.abs(sum(slices, (event) => event.dur) - microseconds) < 1e-4 * microseconds);
  assert.deepEqual(new Set(events.filter((event) => event.name === 'process_name').map((event) => event.args.name.replace(/\d+/, 'N'))),
    new Set(['rank N predicted', 'rank N measured']));
}));

test('names from files are text, whatever they hold', async () => {
  const plan = data('plan.json');
  const hostile = '</script><img src=x onerror=alert(1)>&amp;"\'<!--';
  const trace = data('measured.json');
  for (const one of [plan, trace.plan]) one.model.name = hostile;
  for (const one of [plan, trace.plan]) for (const hash of ['model_hash', 'cluster_hash']) delete one[hash];
  trace.spans[0].name = hostile;
  writeFileSync(file('hostile.json'), JSON.stringify(plan));
  writeFileSync(file('hostile_trace.json'), JSON.stringify(trace));
  run('report', 'hostile.json', '--measured', 'hostile_trace.json', '--out', 'hostile.html');
  await onPage('hostile.html', {}, async (page) => {
    assert.ok((await page.locator('h1').textContent()).includes('</script><img src=x onerror=alert(1)>'));
    assert.equal(await page.locator('img').count(), 0);
  });
});

test('plans of other kinds open: one rank, experts, long sequences, one that does not fit', async () => {
  const kinds = {
    one: ['--model', 'gpt2-124m', '--cluster', 'dgx-h100', '--global-batch', '4'],
    experts: ['--model', 'mixtral-8x7b', '--cluster', 'dgx-h100', '--tp', '2', '--sp', '--ep', '4', '--dp', '8', '--pp', '2', '--zero', '1', '--global-batch', '16', '--seq-len', '4096'],
    long: ['--model', 'llama3-8b', '--cluster', 'dgx-h100', '--cp', '4', '--tp', '2', '--dp', '2', '--global-batch', '8', '--seq-len', '8192', '--recompute', 'full'],
    big: ['--model', 'llama3-70b', '--cluster', 'dgx-h100', '--tp', '8', '--global-batch', '8', '--seq-len', '8192'],
    zb: ['--model', 'llama3-8b', '--cluster', 'dgx-h100', '--pp', '4', '--vpp', '2', '--dp', '2', '--schedule', 'zb-v', '--global-batch', '16', '--seq-len', '4096'],
  };
  for (const [name, words] of Object.entries(kinds)) {
    run('simulate', ...words, '--out', name + '.json');
    run('report', name + '.json', '--out', name + '.html');
    await onPage(name + '.html', {}, async (page) => {
      assert.ok(+(await view(page)).bars > 0, name);
      assert.doesNotMatch(await page.locator('main').innerText(), /NaN|undefined|\[object|Infinity/, name);
      assert.deepEqual(await page.$$eval('svg[data-picture]', misplaced), [], name);
    });
  }
});

test('a step with too many operations says so, and shows fewer micro-batches or none', async () => {
  const shown = run('report', 'plan.json', '--bars', '5000', '--out', 'few.html');
  assert.match(shown, /of the \d+ micro-batches/);
  await onPage('few.html', {}, async (page) => {
    assert.match(await page.locator('.note').textContent(), /no more than 5,000 operations/);
    assert.ok(+(await view(page)).bars <= 5000);
  });
  run('report', 'plan.json', '--bars', '0', '--out', 'none.html');
  await onPage('none.html', {}, async (page) => {
    assert.match(await page.locator('.note').textContent(), /No timeline/);
    assert.equal(await page.locator('canvas').count(), 0);
  });
  assert.ok(statSync(file('none.html')).size < 300e3);
});
