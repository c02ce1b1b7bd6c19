// The classroom's page, used as a student and a teacher would. Usage: run.sh classroom_test.mjs FOLDER MESHPLAN PAGE
import assert from 'node:assert/strict';
import {existsSync, readFileSync, statSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import test, {after, before} from 'node:test';
import {command, launch, misplaced, open, saved, temporaryFolder} from './browser.mjs';

const [meshplan, classroom] = process.argv.slice(2);
if (!existsSync(classroom)) {
  console.log(`skipped: there is no ${classroom} (scripts/classroom.sh builds it)`);
  process.exit(77);
}
const folder = temporaryFolder();
const material = readFileSync(classroom, 'utf8').match(/<script type="application\/json" id="lessons">([^]*?)<\/script>/)[1];
const {lessons, quiz, runs, questions} = JSON.parse(material);
let browser, shared;

before(async () => {
  browser = await launch();
  shared = await open(browser, classroom);
});
after(() => browser && browser.close());

// Follows a link inside the page; it must lead elsewhere.
async function goTo(page, fragment) {
  await page.evaluate((hash) => {
    delete document.documentElement.dataset.ready;
    location.hash = hash;
  }, fragment);
  await page.waitForSelector('html[data-ready]');
}

// For tests that need no page of their own: opening one takes a second, for it unpacks the simulator.
async function inSharedPage(fragment, ask) {
  try {
    await goTo(shared, link('lessons'));  // a hash that stays the same is no navigation
    await goTo(shared, fragment);
    await ask(shared);
    assert.deepEqual(shared.faults, []);
  } finally {
    shared.faults.length = 0;
  }
}

async function onPage(fragment, options, ask) {
  const page = await open(browser, classroom, {fragment, ...options});
  try {
    await ask(page);
    assert.deepEqual(page.faults, []);
  } finally {
    await page.context().close();
  }
}

const words = (plan) => Object.entries(plan).flatMap(([flag, value]) => value === true ? ['--' + flag] : [value].flat().flatMap((one) => ['--' + flag, String(one)]));
const link = (at, plan = {}) => '#at=' + at + Object.entries(plan).map(([flag, value]) => value === true ? '&' + flag : [value].flat().map((one) => '&' + flag + '=' + encodeURIComponent(one)).join('')).join('');
const answers = (page) => page.$eval('.workbench', (one) => Number(one.dataset.answers || 0));

// The next answer of the workbench after something was done.
async function answered(page, act) {
  const count = await answers(page);
  await act();
  await page.waitForFunction((before) => Number(document.querySelector('.workbench').dataset.answers || 0) > before, count);
  return page.$eval('.workbench', (one) => Number(one.dataset.step));
}

// Where two answers differ by more than 1e-9 of a number's size; '' if nowhere.
function difference(a, b, path = '') {
  if (typeof a === 'number' && typeof b === 'number')
    return Math.abs(a - b) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b)) ? '' : `${path}: ${a} and ${b}`;
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object') return a === b ? '' : `${path}: ${a} and ${b}`;
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    const found = difference(a[key], b[key], path + '.' + key);
    if (found) return found;
  }
  return '';
}

function plansOf(lesson) {
  return Object.fromEntries(Object.entries(lesson.plans).map(([name, changes]) => [name,
    Object.fromEntries(Object.entries({...lesson.plans.start, ...changes}).filter(([, value]) => value !== false))]));
}

