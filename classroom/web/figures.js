// Figures of a simulated plan by name, and the formulas over them that lessons are written in. No figure of a lesson is
// typed by hand: texts hold {formulas}, which are computed by the simulator when the page is read.

// What a lesson may ask of a plan. `memory` and `time` are of the fullest stage and the mean over stages. `asked`: the
// plan's settings, which a study of failures does not repeat.
function figuresOf(simulation, asked = simulation.asked || {}) {
  if (simulation.played) return failureFigures(simulation, asked);
  const {plan, stages} = simulation, {parallel, workload} = plan;
  const time = {}, share = {};
  for (const name of Object.keys(stages[0].breakdown_s)) {
    const key = name.replace(/^exposed /, '').replace(/[ -]/g, '_');
    time[key] = stages.reduce((sum, stage) => sum + stage.breakdown_s[name], 0) / stages.length;
    share[key] = time[key] / simulation.step_time_s;
  }
  const memory = {};
  const fullest = simulation.memory.find((stage) => stage.stage === simulation.largest_stage) || simulation.memory[0];
  for (const [name, value] of Object.entries(fullest)) if (typeof value === 'number') memory[name.replace(/_bytes$/, '')] = value;
  const ranks = parallel.tp * parallel.pp * (parallel.cp || 1) * parallel.dp;
  return {...parallel, time, share, memory, ranks, model: plan.model.name, layers: plan.model.num_layers,
    hidden: plan.model.hidden_size, heads: plan.model.num_heads,
    cluster: plan.cluster_name, schedule: plan.schedule, zero: plan.zero_stage, recompute: plan.recompute.kind,
    micro_batch: plan.micro_batch_size, global_batch: workload.global_batch_size, imbalance: plan.expected_expert_imbalance || 1, seq_len: workload.seq_len,
    microbatches: workload.global_batch_size / (plan.micro_batch_size * parallel.dp),
    tokens: workload.global_batch_size * workload.seq_len, fits: simulation.fits ? 1 : 0,
    step_time_s: simulation.step_time_s, mfu: simulation.mfu, tokens_per_s: simulation.tokens_per_s,
    peak_memory_bytes: simulation.peak_memory_bytes, capacity_bytes: simulation.capacity_bytes,
    tokens_per_s_of_rank: simulation.tokens_per_s / ranks};
}

// How a figure is written, by its name.
const formats = {
  seconds, bytes, percent, count, duration,
  times: (value) => +value.toPrecision(3) + ' times',
  rough: (value) => +value.toPrecision(2) + '',
  number: (value) => typeof value === 'string' ? value : +value.toPrecision(4) + '',
  whole: (value) => grouped(value),
  points: (value) => (value * 100).toFixed(1) + ' points',
};
function formatOf(formula) {
  const name = formula.trim();
  if (/[-+*/<>=]/.test(name.replace(/-(?=\w)/g, ''))) return 'number';
  if (/_s$/.test(name) && !/per_s/.test(name) || /\.time\./.test(name)) return 'seconds';
  if (/_bytes$/.test(name) || /\.memory\./.test(name)) return 'bytes';
  if (/\.(share|parts)\./.test(name) || /(mfu|goodput|goodput_low|goodput_high)$/.test(name)) return 'percent';
  if (/tokens/.test(name)) return 'count';
  return 'number';
}

// A formula over named values: + - * / ( ), numbers, 'words', plan.figure, comparisons, `and`, min(), max() and sqrt().
function compute(formula, values) {
  const words = formula.match(/'[^']*'|[A-Za-z_][\w.]*|\d+(?:\.\d+)?(?:e\d+)?|<=|>=|[-+*/()<>=,]/g) || [];
  let at = 0;
  const fail = (what) => { throw new Error('formula "' + formula + '": ' + what); };
  const take = (word) => words[at] === word && ++at > 0;
  const value = () => {
    const word = words[at++];
    if (word === undefined) fail('ends too early');
    if (word === '(') {
      const inner = both();
      if (!take(')')) fail('")" is missing');
      return inner;
    }
    if (word === '-') return -value();
    if (word[0] === "'") return word.slice(1, -1);
    if (/^\d/.test(word)) return Number(word);
    if (['min', 'max', 'sqrt'].includes(word) && take('(')) {
      const all = [sum()];
      while (take(',')) all.push(sum());
      if (!take(')')) fail('")" is missing');
      return Math[word](...all);
    }
    const found = word.split('.').reduce((inside, key) => inside === undefined || inside === null ? undefined : inside[key], values);
    if (found === undefined) fail('there is no figure ' + word);
    return found;
  };
  const product = () => {
    let result = value();
    for (;;) {
      if (take('*')) result *= value();
      else if (take('/')) result /= value();
      else return result;
    }
  };
  const sum = () => {
    let result = product();
    for (;;) {
      if (take('+')) result += product();
      else if (take('-')) result -= product();
      else return result;
    }
  };
  const comparison = () => {
    const left = sum();
    for (const [sign, holds] of [['<=', (a, b) => a <= b], ['>=', (a, b) => a >= b], ['<', (a, b) => a < b], ['>', (a, b) => a > b],
      ['=', (a, b) => a === b]])
      if (take(sign)) return holds(left, sum()) ? 1 : 0;
    return left;
  };
  const both = () => {
    let result = comparison();
    while (take('and')) result = comparison() && result ? 1 : 0;
    return result;
  };
  const result = both();
  if (at < words.length) fail('cannot be read at "' + words[at] + '"');
  return result;
}

// "{start.step_time_s}" and "{start.step_time_s / now.step_time_s | times}" in a text.
function filled(template, values) {
  return template.replace(/\{([^{}|]+)(?:\|\s*(\w+)\s*)?\}/g, (whole, formula, format) => {
    const result = compute(formula, values);
    return typeof result === 'string' ? result : formats[format || formatOf(formula)](result);
  });
}
