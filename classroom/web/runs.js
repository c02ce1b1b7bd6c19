// Broken runs: something is wrong with a machine or a plan, and the timeline tells what.

// The cases of a seed: each {healthy, broken, fault}.
function casesOf(seed) {
  const {plan, vary, faults, cases} = material.runs, roll = dice(names.version + '/runs/' + seed);
  const order = faults.map((fault) => [roll(), fault]).sort((a, b) => a[0] - b[0]).map(([, fault]) => fault);
  return Array.from({length: cases}, (_, i) => {
    const fault = order[i % order.length], healthy = varied(roll, plan, vary);
    return {healthy, broken: varied(roll, healthy, fault.vary), fault};
  });
}

const factor = (value) => '\u00d7 ' + value.toFixed(2);

function besideTable(healthy, broken) {
  const before = figuresOf(healthy), after = figuresOf(broken);
  const rows = Object.keys(before.time).filter((name) => before.time[name] + after.time[name] > 1e-4 * after.step_time_s)
    .map((name) => [kindWords[kindOf(name)] || name, {n: seconds(before.time[name])}, {n: seconds(after.time[name])}, {n: before.time[name] > 0 ? factor(after.time[name] / before.time[name]) : ''}]);
  return table('The mean stage\u2019s time', ['', {n: 'as it should be'}, {n: 'this run'}, {n: ''}], rows, ['step', {n: seconds(before.step_time_s)}, {n: seconds(after.step_time_s)}, {n: factor(after.step_time_s / before.step_time_s)}]);
}

async function runCase(one, number, seed) {
  const [healthy, broken] = [await engine.ask('simulate', wordsOf(one.healthy)), await engine.ask('simulate', wordsOf(one.broken))];
  const verdict = h('div', {role: 'status'}), timeline = h('div', {});
  const name = 'run-' + number, kept = record.kept.runs[name];
  const judge = (said) => {
    const right = said === one.fault.id;
    record.kept.runs[name] = {seed, said, right};
    record.write();
    verdict.replaceChildren(h('p', {class: right ? 'good' : 'bad'}, right ? '\u2713 Yes: ' + one.fault.says + '.' : '\u2717 No. Look again: which categories grew, and on which stages?'),
      ...(right ? [h('p', {}, filled(one.fault.why, {healthy: figuresOf(healthy), broken: figuresOf(broken)}))] : []));
  };
  const choices = h('fieldset', {class: 'choices'}, h('legend', {}, 'What is wrong?'), material.runs.faults.map((fault) =>
    h('label', {}, h('input', {type: 'radio', name, value: fault.id, checked: Boolean(kept && kept.seed === seed && kept.said === fault.id), onchange: () => judge(fault.id)}), ' ' + fault.says)));
  const look = button('Show its timeline', 'Show the timeline of broken run ' + number, async () => {
    look.disabled = true;
    const data = await engine.ask('page', [...wordsOf(one.broken), '--bars', String(thoroughBars)]);
    const shown = timelineSection(data);
    timeline.replaceChildren(shown);
    redrawPictures();
    if (shown.start) shown.start();
  });
  const data = {simulation: broken, categories: Object.keys(broken.stages[0].breakdown_s)};
  if (kept && kept.seed === seed) judge(kept.said);
  return h('section', {class: 'run', 'data-fault': one.fault.id}, h('h2', {}, 'Run ' + number),
    h('p', {}, healthy.description + ': a step should take ' + seconds(healthy.step_time_s) + '. This run takes ' + seconds(broken.step_time_s) + '.'),
    besideTable(healthy, broken), h('h3', {}, 'Stage by stage, this run'), stagesPicture(data), memoryBars(broken), h('div', {class: 'controls'}, look), timeline, choices, verdict);
}

async function runsView() {
  const seed = record.seed(), cases = casesOf(seed), shown = [];
  for (const [i, one] of cases.entries()) shown.push(await runCase(one, i + 1, seed));
  return h('div', {}, h('h1', {}, 'Broken runs'),
    h('p', {}, 'These runs are slower than they should be. Something is wrong with the machine or with the plan. Compare where the time goes, look at the timeline, and say what it is. Your seed picks the cases.'),
    studentForm(() => show()), shown);
}
