// Figures and pictures of a study of failures, as `meshplan simulate --failures` prints it.

// As planner::format_duration writes it, and whole seconds without a fraction.
function duration(value) {
  for (const [size, unit] of [[365.25 * 86400, 'years'], [86400, 'days'], [3600, 'h'], [60, 'min']])
    if (value >= 2 * size) return +(value / size).toPrecision(3) + ' ' + unit;
  return Number.isInteger(value) && value >= 1 ? value + ' s' : seconds(value);
}

// Settings {flag: value} as names and numbers that a formula can read: asked.global_batch.
function askedValues(asked) {
  const number = (value) => value === true ? 1 : value !== '' && Number.isFinite(Number(value)) ? Number(value) : value;
  return Object.fromEntries(Object.entries(asked).map(([flag, value]) => [flag.replace(/-/g, '_'), number(value)]));
}

// Seconds that one failure costs, by cause. A failure loses half an interval of work on average, and all work since the
// last checkpoint began, until that checkpoint is complete.
function failureSeconds({detection_s, start_s, closed_form: {checkpoint, checkpoint_interval_s}}) {
  return {detection_s, start_s, load_s: checkpoint.load_s, lost_s: checkpoint_interval_s / 2 + checkpoint.lag_s};
}

// What a lesson may ask of a study; `asked` are the settings of its plan.
function failureFigures(study, asked) {
  const {closed_form: closed, played} = study, costs = failureSeconds(study);
  return {asked: askedValues(asked), cluster: study.cluster, nodes: study.nodes, devices: study.devices, ranks: study.devices,
    days: study.days, spare_nodes: study.spare_nodes, spares_worth_having: study.spares_worth_having, repair_s: study.repair_s,
    device_mtbf_hours: study.device_mtbf_hours, mtbf_s: closed.mtbf_s, failures_per_day: closed.failures_per_day,
    expected_failures: closed.failures_per_day * study.days, interval_s: closed.checkpoint_interval_s,
    stall_s: closed.checkpoint.stall_s, lag_s: closed.checkpoint.lag_s, ...costs,
    failure_s: Object.values(costs).reduce((sum, one) => sum + one, 0), checkpoint_bytes: closed.checkpoint.bytes,
    parts: played.parts, goodput: played.parts.useful, goodput_low: played.goodput_low, goodput_high: played.goodput_high,
    paid_goodput: played.paid_goodput, step_time_s: study.step_time_s, effective_step_s: study.effective_step_s};
}

const timeParts = [['useful', 'useful work', 'var(--forward)'], ['lost', 'work done again', 'var(--backward)'],
  ['saving', 'saving', 'var(--recompute)'], ['restart', 'noticing, starting, loading', 'var(--cp)'], ['smaller', 'fewer nodes, waiting', 'var(--optimizer)']];

// Pieces of a bar from left to right; without `useful` they are what does not train.
function partPieces(parts, label, names) {
  let sum = 0;
  return timeParts.filter(([name]) => names.includes(name)).map(([name, words, color]) => {
    const from = sum;
    sum += parts[name];
    return {from, to: sum, color, lines: [label + ': ' + words, (parts[name] * 100).toFixed(2) + ' % of the time']};
  });
}

function partsPicture(study, kept) {
  const names = timeParts.map(([name]) => name);
  const row = (label, played, bold) => ({label, bold, value: percent(played.parts.useful), pieces: partPieces(played.parts, label, names)});
  const places = {storage: 'file system', partner: 'partner\u2019s memory'};
  const other = study.checkpoints.filter((one) => !one.chosen && one.played).map((one) => row('in ' + places[one.place], one.played));
  const rows = [row('this job', study.played, true), ...(kept ? [row('kept', kept.played)] : []), ...other];
  return picture('time-parts', 'Parts of the time', 'Where the time of ' + +study.days.toPrecision(4) + ' days goes, mean of ' + plural(study.trials, 'trial') +
    '; the last bar is the same job with checkpoints in the other place, at the best interval there. The figure is the goodput.',
    (width) => barRows(width, rows, {low: 0, high: 1, mark: (value) => Math.round(100 * value) + ' %', gutter: 150, valueRoom: 64}));
}