test('the page is one file that asks for no other', () => {
  const html = readFileSync(classroom, 'utf8');
  assert.ok(statSync(classroom).size < 4e6, 'bytes: ' + statSync(classroom).size);
  assert.doesNotMatch(html, /(src|href)="?https?:/);
  assert.match(html, /default-src 'none'/);
});

test('figures are those of the command, to 9 digits', () => inSharedPage(link('workbench'), async (page) => {
  const plans = [
    ...lessons.flatMap((lesson) => Object.values(plansOf(lesson))),
    {model: 'gpt2-124m', cluster: 'cpu-host', 'global-batch': 4, precision: 'fp32'},
    {model: 'llama3-8b', cluster: 'dgx-h100:1+dgx-a100:1', tp: 8, sp: true, pp: 2, 'global-batch': 8, 'seq-len': 4096},
    {model: 'llama3.1-405b', cluster: 'gb200-nvl72', gpus: 288, tp: 8, sp: true, pp: 9, 'global-batch': 64, 'seq-len': 8192, zero: 1, recompute: 'selective'},
    {model: 'llama3-8b', cluster: 'dgx-a100', gpus: 16, tp: 2, sp: true, pp: 4, vpp: 2, schedule: 'interleaved', 'global-batch': 16, 'layers-per-stage': '4,4,4,4,4,4,4,4'},
    {model: 'llama3-8b', cluster: 'dgx-h100', gpus: 8, 'global-batch': 8, 'seq-len': 8192, set: ['network=0.5', 'flops=1.1'], zero: 3},
    {model: 'qwen3-30b-a3b', cluster: 'dgx-b200', gpus: 16, ep: 8, 'global-batch': 32, 'seq-len': 4096, zero: 1},
  ];
  for (const plan of plans) {
    const printed = JSON.parse(command(meshplan, ['simulate', ...words(plan), '--json'], folder, [0, 3]));
    const shown = await page.evaluate((asked) => window.meshplan.ask('simulate', asked), words(plan));
    assert.equal(difference(printed, shown), '', words(plan).join(' '));
  }
}));

test('what the page shows of a step is what the page of `report` shows', () => inSharedPage(link('workbench'), async (page) => {
  const plan = {model: 'llama3-8b', cluster: 'dgx-h100', gpus: 16, tp: 2, sp: true, pp: 4, zero: 1, 'global-batch': 32, 'seq-len': 4096};
  command(meshplan, ['simulate', ...words(plan), '--out', 'plan.json'], folder, [0, 3]);
  const printed = JSON.parse(command(meshplan, ['report', 'plan.json', '--json'], folder, [0, 3]));
  const shown = await page.evaluate((asked) => window.meshplan.ask('page', asked), words(plan));
  for (const part of ['parts', 'memory', 'traffic', 'levels', 'sensitivities', 'mesh', 'words']) assert.equal(difference(printed[part], shown[part], part), '');
  assert.equal(shown.timelines[0].rows.length, printed.timelines[0].rows.length);
}));

test('the search finds what the command finds', () => inSharedPage(link('workbench'), async (page) => {
  const asked = ['--model', 'llama3-8b', '--cluster', 'dgx-h100', '--gpus', '8', '--global-batch', '32', '--seq-len', '4096', '--top', '3'];
  const printed = JSON.parse(command(meshplan, ['plan', ...asked, '--json'], folder));
  const shown = await page.evaluate((given) => window.meshplan.ask('plan', given), asked);
  assert.deepEqual(shown.ranked.map((one) => one.description), printed.ranked.map((one) => one.description));
  assert.equal(difference(printed.ranked.map((one) => one.step_time_s), shown.ranked.map((one) => one.step_time_s)), '');
}));

test('a slider changes the figures, the address and the command', () => inSharedPage(link('workbench'), async (page) => {
  await page.waitForFunction(() => Number(document.querySelector('.workbench').dataset.answers) > 0);
  const before = await page.$eval('.workbench', (one) => Number(one.dataset.step));
  const now = await answered(page, () => page.getByLabel('Sequences in a micro-batch').press('ArrowRight'));
  assert.notEqual(now, before);
  await page.waitForFunction(() => location.hash.includes('micro-batch=2'));
  const shown = await page.locator('.command code').textContent();
  assert.match(shown, /^meshplan simulate --model llama3-8b .*--micro-batch 2/);
  const printed = JSON.parse(command(meshplan, [...shown.split(' ').slice(1), '--json'], folder, [0, 3]));
  assert.ok(Math.abs(printed.step_time_s / now - 1) < 1e-9);
  await page.waitForFunction(() => document.querySelector('.workbench').dataset.thorough !== '' && document.querySelector('.workbench canvas'));
  assert.ok(await page.locator('canvas').isVisible());
}));

test('a plan is a link', async () => {
  const plan = {model: 'llama3-70b', cluster: 'dgx-h100', gpus: 64, tp: 8, sp: true, pp: 4, 'global-batch': 64, 'seq-len': 4096, zero: 1, set: ['network=0.5', 'nvlink=0.9']};
  await onPage(link('workbench', plan), {}, async (page) => {
    await page.waitForFunction(() => Number(document.querySelector('.workbench').dataset.answers) > 0);
    const printed = JSON.parse(command(meshplan, ['simulate', ...words(plan), '--json'], folder, [0, 3]));
    assert.ok(Math.abs(printed.step_time_s / await page.$eval('.workbench', (one) => Number(one.dataset.step)) - 1) < 1e-9);
    assert.equal(await page.locator('[data-flag="pp"]').getAttribute('aria-valuetext'), '4');
    assert.equal(await page.locator('[data-flag="set"]').inputValue(), 'network=0.5 nvlink=0.9');
  });
});

test('wrong links get a message, and the workbench', async () => {
  const wrong = {'#at=nowhere': /leads to "nowhere".*expected workbench/, '#model=llama3-8b&speed=9': /setting "speed"/, '#model=%E0%A4%A': /must be followed/,
    '#<script>alert(1)</script>': /setting "<script>alert\(1\)<\/script>"/, ['#' + 'tp=1&'.repeat(3000)]: /longer than any plan/, '#at=lesson-99': /leads to "lesson-99"/};
  const [opened, ...followed] = Object.keys(wrong);
  await onPage(opened, {}, async (page) => {
    const refused = async (fragment) => {
      assert.match(await page.locator('#message').textContent(), wrong[fragment], fragment.slice(0, 40));
      assert.equal(await page.locator('.workbench').count(), 1);
    };
    await refused(opened);
    for (const fragment of followed) {
      await goTo(page, fragment);
      await refused(fragment);
    }
    await goTo(page, link('lessons'));
    assert.equal(await page.locator('#message').isVisible(), false);
  });
});

test('a link is shown though the address follows the plan before', async () => {
  const [first, second] = [2, 4].map((tp) => link('workbench', {model: 'llama3-8b', cluster: 'dgx-h100', gpus: 8, 'global-batch': 64, tp}));
  await inSharedPage(first, async (page) => {
    await page.evaluate(([before, asked]) => {
      delete document.documentElement.dataset.ready;
      location.hash = asked;
      history.replaceState(null, '', before);  // as follow() does, where its turn comes before the new link's
    }, [first, second]);
    await page.waitForSelector('html[data-ready]');
    await page.waitForFunction(() => Number(document.querySelector('.workbench').dataset.answers) > 0);
    assert.match(await page.locator('.command code').textContent(), /--tp 4/);
    await page.waitForFunction(() => location.hash.includes('&tp=4'));
  });
});

test('a plan that cannot be gets the command\u2019s refusal', async () => {
  const wrong = [{model: 'llama3-9b', cluster: 'dgx-h100', gpus: 8, 'global-batch': 8}, {model: 'llama3-8b', cluster: 'dgx-h100', gpus: 8, 'global-batch': 8, tp: 3},
    {model: 'llama3-8b', cluster: 'plan.json', gpus: 8, 'global-batch': 8}, {model: 'llama3-8b', cluster: 'dgx-h100', gpus: 'many', 'global-batch': 8}];
  await inSharedPage(link('workbench'), async (page) => {
    for (const plan of wrong) {
      await goTo(page, link('workbench', plan));
      await page.waitForFunction(() => Number(document.querySelector('.workbench').dataset.answers) > 0);
      const said = await page.locator('.results > .note').textContent();
      assert.ok(said.length > 20, JSON.stringify(plan));
      if (plan.cluster !== 'plan.json') {
        let refused = '';
        try { command(meshplan, ['simulate', ...words(plan)], folder); } catch (error) { refused = error.message; }
        assert.ok(refused.includes(said.split(', and there is no such file')[0].slice(0, 60)), said + ' / ' + refused);
      } else {
        assert.match(said, /a page reads no files/);
      }
    }
  });
});

// A plan that does what a lesson asks to try.
const solutions = {
  'lesson-1': {'global-batch': 512},
  'lesson-2': {tp: 2},
  'lesson-3': {'global-batch': 256},
  'lesson-4': {schedule: 'interleaved', vpp: 5},
  'lesson-5': {'micro-batch': 1},
  'lesson-6': {zero: 1},
  'lesson-7': {'context-parallel': 'ulysses'},
  'lesson-8': {'expert-imbalance': '1.5', recompute: 'selective', zero: 2},
  'lesson-9': {tp: 1, sp: false, zero: 2, recompute: false},
  'lesson-10': {gpus: 512, 'global-batch': 4096},
  'lesson-11': {'checkpoint-interval': false, 'checkpoint-seconds': false, checkpoints: 'partner', 'spare-nodes': 12},
};
for (const lesson of lessons)
  test(`${lesson.id} opens, judges a prediction and sees its task done`, () => inSharedPage(link(lesson.id), async (page) => {
    assert.match(await page.locator('h1').textContent(), /^Lesson \d+: /);
    assert.equal(await page.locator('#message').isVisible(), false);
    const body = () => page.locator('main').innerText();
    assert.doesNotMatch(await body(), /NaN|undefined|Infinity|\[object|\{\w/);
    assert.equal(await page.locator('.explanation').isVisible(), false);
    assert.equal(await page.locator('svg[data-picture="goodput-interval"]').count(), 0);
    await page.getByLabel('Your prediction').fill('much');
    await page.getByRole('button', {name: 'Answer'}).click();
    assert.match(await body(), /Expected a number/);
    await page.getByLabel('Your prediction').fill('1');
    await page.getByRole('button', {name: 'Answer'}).click();
    await page.waitForSelector('.explanation:not([hidden])');
    const verdict = await page.locator('#predict [role="status"]').innerText();
    if (lesson.id === 'lesson-11') await page.waitForSelector('svg[data-picture="goodput-interval"]');  // before the prediction it would tell
    assert.match(verdict, /The simulator says/);
    assert.doesNotMatch(await body(), /NaN|undefined|Infinity|\[object|\{\w/);
    assert.equal(await page.locator('.checks li').count(), lesson.try.checks.length);
    assert.ok(await page.locator('.checks li.good').count() < lesson.try.checks.length, 'the plan at the start does not reach the goal');
    const plan = {...lesson.plans.start, ...solutions[lesson.id]};
    for (const flag of Object.keys(plan)) if (plan[flag] === false) delete plan[flag];
    await goTo(page, link(lesson.id, plan));
    if (lesson.search) {
      await page.getByRole('button', {name: 'Answer'}).click();
      await page.waitForSelector('.explanation:not([hidden])');
    }
    await page.waitForFunction(() => [...document.querySelectorAll('#try [role="status"]')].some((one) => /Reached, with/.test(one.textContent)))
      .catch(async () => assert.fail(await page.locator('.checks').innerText() + '\n' + await page.locator('.results').innerText().then((text) => text.slice(0, 400))));
    assert.match(await page.locator('#laptop pre').first().textContent(), /^meshplan lesson \d+$/);
    assert.match(await page.locator('#laptop details pre').first().textContent(), /meshplan run small\.json/);
  }));

// Daly 2006, equation 37: the best training time between checkpoints that stop it for d seconds, where failures come every M.
const daly = (d, M) => Math.sqrt(2 * d * M) * (1 + Math.sqrt(d / (2 * M)) / 3 + d / (18 * M)) - d;
test('failures: sliders give the command\u2019s figures, and the curve is highest at the best interval', async () => {
  const plan = {model: 'llama3-70b', cluster: 'dgx-h100', gpus: 1024, tp: 8, sp: true, pp: 4, zero: 1, 'global-batch': 1024, 'seq-len': 8192, failures: true, mtbf: '20000h', 'checkpoint-seconds': 30};
  await onPage(link('workbench', plan), {}, async (page) => {
    const drawn = () => page.waitForFunction(() => document.querySelector('.workbench').dataset.thorough > 0);
    await drawn();
    const marked = await page.locator('svg[data-picture="goodput-interval"]').evaluate((one) => {
      const points = [...one.querySelector('path').getAttribute('d').matchAll(/[ML]([\d.]+) ([\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
      const [top] = points.sort((a, b) => a[1] - b[1]), dashed = [...one.querySelectorAll('line[stroke-dasharray]')][0];
      return {words: one.textContent.match(/best: ([\d.]+) min/)[1], top: top[0], best: Number(dashed.getAttribute('x1')), apart: Math.max(...points.map((point) => point[0])) / points.length};
    });
    assert.ok(Math.abs(Number(marked.words) * 60 / daly(30, 20000 * 3600 / 1024) - 1) < 5e-3, marked.words);
    assert.ok(Math.abs(marked.top - marked.best) <= 1.1 * marked.apart, JSON.stringify(marked));
    await page.getByRole('button', {name: 'Keep these figures'}).click();
    const step = await answered(page, () => page.locator('[data-flag="checkpoints"]').selectOption('partner'));
    const shown = (await page.locator('.command code').textContent()).split(' ').slice(1);
    const printed = JSON.parse(command(meshplan, [...shown, '--json'], folder));
    assert.ok(shown.includes('--checkpoints') && Math.abs(printed.effective_step_s / step - 1) < 1e-9);
    assert.ok((await page.locator('.cards').innerText()).includes((100 * printed.played.parts.useful).toFixed(1) + ' %'));
    assert.match(await page.locator('svg[data-picture="time-parts"]').textContent(), /this job[^]*kept[^]*file system/);
    await drawn();
    await page.evaluate(() => { delete document.documentElement.dataset.ready; });
    await page.getByRole('link', {name: 'Its step without failures'}).click();
    await page.waitForSelector('html[data-ready]');
    await page.waitForFunction(() => Number(document.querySelector('.workbench').dataset.answers) > 0);
    assert.doesNotMatch(await page.locator('.command code').textContent(), /failures|mtbf|checkpoint/);
    assert.match(await page.getByRole('link', {name: 'What failures cost it'}).getAttribute('href'), /&failures/);
  });
});

test('the small plans of a lesson are ones that simulate takes', () => {
  for (const {laptop} of lessons)
    for (const {plan} of laptop.runs) command(meshplan, ['simulate', ...words({...laptop.runs[0].plan, ...plan, cluster: 'cpu-host'}), '--json'], folder);
});

const answerOf = (item) => item.evaluate((one) => one.dataset.answer);
test('the quiz: one seed, one set of answers; right ones are right', async () => {
  const read = async (page, seed) => {
    await page.getByLabel('Your name').fill('Ada');
    await page.getByLabel(/Seed/).fill(seed);
    await page.evaluate(() => { delete document.documentElement.dataset.ready; });
    await page.getByRole('button', {name: 'Use'}).click();
    await page.waitForFunction(() => document.documentElement.dataset.ready === 'quiz');
    await page.waitForFunction((given) => document.querySelector('.student input:nth-of-type(2)').value === given, seed);
    const found = await page.$$eval('.quiz > li', (all) => all.map((one) => [one.querySelector('p').textContent, one.dataset.answer]));
    const item = page.locator('.quiz > li').first();
    const given = Number(await answerOf(item)) * 100;  // percent
    await item.getByRole('textbox').fill(String(given));
    await item.getByRole('button').click();
    assert.match(await item.innerText(), /Right: /);
    await item.getByRole('textbox').fill(String(given * 3));
    await item.getByRole('button').click();
    assert.match(await item.innerText(), /The simulator says .*off/);
    assert.ok((await page.locator('main').innerText()).includes(`1 of ${quiz.length} answered, 0 right`));
    return found;
  };
  let first, other, again;
  await inSharedPage(link('quiz'), async (page) => { first = await read(page, '17'); });
  await onPage(link('quiz'), {}, async (page) => {
    other = await read(page, '18');
    again = await read(page, '17');
  });
  assert.equal(first.length, quiz.length);
  assert.deepEqual(first, again);
  assert.notDeepEqual(first, other);
});

test('broken runs: every fault can be told, and a wrong guess is refused', () => inSharedPage(link('runs'), async (page) => {
  assert.equal(await page.locator('.run').count(), runs.cases);
  for (const run of await page.locator('.run').all()) {
    const fault = await run.evaluate((one) => one.dataset.fault);
    const [, should, takes] = /should take ([\d.]+ \w+)\. This run takes ([\d.]+ \w+)/.exec(await run.innerText());
    assert.notEqual(should, takes);
    await run.locator(`input[type="radio"]:not([value="${fault}"])`).first().check();
    assert.match(await run.innerText(), /No\. Look again/);
    await run.locator(`input[value="${fault}"]`).check();
    assert.match(await run.innerText(), /Yes: /);
    assert.doesNotMatch(await run.innerText(), /NaN|undefined|\{\w/);
  }
  await page.getByRole('button', {name: 'Show the timeline of broken run 1'}).click();
  await page.waitForSelector('.run canvas');
}));

test('the ten questions are answered with figures', () => inSharedPage(link('questions'), async (page) => {
  assert.equal(await page.locator('.questions > li').count(), questions.length);
  for (const summary of await page.locator('summary').all()) await summary.click();
  assert.doesNotMatch(await page.locator('main').innerText(), /NaN|undefined|Infinity|\{\w/);
  await page.locator('.questions a').first().click();
  await page.waitForFunction(() => document.documentElement.dataset.ready === 'workbench');
}));

test('a student\u2019s file is saved, and a teacher reads many', () => onPage(link('quiz'), {}, async (page) => {
  await page.getByLabel('Your name').fill('Grace');
  await page.getByLabel(/Seed/).fill('7');
  await page.getByRole('button', {name: 'Use'}).click();
  await page.waitForFunction(() => document.documentElement.dataset.ready === 'quiz');
  const item = page.locator('.quiz > li').first();
  await item.getByRole('textbox').fill(String(Number(await answerOf(item)) * 100));
  await item.getByRole('button').click();
  await page.evaluate((hash) => { location.hash = hash; }, link('grading'));
  await page.waitForFunction(() => document.documentElement.dataset.ready === 'grading');
  const {name, text} = await saved(page, () => page.getByRole('button', {name: 'Save the file for the teacher'}).click());
  assert.equal(name, 'classroom-7.json');
  const own = JSON.parse(text);
  assert.equal(own.student, 'Grace');
  // One that claims what its answers do not bear.
  const boast = {...own, student: '=cmd()', quiz: Object.fromEntries(quiz.map(({id}) => [id, {seed: '7', given: 1e9, right: true}]))};
  const files = {'grace.json': text, 'boast.json': JSON.stringify(boast), 'plan.json': '{"model": 1}', 'broken.json': '{', 'old.json': JSON.stringify({...own, release: '0.0.1'})};
  for (const [file, content] of Object.entries(files)) writeFileSync(join(folder, file), content);
  await page.getByLabel('Files of students').setInputFiles(Object.keys(files).map((file) => join(folder, file)));
  await page.waitForSelector('table[aria-label="Marks"] tbody tr:nth-child(2)');
  const rows = await page.$$eval('table[aria-label="Marks"] tbody tr', (all) => all.map((row) => [...row.cells].map((one) => one.textContent)));
  assert.deepEqual(rows, [['Grace', '7', '0', '0', '1', '0'], ['=cmd()', '7', '0', '0', '0', '0']]);
  const said = await page.locator('main').innerText();
  for (const expected of [/plan\.json: expected a file that this page saved/, /broken\.json: no JSON/, /old\.json: made with release 0\.0\.1/]) assert.match(said, expected);
  const table = await saved(page, () => page.getByRole('button', {name: 'Save the table as CSV'}).click());
  assert.match(table.text, /"'=cmd\(\)"/);
}));

test('the keyboard reaches everything', () => onPage('', {}, async (page) => {
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the page');
  const reached = new Set();
  for (let i = 0; i < 60; ++i) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement.dataset.flag || document.activeElement.getAttribute('aria-label') || document.activeElement.textContent));
  }
  for (const flag of ['model', 'cluster', 'tp', 'pp', 'recompute', 'Workbench', 'Lessons']) assert.ok(reached.has(flag), flag + ' of ' + [...reached].join(', '));
  const control = page.locator('[data-flag="tp"]');
  await control.focus();
  const step = await answered(page, () => page.keyboard.press('ArrowRight'));
  assert.ok(step > 0);
  assert.equal(await control.getAttribute('aria-valuetext'), '4');
}));

test('every control has a name', () => onPage('', {}, async (page) => {
  for (const at of ['lesson-1', 'lesson-11', 'workbench', 'quiz', 'runs', 'grading']) {
    await goTo(page, link(at));
    const nameless = await page.$$eval('input, select, button', (all) => all.filter((one) => !(one.getAttribute('aria-label') || one.labels && one.labels.length || one.textContent.trim())).map((one) => one.outerHTML));
    assert.deepEqual(nameless, [], at);
  }
}));

for (const width of [1280, 768, 390])
  test(`nothing is cut off at ${width} pixels, light and dark`, () => onPage(link('lessons'), {viewport: {width, height: 900}, colorScheme: 'dark'}, async (page) => {
    for (const at of ['workbench', 'lesson-3', 'lesson-11', 'lessons', 'quiz', 'runs', 'questions', 'grading']) {
      await goTo(page, link(at));
      if (at === 'lesson-11') {
        await page.getByLabel('Your prediction').fill('20');
        await page.getByRole('button', {name: 'Answer'}).click();
        await page.waitForSelector('svg[data-picture="goodput-interval"]');
      }
      if (await page.locator('.workbench').count()) await page.waitForFunction(() => document.querySelector('.workbench').dataset.thorough > 0);
      for (const colorScheme of ['dark', 'light']) {
        await page.emulateMedia({colorScheme});
        await page.waitForFunction((light) => (getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)') === light, colorScheme === 'light');
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width, at);
        assert.deepEqual(await page.$$eval('svg[data-picture]', misplaced), [], at);
      }
    }
  }));
