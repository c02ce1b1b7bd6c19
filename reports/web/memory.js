// Memory: what each stage's fullest rank holds, and what its first rank holds over the step.

const memoryParts = [['parameters', 'weights'], ['master_parameters', 'master weights'], ['gradients', 'gradients'], ['optimizer', 'optimizer'],
  ['activations', 'activations'], ['transient', 'transient'], ['workspace', 'workspace'], ['boundary', 'boundary'],
  ['communication', 'communication'], ['runtime_base', 'runtime']];

function memoryTable(data) {
  const used = memoryParts.filter(([name]) => data.simulation.memory.some((stage) => stage[name + '_bytes'] > 0));
  return table('Memory of each stage\u2019s fullest rank', [{n: 'stage'}, ...used.map(([, words]) => ({n: words})), {n: 'total'}],
    data.simulation.memory.map((stage) => [{n: stage.stage}, ...used.map(([name]) => ({n: bytes(stage[name + '_bytes'])})), {n: bytes(stage.total_bytes)}]));
}

function memoryPanel(stage, classes, {x, y, width, height, end, most}) {
  const columns = Math.max(...stage.mib.map((values) => values.length));
  const at = (values, i) => (values.length === 1 ? values[0] : values[i]) * 2 ** 20;
  const px = (i) => x + i / columns * width * (stage.end_s / end), py = (value) => y + height - value / most * height;
  const parts = [];
  let base = new Float64Array(columns);
  stage.mib.forEach((values, c) => {
    const top = base.map((value, i) => value + at(values, i));
    if (values.length === 0 || !values.some((value) => value > 0)) return;
    let path = '';
    for (let i = 0; i < columns; ++i)
      if (i === 0 || top[i] !== top[i - 1]) path += (i ? 'H' : 'M') + px(i).toFixed(1) + (i ? '' : ' ' + py(top[i]).toFixed(1)) + (i ? 'V' + py(top[i]).toFixed(1) : '');
    path += 'H' + px(columns).toFixed(1) + 'V' + py(base[columns - 1]).toFixed(1);
    for (let i = columns - 1; i > 0; --i) if (base[i] !== base[i - 1]) path += 'H' + px(i).toFixed(1) + 'V' + py(base[i - 1]).toFixed(1);
    parts.push(hover(s('path', {d: path + 'H' + px(0).toFixed(1) + 'Z', fill: 'var(--memory-' + c + ')'}),
      ['stage ' + stage.stage + ': ' + classes[c], values.length === 1 ? bytes(at(values, 0)) + ', the whole step' : 'at most ' + bytes(values.reduce((a, b) => Math.max(a, b), 0) * 2 ** 20)]));
    base = top;
  });
  parts.push(line(x, y + height, x + width, y + height, {stroke: 'var(--quiet)'}));
  const room = py(stage.capacity_bytes);
  if (room >= y) parts.push(line(x, room, x + width, room, {stroke: 'var(--bad)', 'stroke-dasharray': '5 3', 'stroke-width': 1.5}));
  const peak = x + stage.peak_s / end * width;
  parts.push(s('path', {d: 'M' + peak + ' ' + (py(stage.peak_bytes) - 1) + 'l-4 -7h8z', fill: 'var(--text)'}));
  return parts;
}

function memoryPicture(data, stages) {
  const {classes} = data.memory;
  const end = Math.max(...stages.map((stage) => stage.end_s));
  const peak = Math.max(...stages.map((stage) => stage.peak_bytes));
  const capacity = Math.max(...stages.map((stage) => stage.capacity_bytes));
  const most = 1.04 * (peak < 0.4 * capacity ? 1.25 * peak : Math.max(capacity, peak));
  return picture('memory', 'Memory of each stage\u2019s first rank over the step',
    'Everything that the rank holds, stacked; the triangle is the peak, ' + (most < capacity ? 'what it may use, ' + bytes(capacity) + ', lies far above.'
      : 'the dashed line what it may use.'), (width) => {
      const across = width >= 760 && stages.length > 1 ? 2 : 1, gap = 70, left = 62;
      const panelWidth = (width - left - (across - 1) * gap - 16) / across, panelHeight = 116, rowHeight = panelHeight + 52;
      const parts = [];
      stages.forEach((stage, i) => {
        const x = left + (i % across) * (panelWidth + gap), y = 24 + Math.floor(i / across) * rowHeight;
        parts.push(text(x, y - 8, fitted('stage ' + stage.stage + ', rank ' + stage.rank + ': peak ' + bytes(stage.peak_bytes) + ' at ' + seconds(stage.peak_s) + ', ' + stage.during, panelWidth)));
        const marks = ticks(0, most / 2 ** 30, 4), unit = most >= 2 ** 30 ? ['GiB', 2 ** 30] : ['MiB', 2 ** 20];
        for (const mark of unit[0] === 'GiB' ? marks : ticks(0, most / 2 ** 20, 4)) {
          const at = y + panelHeight - mark * unit[1] / most * panelHeight;
          parts.push(line(x, at, x + panelWidth, at), text(x - 6, at + 4, +mark.toPrecision(4) + ' ' + unit[0], {'text-anchor': 'end', fill: 'var(--quiet)', 'font-size': 11}));
        }
        const times = ticks(0, end, Math.max(2, Math.floor(panelWidth / 95)));
        for (const mark of times) parts.push(text(x + mark / end * panelWidth, y + panelHeight + 15, axisTime(mark, stepOf(times)),
          {'text-anchor': mark === 0 ? 'start' : 'middle', fill: 'var(--quiet)', 'font-size': 11}));
        parts.push(memoryPanel(stage, classes, {x, y, width: panelWidth, height: panelHeight, end, most}));
      });
      return {height: 24 + Math.ceil(stages.length / across) * rowHeight, parts};
    });
}

// The first and the last stage and the fullest of the others, where there are many.
function shownStages(stages) {
  const most = 8;
  if (stages.length <= most) return stages;
  const ends = [stages[0], stages[stages.length - 1]];
  const others = stages.slice(1, -1).sort((a, b) => b.peak_bytes - a.peak_bytes).slice(0, most - 2);
  return [...ends, ...others].sort((a, b) => a.stage - b.stage);
}

function memorySection(data) {
  const {stages, classes} = data.memory;
  const shown = shownStages(stages);
  const used = classes.map((name, c) => [name, c]).filter(([, c]) => shown.some((stage) => stage.mib[c].some((value) => value > 0)));
  const peaks = stages.map((stage) => [{n: stage.stage}, {n: stage.rank}, {n: bytes(stage.peak_bytes)}, {n: bytes(stage.planned_bytes)}, {n: bytes(stage.capacity_bytes)},
    {n: seconds(stage.peak_s)}, {wide: stage.during}]);
  return section('memory', 'Memory', 'Memory',
    shown.length > 0 && [shown.length < stages.length && h('p', {class: 'quiet'}, 'The first and the last stage, and the fullest of the others; all are in the table.'),
      legend(used.map(([name, c]) => [name, 'var(--memory-' + c + ')'])), memoryPicture(data, shown),
      details('Peaks as a table', table('Peak memory of each stage', [{n: 'stage'}, {n: 'rank'}, {n: 'peak'}, {n: 'planned'}, {n: 'may use'}, {n: 'at'}, 'during'], peaks))],
    h('h3', {}, 'What each stage\u2019s fullest rank holds'), memoryTable(data));
}
