// Predicted against measured: step time with both intervals, by category, and the operations that explain the gap.

function intervalsPicture(data) {
  const {comparison: c, simulation} = data;
  const [low, high] = simulation.interval_80_s;
  const rows = [
    {name: 'predicted', color: 'var(--forward)', low, middle: simulation.step_time_s, high, words: '80 % interval'},
    {name: 'measured', color: 'var(--backward)', low: c.measured.p10_s, middle: c.measured.median_s, high: c.measured.p90_s, words: 'p10 to p90'}];
  const least = Math.min(...rows.map((row) => row.low)), most = Math.max(...rows.map((row) => row.high));
  const from = least - 0.1 * (most - least || most), to = most + 0.1 * (most - least || most);
  return picture('intervals', 'Step time, predicted and measured, with intervals',
    'The prediction with the interval that holds the measured time in 80 % of cases; the median of ' + plural(c.measured.steps, 'measured step') + ' with their p10 and p90.', (width) => {
      const left = 80, right = 14, x = (time) => left + (time - from) / (to - from) * (width - left - right);
      const marks = ticks(from, to, Math.max(2, Math.floor((width - left) / 100))), parts = [];
      for (const mark of marks) parts.push(line(x(mark), 6, x(mark), 94), axisLabel(x(mark), 110, axisTime(mark, stepOf(marks)), width));
      rows.forEach((row, i) => {
        const y = 26 + i * 40;
        parts.push(text(left - 8, y + 4, row.name, {'text-anchor': 'end'}),
          hover(rect(x(row.low), y - 7, Math.max(2, x(row.high) - x(row.low)), 14, row.color, {opacity: 0.35, rx: 2}), [row.name + ' ' + seconds(row.middle), row.words + ' ' + seconds(row.low) + ' to ' + seconds(row.high)]),
          s('circle', {cx: x(row.middle), cy: y, r: 5, fill: row.color, stroke: 'var(--ground)'}),
          text(Math.min(x(row.middle), width - 40), y + 22, seconds(row.middle), {'text-anchor': 'middle', 'font-weight': 600}));
      });
      return {height: 118, parts};
    });
}

function categoriesTable(data) {
  const {comparison: c} = data;
  const names = data.categories.filter((name) => c.predicted_mean[name + '_s'] || c.measured_mean[name + '_s']);
  const sum = (of) => data.categories.reduce((all, name) => all + of[name + '_s'], 0);
  const row = (name, p, m, cp, cm) => [name, {n: seconds(p)}, {n: seconds(m)}, {n: signedSeconds(p - m)}, {n: seconds(cp)}, {n: seconds(cm)}];
  return table('Time by category, predicted and measured', ['category', {n: 'predicted'}, {n: 'measured'}, {n: 'difference'}, {n: 'critical rank: predicted'}, {n: 'measured'}],
    names.map((name) => row(name, c.predicted_mean[name + '_s'], c.measured_mean[name + '_s'], c.predicted_critical[name + '_s'], c.measured_critical[name + '_s'])),
    row('sum', sum(c.predicted_mean), sum(c.measured_mean), sum(c.predicted_critical), sum(c.measured_critical)));
}

function gapPicture(data) {
  const shown = data.comparison.operations.slice(0, 14).filter((one) => one.predicted_s !== one.measured_s);
  if (shown.length === 0) return null;
  const differences = shown.map((one) => one.measured_s - one.predicted_s);
  const low = Math.min(0, ...differences), high = Math.max(0, ...differences);
  const rows = shown.map((one, i) => ({label: one.name, value: signedSeconds(differences[i]), pieces: [{from: 0, to: differences[i],
    color: differences[i] > 0 ? 'var(--backward)' : 'var(--forward)',
    lines: [one.name, 'predicted ' + seconds(one.predicted_s) + ', measured ' + seconds(one.measured_s)]}]}));
  return picture('gap', 'Operations that explain the gap between prediction and measurement',
    'What all executions of an operation took longer (right) or shorter than predicted, the mean over ranks; largest first.',
    (width) => barRows(width, rows, {low, high: high || 1e-9, mark: axisTime, gutter: 220, valueRoom: 76}));
}

function comparisonSection(data) {
  const {comparison: c} = data;
  if (!c) return null;
  const operations = c.operations.slice(0, 60).map((one) => [{wide: one.name}, {n: seconds(one.predicted_s)}, {n: seconds(one.measured_s)},
    {n: signedSeconds(one.measured_s - one.predicted_s)}, {n: one.measured_s > 0 ? signedPercent(one.predicted_s / one.measured_s - 1) : ''}]);
  return section('comparison', 'Predicted against measured', 'Measured', intervalsPicture(data),
    table('Step time and memory', ['', {n: 'predicted'}, {n: 'measured'}, {n: 'error'}], [
      ['step time', {n: seconds(c.predicted.median_s)}, {n: seconds(c.measured.median_s)}, {n: signedPercent(c.step_time_error)}],
      ['peak memory, largest rank', {n: bytes(c.predicted_memory_bytes)}, {n: bytes(c.measured_memory_bytes)},
        {n: c.measured_memory_bytes > 0 ? signedPercent(c.predicted_memory_bytes / c.measured_memory_bytes - 1) : ''}]]),
    operations.length === 0 ? h('p', {}, 'The run kept no spans: run with --trace for operations.') : [
      h('p', {class: 'quiet'}, 'Traced steps take ' + signedPercent(c.tracing_overhead) + ' of an untraced one. Critical rank: ' + c.critical_rank + ', which waits least.'),
      h('h3', {}, 'By category, mean over ranks'), categoriesTable(data),
      h('h3', {}, 'Operations that explain the gap'), gapPicture(data),
      details('As a table', table('Operations, largest difference first', ['operation', {n: 'predicted'}, {n: 'measured'}, {n: 'difference'}, {n: 'error'}], operations))]);
}
