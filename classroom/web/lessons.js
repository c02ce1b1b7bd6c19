// Lessons: a text with figures, a prediction to make, a thing to try that the simulator checks, and an explanation.

const material = JSON.parse(document.getElementById('lessons').textContent);
const lessons = material.lessons;

// Plans of a lesson by name: each is the one called "start" with some settings changed.
function plansOf(lesson) {
  const {start} = lesson.plans, all = {};
  for (const [name, changes] of Object.entries(lesson.plans)) {
    all[name] = {...start, ...changes};
    for (const [flag, value] of Object.entries(all[name])) if (value === false) delete all[name][flag];
  }
  return all;
}

// Figures of all its plans, of its model and of its cluster, for texts.
async function valuesOf(lesson) {
  const plans = plansOf(lesson), values = {};
  for (const [name, plan] of Object.entries(plans)) values[name] = figuresOf(await engine.ask('simulate', wordsOf(plan)), plan);
  Object.assign(values, await engine.ask('describe', [plans.start.model, plans.start.cluster]));
  return values;
}

const units = {percent: ['%', 0.01], times: ['times', 1], GiB: ['GiB', 2 ** 30], seconds: ['s', 1], minutes: ['min', 60]};
const unitText = (unit, value) => unit === 'percent' ? percent(value) : unit === 'GiB' ? bytes(value) : unit === 'seconds' ? seconds(value) : unit === 'minutes' ? +(value / 60).toPrecision(3) + ' min' : formats.times(value);

// Is what a reader typed near enough? {right, off}, off as a part of the answer.
function judged(given, answer, within) {
  const off = answer === 0 ? Math.abs(given) : given / answer - 1;
  return {right: Math.abs(off) <= within + 1e-9, off};
}

// A question with a number to type. `told(value)` gets it in the unit's base.
function numberQuestion(label, unit, told, before) {
  const id = 'answer-' + ++controlCount;
  const box = h('input', {id, type: 'text', inputmode: 'decimal', autocomplete: 'off', size: 8, value: before === undefined ? null : +(before / units[unit][1]).toPrecision(6)});
  const fault = h('span', {class: 'bad', role: 'alert'});
  const send = () => {
    const number = Number(box.value.trim().replace(',', '.').replace(/\s*(%|times|GiB|s|min)$/, ''));
    if (box.value.trim() === '' || !Number.isFinite(number)) {
      fault.textContent = 'Expected a number, for example 12.5.';
      return;
    }
    fault.textContent = '';
    told(number * units[unit][1]);
  };
  return h('form', {class: 'answer', onsubmit: (event) => { event.preventDefault(); send(); }},
    h('label', {for: id}, label), box, h('span', {}, units[unit][0]), h('button', {type: 'submit'}, 'Answer'), fault);
}

function paragraphs(lines, values) {
  return lines.map((line) => h('p', {}, filled(line, values)));
}

function sourceLine(lesson) {
  return h('p', {class: 'quiet'}, 'Sources: ' + lesson.sources.join('; ') + '.');
}

// The commands that do one by one what `meshplan lesson` does with a lesson's last run.
function laptopCommands({runs}) {
  const plan = commandOf({...runs[0].plan, ...runs.at(-1).plan, cluster: 'here.json'});
  return ['meshplan calibrate --out here.json', plan + ' --out small.json --trace predicted.json',
    'meshplan run small.json --steps 20 --trace measured.json', 'meshplan compare predicted.json measured.json'].join('\n');
}

function laptopSection({laptop}, number) {
  return section('laptop', 'For real', 'For real',
    h('p', {}, 'The same idea on the cores of your own machine, predicted and then measured. It takes about two minutes, and an installed meshplan. ' + laptop.about),
    h('pre', {}, 'meshplan lesson ' + number), h('ul', {}, laptop.look.map((line) => h('li', {}, line))),
    details('The last run, command by command', h('pre', {}, laptopCommands(laptop))),
    laptop.more && details(laptop.more.title, h('p', {}, laptop.more.about), h('pre', {}, laptop.more.commands.join('\n'))));
}