function intervalsPicture(study) {
  const names = ['lost', 'saving', 'restart', 'smaller'], chosen = study.closed_form.checkpoint_interval_s;
  const rows = study.intervals.map((one) => {
    const label = 'every ' + duration(one.interval_s);
    return {label, bold: one.interval_s === chosen, value: (100 * (1 - one.played.parts.useful)).toFixed(2) + ' %', pieces: partPieces(one.played.parts, label, names)};
  });
  const high = Math.max(...study.intervals.map((one) => 1 - one.played.parts.useful));
  return picture('interval-parts', 'What does not train, by the time between checkpoints', 'What does not train, by the time between checkpoints: long intervals lose work, short ones save all the time.',
    (width) => barRows(width, rows, {low: 0, high, mark: (value, step) => (100 * value).toFixed(step < 0.01 ? 1 : 0) + ' %', gutter: 110, valueRoom: 64}));
}

// Marks of a logarithmic axis of time between `low` and `high`, as far as their words have room.
function timeMarks(low, high, x) {
  const all = [1, 2, 5, 10, 20, 30].map((at) => [at, at + ' s']).concat([1, 2, 5, 10, 20, 30].map((at) => [60 * at, at + ' min']),
    [1, 2, 5, 10].map((at) => [3600 * at, at + ' h']), [1, 2, 5, 10, 20, 50, 100].map((at) => [86400 * at, at + ' d']));
  const marks = [];
  for (const [at, words] of all) {
    const last = marks[marks.length - 1];
    if (at >= low && at <= high && (!last || x(at) - x(last[0]) > 16 + (textWidth(words, 11) + textWidth(last[1], 11)) / 2)) marks.push([at, words]);
  }
  return marks;
}

// A line with its words on the side where there is room.
function markedLine(at, words, frame, color, height) {
  const left = at - frame.left > textWidth(words, 11) + 12;
  return [line(at, frame.top, at, frame.bottom, {stroke: color, 'stroke-dasharray': '4 3', 'stroke-width': 1.5}),
    text(left ? at - 5 : at + 5, frame.bottom - height, words, {'text-anchor': left ? 'end' : 'start', fill: color, 'font-size': 11, ...halo})];
}

const curvePath = (curve, x, y, attributes) => s('path', {d: curve.map((one, i) => (i ? 'L' : 'M') + x(one.interval_s).toFixed(1) + ' ' + y(one.goodput).toFixed(1)).join(''), fill: 'none', ...attributes});

