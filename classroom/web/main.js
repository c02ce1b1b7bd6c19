// Shows what the address asks for.

let names = null;  // presets, release
const flagsKnown = new Map();  // options of simulate by name
let shown = null, shownAt = '', turn = 0;

const beginning = {model: 'llama3-8b', cluster: 'dgx-h100', gpus: 16, 'global-batch': 64, 'seq-len': 4096, tp: 2, sp: true, pp: 4, zero: 1};
const titles = {workbench: 'Workbench', lessons: 'Lessons', quiz: 'Quiz', runs: 'Broken runs', questions: 'Questions', grading: 'Grading'};

function message(text) {
  const box = document.getElementById('message');
  box.hidden = !text;
  box.textContent = text || '';
}

function showFault(error) {
  message(error.message);
}

function bar(at) {
  const current = lessons.some((lesson) => lesson.id === at) ? 'lessons' : at;
  const links = places.map((place) => h('a', {href: linkOf(place), 'aria-current': place === current ? 'page' : null}, titles[place]));
  const colors = choice('Colours', [['', 'as the system'], ['light', 'light'], ['dark', 'dark']], theme.asked, (name) => theme.ask(name));
  return h('div', {class: 'bar'}, h('div', {}, h('nav', {'aria-label': 'Parts of the classroom'}, links), colors));
}

// While a slider moves, the address follows, without an entry in the history for each step.
let following = 0;
function follow(at) {
  return (plan) => {
    clearTimeout(following);
    following = setTimeout(() => {
      if (shownAt === at) history.replaceState(null, '', linkOf(at, plan));
    }, 120);
  };
}

async function viewOf(at, plan) {
  if (at === 'workbench') {
    const bench = benchFor({plan: plan || beginning, changed: follow(at)});
    return Object.assign(h('div', {}, h('h1', {}, isOfFailures(plan) ? 'A plan, and what failures cost it' : 'A plan, and what it costs'),
      h('p', {class: 'quiet'}, 'Move a slider: the simulator of meshplan runs in this page, and its figures are those of the command below them. The address is a link to the plan.'), bench), {bench, begin: () => bench.begin()});
  }
  const views = {lessons: lessonsView, quiz: quizView, runs: runsView, questions: questionsView, grading: gradingView};
  return views[at] ? views[at]() : lessonView(lessons.find((lesson) => lesson.id === at), plan, follow(at));
}

async function show(hash = location.hash) {
  const mine = ++turn;
  clearTimeout(following);
  let link = null;
  try {
    link = readLink(hash, flagsKnown);
    message('');
  } catch (error) {
    message(error.message + ' Shown instead: the workbench.');
    link = {at: 'workbench', plan: null};
  }
  delete document.documentElement.dataset.ready;
  const {at, plan} = link, main = document.getElementById('content');
  document.title = (titles[at] || lessons.find((lesson) => lesson.id === at).title) + ' \u2013 meshplan classroom';
  try {
    const view = await viewOf(at, plan);
    if (mine !== turn) return;
    shown = view;
    shownAt = at;
    main.replaceChildren(view, h('footer', {}, 'meshplan ' + names.version + '. This page computes by itself and asks for nothing over a network.'));
  } catch (error) {
    if (mine !== turn) return;
    showFault(error);
    main.replaceChildren();
  }
  document.getElementById('top').replaceChildren(bar(at));
  forgetPictures();
  theme.apply();
  redrawPictures();
  if (shown && shown.begin) shown.begin();
  document.documentElement.dataset.ready = at;
}

async function start() {
  const begin = performance.now();
  theme.apply();
  record.read();
  await engine.unpack();
  names = await engine.ask('names', []);
  for (const option of await engine.ask('options', [])) flagsKnown.set(option.flag.replace(/^--/, ''), option);
  window.meshplan = {ask: (name, words) => engine.ask(name, words)};  // for a console: meshplan.ask('simulate', ['--model', ...])
  // Of the event: an address that follows the plan before may have taken the place of the one that was asked for.
  addEventListener('hashchange', (event) => show(new URL(event.newURL).hash).then(() => { scrollTo(0, 0); document.getElementById('content').focus({preventScroll: true}); }));
  let waiting = 0, width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width) return;
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      redrawPictures();
      if (shown && shown.bench && shown.bench.arrange) shown.bench.arrange();
    });
  });
  await show();
  document.documentElement.dataset.startMs = (performance.now() - begin).toFixed(0);
}

start().catch((error) => {
  const main = document.getElementById('content');
  main.replaceChildren(h('p', {class: 'note', role: 'alert'}, 'The classroom cannot start: ' + error.message +
    ' It needs a browser of 2023 or later (WebAssembly with exceptions, DecompressionStream).'));
});