async function lessonView(lesson, plan, changed) {
  const values = await valuesOf(lesson);
  const done = record.lesson(lesson.id);
  const body = h('div', {class: 'lesson'});
  const verdict = h('div', {role: 'status'}), explanation = h('div', {class: 'explanation', hidden: true});
  const number = lessons.indexOf(lesson) + 1;

  const needsSearch = Boolean(lesson.search);
  const search = async () => {
    if (!needsSearch || values.best) return;
    const found = await engine.ask('plan', [...wordsOf(lesson.search), '--top', '1']);
    if (!found.ranked || found.ranked.length === 0) throw new Error('The search found no plan that fits.');
    const {plan} = found.ranked[0];
    delete plan.cluster_hash;  // of the cluster's text, whose numbers this script spells in its own way
    values.best = figuresOf(await engine.ask('simulate', [JSON.stringify(plan)]));
  };
  const tell = async (given) => {
    verdict.replaceChildren(h('p', {}, needsSearch ? 'The planner searches in this page; that takes some seconds ...' : ''));
    await search();
    const answer = compute(lesson.predict.answer, values);
    const {right, off} = judged(given, answer, lesson.predict.within);
    verdict.replaceChildren(h('p', {class: right ? 'good' : 'bad'}, (right ? '\u2713 ' : '\u2717 ') + 'You said ' + unitText(lesson.predict.unit, given) + '. The simulator says ' +
      unitText(lesson.predict.unit, answer) + (Math.abs(off) < 10 ? ': you are ' + signedPercent(off) + ' off' : '') + '. ' +
      (right ? 'That is near enough.' : 'What did you leave out? Read the explanation after the next exercise.')));
    record.save(lesson.id, {prediction: given, right});
    explanation.hidden = false;
    explanation.replaceChildren(h('h3', {}, 'Explanation'), ...paragraphs(lesson.explain, values), sourceLine(lesson));
    await checkTask();
    if (bench.unveil) await bench.unveil();
    return right;
  };

  const tasks = h('ul', {class: 'plain checks'}), reached = h('p', {role: 'status'});
  const makeBench = isOfFailures(lesson.plans.start) ? failureBench : workbench;
  const bench = makeBench({plan: plan || plansOf(lesson).start, only: lesson.only, changed, label: 'Workbench of the lesson', veiled: done.prediction === undefined});
  const checkTask = async () => {
    const simulation = bench.simulation();
    if (!simulation) return;
    if (needsSearch && !values.best) {
      tasks.replaceChildren(h('li', {}, 'Make your prediction first: the search gives the mark to reach.'));
      return;
    }
    const now = {...values, now: figuresOf(simulation)};
    const results = lesson.try.checks.map((check) => [filled(check.says, values), Boolean(compute(check.holds, now))]);
    tasks.replaceChildren(...results.map(([says, holds]) => h('li', {class: holds ? 'good' : 'quiet'}, (holds ? '\u2713 ' : '\u2013 ') + says)));
    if (results.every(([, holds]) => holds)) {
      reached.textContent = '\u2713 Reached, with ' + simulation.description + '.';
      reached.className = 'good';
      record.save(lesson.id, {reached: bench.plan()});
    } else if (reached.textContent !== '') {
      reached.textContent = record.lesson(lesson.id).reached ? 'Reached before, but not by this plan.' : '';
      reached.className = 'quiet';
    }
  };
  bench.answered = checkTask;

  const next = lessons[number];
  append(body, [
    h('h1', {}, 'Lesson ' + number + ': ' + lesson.title),
    h('p', {class: 'quiet'}, 'About ' + lesson.minutes + ' minutes.'),
    ...paragraphs(lesson.about, values),
    section('predict', 'Predict', 'Predict', h('p', {}, filled(lesson.predict.question, values)),
      numberQuestion('Your prediction', lesson.predict.unit, (given) => tell(given).catch(showFault), done.prediction), verdict),
    section('try', 'Try', 'Try', h('p', {}, filled(lesson.try.task, values)), details('A hint', h('p', {}, lesson.try.hint)), tasks, reached, bench),
    explanation,
    laptopSection(lesson, number),
    h('p', {}, next ? h('a', {href: linkOf(next.id)}, 'Next: ' + next.title) : h('a', {href: linkOf('quiz')}, 'Next: the quiz')),
  ]);
  body.bench = bench;
  body.begin = () => { bench.begin(); };
  if (done.prediction !== undefined && !needsSearch) await tell(done.prediction);
  return body;
}

function lessonsView() {
  return h('div', {}, h('h1', {}, 'Eleven lessons'),
    h('p', {}, 'Each lesson asks you to predict a figure before you see it, gives you something to try that the simulator checks, and then explains. Half an hour to an hour each.'),
    h('ol', {class: 'lessons'}, lessons.map((lesson) => {
      const done = record.lesson(lesson.id);
      return h('li', {}, h('a', {href: linkOf(lesson.id)}, lesson.title), h('span', {class: 'quiet'}, ' ' + lesson.minutes + ' minutes'),
        done.prediction !== undefined && h('span', {class: 'good'}, ' \u2713 predicted'), done.reached && h('span', {class: 'good'}, ' \u2713 reached'));
    })));
}