// `curve`: [{interval_s, goodput}] of the closed form, ascending; `best`: the one of Daly's interval; `kept`: another curve.
function goodputPicture(study, curve, best, kept) {
  const played = study.intervals.map(({interval_s, played}) => ({interval_s, goodput: played.parts.useful, low: played.goodput_low, high: played.goodput_high}));
  const times = [...curve, ...played, best].map((one) => one.interval_s), low = Math.min(...times), high = Math.max(...times, low * 1.01);
  const before = (kept || []).filter((one) => one.interval_s >= low && one.interval_s <= high);
  const least = Math.min(...[...curve, ...before].map((one) => one.goodput), ...played.map((one) => one.low));
  const from = Math.max(0, Math.floor(10 * least) / 10), chosen = study.closed_form.checkpoint_interval_s;
  return picture('goodput-interval', 'Goodput over the time between checkpoints', 'Goodput over the training time between checkpoints (logarithmic): the line is the closed form, dots are played, with 9 of 10 trials inside their bars; the ring is this job. No interval is shorter than a step, or than a checkpoint takes until it is complete.', (width) => {
    const frame = {left: 48, right: width - 16, top: 22, bottom: 262};
    const x = (time) => frame.left + Math.log(time / low) / Math.log(high / low) * (frame.right - frame.left);
    const y = (value) => frame.bottom - (value - from) / (1 - from) * (frame.bottom - frame.top);
    const parts = [text(frame.left, 12, 'goodput', {fill: 'var(--quiet)', 'font-size': 11})];
    for (const mark of ticks(from, 1, 5)) parts.push(line(frame.left, y(mark), frame.right, y(mark)),
      text(frame.left - 6, y(mark) + 4, Math.round(100 * mark) + ' %', {'text-anchor': 'end', fill: 'var(--quiet)', 'font-size': 11}));
    for (const [mark, words] of timeMarks(low, high, x)) parts.push(line(x(mark), frame.top, x(mark), frame.bottom + 4), axisLabel(x(mark), frame.bottom + 18, words, width));
    parts.push(text(frame.right, frame.bottom + 34, 'training between checkpoints', {'text-anchor': 'end', fill: 'var(--quiet)', 'font-size': 11}));
    parts.push(before.length > 0 && curvePath(before, x, y, {stroke: 'var(--quiet)', 'stroke-dasharray': '6 4', 'stroke-width': 1.5}), curvePath(curve, x, y, {stroke: 'var(--forward)', 'stroke-width': 2}));
    parts.push(markedLine(x(best.interval_s), 'best: ' + duration(best.interval_s), frame, 'var(--good)', 8));
    for (const one of played) {
      const at = x(one.interval_s);
      parts.push(line(at, y(one.low), at, y(one.high), {stroke: 'var(--backward)', 'stroke-width': 3}),
        hover(s('circle', {cx: at, cy: y(one.goodput), r: 4.5, fill: 'var(--backward)'}), ['a checkpoint every ' + duration(one.interval_s), 'goodput ' + percent(one.goodput), '9 of 10 trials: ' + percent(one.low) + ' to ' + percent(one.high)]));
    }
    const here = played.find((one) => one.interval_s === chosen);
    if (here) parts.push(s('circle', {cx: x(chosen), cy: y(here.goodput), r: 8, fill: 'none', stroke: 'var(--text)', 'stroke-width': 2}));
    return {height: frame.bottom + 42, parts};
  });
}

function sparesTable(study) {
  const rows = study.spares.map(({spare_nodes, played}) => [{n: (spare_nodes === study.spares_worth_having ? '\u2713 ' : '') + grouped(spare_nodes)}, {n: percent(played.parts.useful)},
    {n: percent(played.goodput_low) + ' to ' + percent(played.goodput_high)}, {n: percent(played.paid_goodput)}]);
  return table('Goodput by number of spare nodes', [{n: 'spare nodes'}, {n: 'goodput'}, {n: '9 of 10 trials'}, {n: 'per paid device'}], rows);
}

function failureCards(study, kept) {
  const now = failureFigures(study, {}), before = kept && failureFigures(kept, {});
  const beside = (of) => before ? '; kept: ' + of(before) : '';
  return h('div', {class: 'cards'},
    card(percent(now.goodput), 'goodput: time that trains; 9 of 10 trials ' + percent(now.goodput_low) + ' to ' + percent(now.goodput_high) + beside((one) => percent(one.goodput))),
    card(duration(now.mtbf_s), 'between failures of ' + plural(now.devices, 'device') + ', each ' + grouped(now.device_mtbf_hours) + ' h' + beside((one) => duration(one.mtbf_s))),
    card(duration(now.failure_s), 'lost by a failure: ' + duration(now.detection_s) + ' to notice, ' + duration(now.start_s) + ' to start, ' + duration(now.load_s) + ' to load, ' + duration(now.lost_s) + ' of work' + beside((one) => duration(one.failure_s))),
    card(duration(now.interval_s), 'of training between checkpoints, which stop it for ' + duration(now.stall_s) + beside((one) => duration(one.interval_s))),
    card(seconds(now.effective_step_s), 'a step with its share of failures, ' + seconds(now.step_time_s) + ' without' + beside((one) => seconds(one.effective_step_s))));
}
