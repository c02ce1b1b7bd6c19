// What a search for the plan's work found: ranked plans and reasons, the best of each tp and pp, time against memory.

function rankedTable(data, outcome) {
  const best = outcome.ranked[0].step_time_s;
  return table('Ranked plans', [{n: '#'}, 'plan', {n: 'step time'}, {n: '80 % interval'}, {n: 'slower'}, {n: 'MFU'}, {n: 'memory'}],
    outcome.ranked.map((plan, i) => [{n: i + 1}, {wide: plan.description + (plan.description === data.description ? ' (this plan)' : '')}, {n: seconds(plan.step_time_s)},
      {n: plan.interval_80_s ? seconds(plan.interval_80_s[0]) + ' to ' + seconds(plan.interval_80_s[1]) : ''},
      {n: plan.ties ? 'tie' : i === 0 ? '' : signedPercent(plan.step_time_s / best - 1)}, {n: percent(plan.mfu)}, {n: bytes(plan.peak_memory_bytes)}]));
}

function standingOf(data, outcome) {
  const at = outcome.ranked.findIndex((plan) => plan.description === data.description);
  const best = outcome.ranked[0], own = data.simulation.step_time_s;
  if (at === 0) return 'This plan is the first of them.';
  const apart = signedSeconds(own - best.step_time_s) + ' (' + signedPercent(own / best.step_time_s - 1) + ') against #1.';
  return (at > 0 ? 'This plan is #' + (at + 1) + ' of them: ' : 'This plan is not among the first ' + outcome.ranked.length + ': ') + apart;
}

function heatPicture(data, cells) {
  const tps = [...new Set(cells.map((one) => one.tp))], pps = [...new Set(cells.map((one) => one.pp))].sort((a, b) => a - b);
  const times = cells.filter((one) => one.step_time_s !== null).map((one) => one.step_time_s);
  const least = Math.min(...times), most = Math.max(...times);
  return picture('heatmap', 'The best step time of each tensor and pipeline parallel size, as estimated',
    'The fastest plan that fits of each tp and pp, as estimated; lighter is faster, on a logarithmic scale. \u2013: none fits or obeys the rules.', (width) => {
      const left = 56, top = 26, size = Math.min(96, (width - left - 4) / pps.length), height = 34;
      const parts = [text(left - 8, 16, 'tp \\ pp', {'text-anchor': 'end', fill: 'var(--quiet)'})];
      pps.forEach((pp, i) => parts.push(text(left + (i + 0.5) * size, 16, pp, {'text-anchor': 'middle', fill: 'var(--quiet)'})));
      tps.forEach((tp, j) => {
        const y = top + j * height;
        parts.push(text(left - 8, y + 21, tp, {'text-anchor': 'end', fill: 'var(--quiet)'}));
        pps.forEach((pp, i) => {
          const one = cells.find((other) => other.tp === tp && other.pp === pp);
          if (!one) return;
          const x = left + i * size, fits = one.step_time_s !== null;
          const part = most > least ? 1 - Math.log(one.step_time_s / least) / Math.log(most / least) : 1;
          const color = fits ? heat(part) : {fill: 'var(--raised)', text: 'var(--quiet)'};
          parts.push(hover(rect(x + 1, y + 1, size - 2, height - 2, color.fill, {stroke: one.step_time_s === least ? 'var(--text)' : null, 'stroke-width': 2.5}),
            fits ? ['tp ' + tp + ', pp ' + pp + ': ' + seconds(one.step_time_s), one.description, bytes(one.peak_memory_bytes) + ' on the fullest rank'] : ['tp ' + tp + ', pp ' + pp + ': none', one.reason]),
          text(x + size / 2, y + 21, fits ? (textWidth(seconds(one.step_time_s)) < size - 6 ? seconds(one.step_time_s) : +one.step_time_s.toPrecision(2)) : '\u2013', {'text-anchor': 'middle', fill: color.text, 'pointer-events': 'none'}));
        });
      });
      return {height: top + tps.length * height + 4, parts};
    });
}

function heatTable(cells) {
  return table('The best plan of each tp and pp', [{n: 'tp'}, {n: 'pp'}, {n: 'step time'}, {n: 'memory'}, 'plan, or why there is none'],
    cells.map((one) => [{n: one.tp}, {n: one.pp}, {n: one.step_time_s === null ? '\u2013' : seconds(one.step_time_s)}, {n: one.step_time_s === null ? '' : bytes(one.peak_memory_bytes)},
      {wide: one.description || one.reason}]));
}

