// A workbench for what failures make of a plan. It asks `simulate --failures`, and the same with other intervals.

const hoursOf = (mtbf) => parseFloat(mtbf) * ({d: 24, y: 24 * 365.25}[mtbf.slice(-1)] || 1);
const durations = (...all) => ['', ...all.map(String)];
const inSeconds = (none) => (value) => value === '' ? none : duration(Number(value)).replace(/^60 (s|min)$/, (whole, unit) => '1 ' + (unit === 's' ? 'min' : 'h'));

// Sliders over words of the command line, '' where the option is left out; `words` are what a reader sees.
const failureSettings = {group: 'Failures and checkpoints', flags: [
  {flag: 'mtbf', label: 'MTBF of a device, hours', values: ['1000h', '2000h', '5000h', '10000h', '20000h', '', '100000h', '200000h', '500000h'], words: (value) => value === '' ? 'Llama\u00a03' : grouped(hoursOf(value)), standard: ''},
  {flag: 'checkpoint-interval', label: 'Training between checkpoints', values: durations(10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800), words: inSeconds('best'), standard: ''},
  {flag: 'checkpoint-seconds', label: 'A checkpoint stops training for', values: durations(1, 5, 10, 30, 60, 120, 300), words: inSeconds('a copy'), standard: ''},
  {flag: 'checkpoints', label: 'Checkpoints are in', choices: () => choicesOf('checkpoints'), standard: 'storage'},
  {flag: 'spare-nodes', label: 'Spare nodes', values: [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64].map(String), words: grouped, standard: '0'},
  {flag: 'smaller-world', label: 'While a node is away', choices: () => choicesOf('smaller-world'), standard: 'keep-batch'},
  {flag: 'detection-seconds', label: 'Noticed after', values: ['1', '10', '30', '60', '120', '300', '600', '1800'], words: inSeconds(''), standard: '600'},
  {flag: 'restart-seconds', label: 'Started after', values: ['10', '30', '60', '120', '300', '600', '1200'], words: inSeconds(''), standard: '300'},
  {flag: 'repair-hours', label: 'A node is back after, hours', values: ['1', '4', '12', '24', '48', '96', '168'], words: grouped, standard: '24'},
  {flag: 'storage-bandwidth', label: 'File system, GB/s', values: durations(10, 50, 100, 200, 500, 1000, 2000, 5000), words: (value) => value === '' ? '1/node' : grouped(value), standard: ''},
]};
const failureFlags = ['model', 'gpus', 'tp', 'pp', ...failureSettings.flags.map((one) => one.flag)];

const isOfFailures = (plan) => Boolean(plan && plan.failures);
const ofFailures = (plan) => ({...plan, estimate: true, failures: true});
// The same plan where nothing fails.
function withoutFailures(plan) {
  const others = ['failures', 'estimate', 'days', 'trials', 'seed', ...failureSettings.flags.map((one) => one.flag)];
  return Object.fromEntries(Object.entries(plan).filter(([flag]) => !others.includes(flag)));
}
// The bench that answers a plan's question.
function benchFor(options) {
  return isOfFailures(options.plan) ? failureBench(options) : workbench(options);
}

// Plans of intervals around the best one and the one that was played, evenly spaced on a logarithmic scale.
function intervalPlans(plan, study, best) {
  const played = study.intervals.map((one) => one.interval_s), points = 24;
  const low = Math.min(best / 20, ...played), high = Math.max(best * 20, 7200, ...played);
  return Array.from({length: points + 1}, (_, i) => ({...plan, 'checkpoint-interval': (low * (high / low) ** (i / points)).toPrecision(4)}));
}

// The closed form of a plan alone: the least that can be played beside it.
async function closedForm(plan) {
  const {closed_form: closed} = await engine.ask('simulate', wordsOf({...plan, days: 1, trials: 1}));
  return {interval_s: closed.checkpoint_interval_s, goodput: closed.goodput};
}

function failureResults(study, kept, curve) {
  const now = failureFigures(study, {});
  return [h('h3', {}, 'Parts of the time'), legend(timeParts.map(([, words, color]) => [words, color])), partsPicture(study, kept),
    h('h3', {}, 'Time between checkpoints'), curve, intervalsPicture(study),
    h('h3', {}, 'Spare nodes'), h('p', {class: 'quiet'}, 'Nodes that are away at a time, on average: ' + +(now.repair_s / now.mtbf_s).toPrecision(2) + '. Worth having (\u2713): the number with the most useful time for each device that is paid.'), sparesTable(study),
    details('What is assumed', h('ul', {}, study.assumed.map((one) => h('li', {}, one))))];
}

