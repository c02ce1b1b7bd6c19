// Sliders and lists that change a plan. Their names and help are the command's own options.

const powers = (from, to) => Array.from({length: to - from + 1}, (_, i) => 2 ** (from + i));
const settings = [
  {group: 'What is trained, and on what', flags: [
    {flag: 'model', label: 'Model', choices: () => names.models},
    {flag: 'cluster', label: 'Cluster', choices: () => names.clusters},
    {flag: 'gpus', label: 'Ranks', values: powers(0, 14)},
    {flag: 'global-batch', label: 'Sequences in a step', values: powers(0, 13)},
    {flag: 'seq-len', label: 'Tokens in a sequence', values: powers(7, 17)},
    {flag: 'precision', label: 'Precision', choices: () => choicesOf('precision'), standard: 'bf16'},
  ]},
  {group: 'How it is divided', flags: [
    {flag: 'tp', label: 'Tensor parallel', values: powers(0, 6), standard: 1},
    {flag: 'sp', label: 'Sequence parallel', on: true},
    {flag: 'pp', label: 'Pipeline stages', values: [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96], standard: 1},
    {flag: 'cp', label: 'Context parallel', values: powers(0, 6), standard: 1},
    {flag: 'context-parallel', label: 'How context is shared', choices: () => choicesOf('context-parallel'), standard: 'all_gather'},
    {flag: 'ep', label: 'Expert parallel', values: powers(0, 7), standard: 1},
    {flag: 'zero', label: 'ZeRO stage', values: [0, 1, 2, 3], standard: 0},
  ]},
  {group: 'How a step runs', flags: [
    {flag: 'micro-batch', label: 'Sequences in a micro-batch', values: powers(0, 6), standard: 1},
    {flag: 'micro-batches', label: 'Micro-batches of a rank', values: Array.from({length: 512}, (_, i) => i + 1), derived: true},
    {flag: 'schedule', label: 'Schedule', choices: () => choicesOf('schedule'), standard: '1f1b'},
    {flag: 'vpp', label: 'Chunks of a rank', values: [1, 2, 3, 4, 5, 6, 8], standard: 1},
    {flag: 'recompute', label: 'Recompute', choices: () => choicesOf('recompute'), standard: 'none'},
  ]},
];
const further = [
  {flag: 'layers-per-stage', label: 'Layers of each stage', example: '9,8,8,7'},
  {flag: 'set', label: 'A figure of the cluster, times', example: 'network=0.5'},
  {flag: 'order', label: 'Order of the axes', example: 'tp,cp,dp,pp'},
  {flag: 'expert-imbalance', label: 'Load of the busiest experts', example: '1.5'},
];

function choicesOf(flag) {
  return flagsKnown.get(flag).choices;
}

function sizesOf(plan) {
  const number = (flag, standard) => Number(plan[flag] || standard);
  const model = number('tp', 1) * number('pp', 1) * number('cp', 1);
  const dp = plan.gpus ? number('gpus', 1) / model : number('dp', 1);
  return {dp, microbatches: number('global-batch', 1) / (dp * number('micro-batch', 1))};
}

// The plan with one setting changed as a reader means it: a flag that no longer has a meaning goes with it.
function changedPlan(plan, flag, value) {
  const changed = {...plan};
  if (flag === 'micro-batches') changed['global-batch'] = Math.max(1, Math.round(sizesOf(plan).dp)) * Number(plan['micro-batch'] || 1) * value;
  else if (value === '' || value === false || value === null) delete changed[flag];
  else changed[flag] = value;
  const tp = Number(changed.tp || 1), pp = Number(changed.pp || 1);
  if (tp === 1) delete changed.sp;
  if (pp === 1) for (const one of ['schedule', 'vpp', 'layers-per-stage'])
    if (changed[one] !== '1f1b-overlapped') delete changed[one];
  if (flag === 'pp') delete changed['layers-per-stage'];
  if (flag === 'schedule') {
    delete changed.vpp;
    if (value === 'interleaved') changed.vpp = 2;
  }
  if (flag === 'vpp' && Number(value) > 1 && !['interleaved', '1f1b-overlapped', 'zb-v', 'dualpipe-v'].includes(changed.schedule)) changed.schedule = 'interleaved';
  if (flag === 'vpp' && Number(value) === 1 && changed.schedule === 'interleaved') { changed.schedule = '1f1b'; delete changed.vpp; }
  if (Number(changed.cp || 1) === 1) delete changed['context-parallel'];
  return changed;
}