function paretoPicture(data, search) {
  const {frontier} = search, outcome = search.outcome;
  const played = [...(outcome.ranked || []), ...(outcome.alternatives || []).map((one) => one.best_plan).filter(Boolean)];
  const own = {description: data.description, step_time_s: data.simulation.step_time_s, peak_memory_bytes: data.simulation.peak_memory_bytes};
  const all = [...frontier, ...played, own];
  const capacity = data.simulation.capacity_bytes;
  const lowTime = Math.min(...all.map((one) => one.step_time_s)), highTime = Math.max(...frontier.map((one) => one.step_time_s), own.step_time_s);
  const from = lowTime - 0.06 * (highTime - lowTime || lowTime), to = highTime + 0.06 * (highTime - lowTime || lowTime);
  const highMemory = Math.max(capacity, ...all.map((one) => one.peak_memory_bytes)) * 1.05;
  return picture('pareto', 'Step time against memory: plans of which none is both faster and smaller',
    'Each point of the line is the fastest plan that needs less memory than the one before it; small dots are other plans that were played, the ring is this plan.', (width) => {
      const left = 62, right = 16, top = 22, height = 260, bottom = top + height;
      const x = (time) => left + (time - from) / (to - from) * (width - left - right), y = (memory) => bottom - memory / highMemory * height;
      const parts = [];
      for (const mark of ticks(0, highMemory / 2 ** 30, 6)) parts.push(line(left, y(mark * 2 ** 30), width - right, y(mark * 2 ** 30)),
        text(left - 6, y(mark * 2 ** 30) + 4, +mark.toPrecision(4) + ' GiB', {'text-anchor': 'end', fill: 'var(--quiet)', 'font-size': 11}));
      const times = ticks(from, to, Math.max(2, Math.floor((width - left) / 100)));
      for (const mark of times) parts.push(line(x(mark), top, x(mark), bottom), axisLabel(x(mark), bottom + 16, axisTime(mark, stepOf(times)), width));
      parts.push(text(left, 12, 'memory of the fullest rank', {fill: 'var(--quiet)', 'font-size': 11}), text(width - right, bottom + 32, 'step time', {'text-anchor': 'end', fill: 'var(--quiet)', 'font-size': 11}));
      parts.push(line(left, y(capacity), width - right, y(capacity), {stroke: 'var(--bad)', 'stroke-dasharray': '5 3', 'stroke-width': 1.5}));
      const sorted = [...frontier].sort((a, b) => a.step_time_s - b.step_time_s);
      parts.push(s('path', {d: sorted.map((one, i) => (i ? 'H' + x(one.step_time_s).toFixed(1) + 'V' : 'M' + x(one.step_time_s).toFixed(1) + ' ') + y(one.peak_memory_bytes).toFixed(1)).join(''), fill: 'none', stroke: 'var(--forward)', 'stroke-width': 1.5}));
      const point = (one, radius, attributes, words) => hover(s('circle', {cx: x(one.step_time_s), cy: y(one.peak_memory_bytes), r: radius, ...attributes}), [words + one.description, seconds(one.step_time_s) + ', ' + bytes(one.peak_memory_bytes)]);
      for (const one of played) if (one.step_time_s <= to) parts.push(point(one, 3, {fill: 'var(--backward)'}, ''));
      for (const one of frontier) parts.push(point(one, 5, {fill: 'var(--forward)'}, ''));
      parts.push(point(own, 8, {fill: 'none', stroke: 'var(--text)', 'stroke-width': 2, 'pointer-events': 'all'}, 'this plan: '));
      return {height: bottom + 40, parts};
    });
}

function alternativesTable(outcome) {
  const merged = [];
  for (const one of outcome.alternatives.filter((other) => other.best_plan).sort((a, b) => a.slower_by_s - b.slower_by_s)) {
    const same = merged.find((other) => other.best_plan.description === one.best_plan.description);
    if (same) same.choices.push(one.choice); else merged.push({...one, choices: [one.choice]});
  }
  const rows = merged.slice(0, 16).map((one) => [{wide: one.choices.join(', ')}, {n: one.best_plan.ties ? 'tie' : signedSeconds(one.slower_by_s)},
    {wide: one.best_plan.description}, {wide: one.reason}]);
  if (rows.length === 0) return null;
  return [h('h3', {}, 'Why not another'), h('p', {class: 'quiet'}, 'The best plan with another choice, and what it takes longer than #1.'),
    table('Why not another choice', ['with', {n: 'slower by'}, 'plan', 'where'], rows)];
}

function rejectionsTable(outcome) {
  const rows = [...outcome.rejections].sort((a, b) => b.plans - a.plans).slice(0, 40)
    .map((one) => [one.family, {n: grouped(one.plans)}, one.rule, {wide: one.message}]);
  return rows.length > 0 && details('Why plans were turned down', table('Rejected plans', ['plans with', {n: 'plans'}, 'rule', 'why'], rows));
}

function searchSection(data) {
  const {search} = data;
  if (!search) return null;
  const {outcome, cells} = search, {counts} = outcome;
  const fits = cells.some((one) => one.step_time_s !== null);
  return section('search', 'The search', 'Search',
    h('p', {}, grouped(counts.total) + ' plans: ' + grouped(counts.broke_a_rule) + ' break a rule, ' + grouped(counts.did_not_fit) + ' do not fit, ' + grouped(counts.bounded) +
      ' slower by a bound, ' + grouped(counts.ranked) + ' ranked (' + grouped(counts.refined) + ' refined), in ' + seconds(search.seconds) + '.'),
    outcome.feasible ? [h('p', {}, standingOf(data, outcome)), rankedTable(data, outcome),
      h('h3', {}, 'Why #1'), h('ul', {class: 'plain'}, search.reasons.map((reason) => h('li', {}, reason))), alternativesTable(outcome)]
      : h('p', {class: 'bad'}, 'No plan of the space obeys the rules and fits.' + (outcome.nearest_miss ? ' Nearest miss: ' + outcome.nearest_miss.description + ', ' + bytes(outcome.nearest_miss.peak_memory_bytes) + '.' : '')),
    fits && [h('h3', {}, 'Tensor and pipeline parallel sizes'), heatPicture(data, cells), details('As a table', heatTable(cells))],
    search.frontier.length > 0 && [h('h3', {}, 'Time against memory'), paretoPicture(data, search),
      details('As a table', table('Plans of which none is both faster and smaller', ['plan', {n: 'step time'}, {n: 'memory'}],
        search.frontier.map((one) => [{wide: one.description}, {n: seconds(one.step_time_s)}, {n: bytes(one.peak_memory_bytes)}])))],
    rejectionsTable(outcome));
}