// What is shown of studies: {parts, draw(study), drawCurve(plan, isNewest), keep(), unveil()}. While it is veiled, the curve,
// which shows the best interval, is not drawn.
function failureView(veiled) {
  let study = null, drawn = null, kept = null;
  const head = h('p', {class: 'quiet'}), cards = h('div', {}), bars = h('div', {}), curve = h('div', {});
  const draw = (newest) => {
    study = newest;
    head.textContent = study.description + ' \u2013 ' + (study.asked.model || '') + ' on ' + plural(study.nodes, 'node') + ' of ' + study.cluster + ', ' + plural(study.devices, 'device');
    cards.replaceChildren(failureCards(study, kept && kept.study));
    bars.replaceChildren();
    forgetPictures();
    append(bars, failureResults(study, kept && kept.study, curve));
    redrawPictures();
  };
  // @returns false if another plan was asked for meanwhile
  const drawCurve = async (plan, isNewest) => {
    if (veiled) {
      curve.replaceChildren(h('p', {class: 'quiet'}, 'Goodput over the time between checkpoints is drawn here when you have made your prediction.'));
      return true;
    }
    curve.classList.add('old');
    const best = await closedForm({...plan, 'checkpoint-interval': ''}), points = [];
    for (const other of intervalPlans(plan, study, best.interval_s)) {
      if (!isNewest()) return false;
      const point = await closedForm(other);
      // Shorter ones than a step or a checkpoint's own time become that.
      if (points.length === 0 || point.interval_s > points[points.length - 1].interval_s) points.push(point);
    }
    if (!isNewest()) return false;
    drawn = points;
    const colors = [['closed form (Daly 2006)', 'var(--forward)'], ['played', 'var(--backward)'], ['best interval', 'var(--good)']];
    curve.replaceChildren(legend(kept ? [...colors, ['kept', 'var(--quiet)']] : colors), goodputPicture(study, points, best, kept && kept.curve));
    curve.classList.remove('old');
    forgetPictures();
    redrawPictures();
    return true;
  };
  const keep = () => {
    kept = kept ? null : {study, curve: drawn};
    if (study) draw(study);
    return Boolean(kept);
  };
  return {parts: [head, cards, bars], draw, drawCurve, keep, unveil() { veiled = false; }};
}

// A workbench of failures: {element, plan(), simulation()}; `changed(plan)` is told of every plan that the reader makes.
// `veiled`: see failureView; unveil() ends that.
function failureBench({plan, only, changed, label, veiled}) {
  let now = plan, newest = null, asking = false, study = null, fault = '';
  const controls = controlsFor(only || failureFlags, (flag, value) => set(changedPlan(now, flag, value), performance.now()), failureSettings);
  const said = h('p', {class: 'note', role: 'status', hidden: true}), command = h('code', {}), steps = h('a', {}, 'Its step without failures');
  const view = failureView(veiled), results = h('div', {class: 'results', 'aria-live': 'off'}, said, view.parts);
  const drawCurve = async (one) => {
    if (await view.drawCurve(one.plan, () => one === newest)) element.dataset.thorough = element.dataset.answers;
  };
  const keep = keepButton(() => {
    const kept = view.keep();
    drawCurve(newest).catch(showFault);
    return kept;
  });
  const element = h('section', {class: 'workbench', 'aria-label': label || 'Workbench'}, controls.element,
    h('div', {}, h('div', {class: 'controls'}, keep, copyLinkButton(), steps), results, h('p', {class: 'command'}, 'The same from a terminal: ', command)));

  const show = async (one) => {
    said.hidden = fault === '';
    said.textContent = fault && fault + (study ? ' The figures below are still those of the plan before.' : '');
    results.classList.toggle('old', fault !== '');
    if (!fault) {
      view.draw(study);
      element.dataset.step = study.effective_step_s;
    }
    element.dataset.answerMs = (performance.now() - one.begin).toFixed(1);
    element.dataset.engineMs = (engine.lastMs || 0).toFixed(1);
    element.dataset.answers = Number(element.dataset.answers || 0) + 1;
    if (element.answered) element.answered();
    if (!fault) await drawCurve(one);
  };
  // Asks for the newest plan, one at a time: those that a moving slider has passed are left out.
  const answer = async () => {
    if (asking) return;
    asking = true;
    for (let one = null; one !== newest;) {
      one = newest;
      try {
        const found = await engine.ask('simulate', wordsOf(one.plan));
        if (one !== newest) continue;
        study = {...found, asked: one.plan};
        fault = '';
      } catch (error) {
        if (one !== newest) continue;
        fault = error.message;
      }
      await show(one).catch(showFault);
    }
    asking = false;
  };
  const set = (next, begin) => {
    now = ofFailures(next);
    controls.show(now);
    command.textContent = commandOf(now);
    steps.href = linkOf('workbench', withoutFailures(now));
    newest = {plan: now, begin: begin || performance.now()};
    element.dataset.thorough = '';
    if (changed) changed(now);
    answer();
  };
  const unveil = async () => {
    view.unveil();
    if (study && !fault) await drawCurve(newest);
  };
  return Object.assign(element, {set, unveil, plan: () => now, simulation: () => fault ? null : study, begin() { set(now); }});
}
