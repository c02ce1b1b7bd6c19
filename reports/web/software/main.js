// The page of a plan that another training stack runs: what its step and its memory consist of.

// Pieces of a row, one after another.
function pieces(parts, name, color, words) {
  let from = 0;
  return parts.map((part, i) => {
    const piece = {from, to: from + part.value, color: color(part, i), lines: [part.name, words(part.value), percent(part.value / parts.reduce((sum, one) => sum + one.value, 0)) + ' of the ' + name]};
    from += part.value;
    return piece;
  });
}

function entries(values) {
  const words = (name) => kindOf(name) === 'other' ? name.replace(/_/g, ' ') : kindWords[kindOf(name)];
  return Object.entries(values).map(([name, value]) => ({name: words(name), key: name, value})).filter((part) => part.value > 0);
}

const gib = 2 ** 30;
const memoryColor = (part, i) => 'var(--memory-' + Math.min(6, i) + ')';

function planSection(data) {
  const report = data.report, [low, high] = report.interval_80_s;
  const fits = report.memory_verdict.verdict !== 'does_not_fit', tight = report.memory_verdict.verdict === 'tight';
  return section('plan', 'The plan', 'Plan',
    h('p', {}, 'Predicted as runs of ' + report.software + ' are, not operation by operation.'),
    h('div', {class: 'cards'},
      card(seconds(report.step_time_s), 'a step, predicted; 80 % interval ' + seconds(low) + ' to ' + seconds(high)),
      card(percent(report.mfu), 'MFU'),
      card(count(report.tokens_per_s), 'tokens a second, all ranks'),
      card(bytes(report.peak_memory_bytes), 'memory that the fullest rank needs, of ' + bytes(report.capacity_bytes), fits ? '' : 'bad')),
    h('p', {class: tight ? null : fits ? 'good' : 'bad'}, (tight ? '! ' : fits ? '\u2713 ' : '\u2717 ') + data.verdict),
    report.refused.map((one) => h('p', {class: 'bad'}, '\u2717 Would not start: ' + one.message + ' (' + one.rule + ')')),
    h('dl', {}, data.header.map((line) => [h('dt', {}, line.name), h('dd', {}, line.text)])));
}

function stepSection(data) {
  const parts = entries(data.report.breakdown_s);
  const color = (part) => colorOf(kindOf(part.key));
  return section('step', 'Where the step goes', 'Step', legend(parts.map((part) => [part.name, color(part)])),
    picture('step', 'Where the step of the busiest rank goes', 'Communication only where nothing hides it.',
      (width) => barRows(width, [{label: 'step', value: seconds(data.report.step_time_s), pieces: pieces(parts, 'step', color, seconds)}],
        {low: 0, high: data.report.step_time_s, mark: (value) => seconds(value), gutter: 64})),
    table('Where the step goes', ['part', {n: 'time'}, {n: 'share'}],
      parts.map((part) => [part.name, {n: seconds(part.value)}, {n: percent(part.value / data.report.step_time_s)}])));
}

function memorySection(data) {
  const report = data.report, parts = entries(report.memory_bytes);
  const shown = [['allocated by PyTorch', report.allocated_bytes], ['reserved by PyTorch', report.reserved_bytes], ['used on the device', report.device_bytes], ['the device has', report.capacity_bytes]];
  return section('memory', 'Memory of the fullest rank', 'Memory', legend(parts.map((part, i) => [part.name, memoryColor(part, i)])),
    picture('memory', 'Memory of the fullest rank', 'What its users read off their screens stands below.',
      (width) => barRows(width, [{label: 'needed', value: bytes(report.peak_memory_bytes), pieces: pieces(parts.map((part) => ({...part, value: part.value / gib})), 'memory', memoryColor, (value) => bytes(value * gib))}],
        {low: 0, high: Math.max(report.capacity_bytes, report.peak_memory_bytes) / gib, mark: (value) => value + ' GiB', gutter: 64})),
    table('Memory', ['', {n: 'bytes'}], [...parts.map((part) => [part.name, {n: bytes(part.value)}]), ...shown.map(([name, value]) => [name, {n: bytes(value)}])]));
}

function start() {
  const data = pageData();
  showPage(data, data.title + ', ' + data.description + ' \u2013 meshplan report', () => [planSection(data), stepSection(data), memorySection(data)]);
}

start();