let controlCount = 0;

// {element, show(plan)}; `change(flag, value)` is called while a slider moves. With `words` its values are texts of the
// command line, and the reader sees words(value).
function slider(one, change) {
  const id = 'control-' + ++controlCount;
  const shown = h('output', {for: id});
  const box = h('input', {id, type: 'range', min: 0, step: 1, 'data-flag': one.flag});
  let values = one.values;
  const say = () => {
    shown.textContent = (one.words || grouped)(values[box.value]);
    box.setAttribute('aria-valuetext', shown.textContent);
  };
  box.addEventListener('input', () => { say(); change(one.flag, values[box.value]); });
  return {
    element: h('div', {class: 'control'}, h('label', {for: id, title: helpOf(one)}, one.label), box, shown),
    show(plan) {
      const given = plan[one.flag] ?? one.standard ?? 1;
      const value = one.derived ? sizesOf(plan).microbatches : one.words ? String(given) : Number(given);
      const known = one.values.includes(value) || !one.words && !(value >= 0);
      values = known ? one.values : one.words ? [...one.values, value] : [...one.values, value].sort((a, b) => a - b);
      box.max = values.length - 1;
      box.value = Math.max(0, values.indexOf(value));
      say();
      if (one.derived && !Number.isInteger(value)) shown.textContent = '\u2013';
    },
  };
}

function list(one, change) {
  const id = 'control-' + ++controlCount;
  const box = h('select', {id, 'data-flag': one.flag, onchange: () => change(one.flag, box.value)});
  return {
    element: h('div', {class: 'control'}, h('label', {for: id, title: helpOf(one)}, one.label), box),
    show(plan) {
      const value = String(plan[one.flag] || one.standard || '');
      const known = one.choices();
      box.replaceChildren(...(known.includes(value) ? known : [value, ...known]).map((name) => h('option', {value: name, selected: name === value}, name)));
      box.value = value;
    },
  };
}

function check(one, change) {
  const id = 'control-' + ++controlCount;
  const box = h('input', {id, type: 'checkbox', 'data-flag': one.flag, onchange: () => change(one.flag, box.checked)});
  return {
    element: h('div', {class: 'control'}, h('label', {for: id, title: helpOf(one)}, one.label), box),
    show(plan) { box.checked = Boolean(plan[one.flag]); },
  };
}

function entry(one, change) {
  const id = 'control-' + ++controlCount;
  const box = h('input', {id, type: 'text', placeholder: one.example, 'data-flag': one.flag, onchange: () => {
    const words = box.value.trim().split(/\s+/).filter(Boolean);
    change(one.flag, words.length > 1 ? words : words[0] || '');
  }});
  return {
    element: h('div', {class: 'control'}, h('label', {for: id, title: helpOf(one)}, one.label), box),
    show(plan) { box.value = [plan[one.flag] || ''].flat().join(' '); },
  };
}

function helpOf(one) {
  const known = flagsKnown.get(one.flag);
  return known ? '--' + one.flag + ': ' + known.help : 'sequences in a step / (dp x sequences in a micro-batch)';
}

// All settings; `only` names the flags that a lesson speaks of, the others are folded away. `others`: a group that comes first.
function controlsFor(only, change, others) {
  const make = (one) => (one.on ? check : one.choices ? list : one.values ? slider : entry)(one, change);
  const all = [], first = [], rest = [];
  for (const {group, flags} of [...(others ? [others] : []), ...settings, {group: 'What if', flags: further}]) {
    const inside = {first: [], rest: []};
    for (const one of flags) {
      const made = make(one);
      all.push(made);
      inside[!only ? (group === 'What if' ? 'rest' : 'first') : only.includes(one.flag) ? 'first' : 'rest'].push(made.element);
    }
    for (const [where, into] of [['first', first], ['rest', rest]])
      if (inside[where].length > 0) into.push(h('fieldset', {}, h('legend', {}, group), inside[where]));
  }
  return {element: h('div', {class: 'settings'}, first, rest.length > 0 && details('More settings', rest)),
    show(plan) { for (const one of all) one.show(plan); }};
}
