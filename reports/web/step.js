// Where the step goes: from the model's FLOPs to the step time, by stage, how well it is known, what would change it.

const partKinds = {
  ideal: 'forward', beyond_model: 'forward', products: 'forward', attention: 'forward', streams: 'forward', slowdown: 'forward',
  recompute: 'recompute', tensor: 'tp', context: 'cp', experts: 'ep', sends: 'pp', bubble: 'bubble', data: 'dp',
  optimizer: 'optimizer', offload: 'host', host: 'host', waits: 'other', overhead: 'other',
};
const partOpacity = {ideal: 1, beyond_model: 0.55, products: 0.75, attention: 0.62, streams: 0.5, slowdown: 0.4};

function waterfallPicture(data) {
  const step = data.simulation.step_time_s, ideal = data.parts[0].seconds;
  const shown = data.parts.filter((part) => part.name === 'ideal' || Math.abs(part.seconds) > 5e-5 * step);
  let sum = 0;
  const rows = shown.map((part) => {
    const from = sum;
    sum += part.seconds;
    return {label: part.words, value: (part.name === 'ideal' ? '' : part.seconds < 0 ? '\u2212' : '+') + seconds(Math.abs(part.seconds)),
      pieces: [{from, to: sum, color: colorOf(partKinds[part.name] || 'other'), opacity: partOpacity[part.name],
        lines: [part.words, seconds(part.seconds) + ', ' + percent(part.seconds / step) + ' of the step', 'MFU so far ' + percent(ideal / sum)]}]};
  });
  rows.push({label: 'step time', bold: true, value: seconds(step), pieces: [{from: 0, to: step, color: 'var(--quiet)', lines: ['step time', seconds(step), 'MFU ' + percent(data.simulation.mfu)]}]});
  return picture('waterfall', 'Where the step goes, from the model\u2019s FLOPs at the peak to the step time',
    'From what the model\u2019s FLOPs would take at the peak of all ranks to the step time, the mean over all ranks; each bar begins where the one before ends.',
    (width) => barRows(width, rows, {low: 0, high: step, mark: axisTime, gutter: 232}));
}

function waterfallTable(data) {
  const step = data.simulation.step_time_s;
  let sum = 0;
  const rows = data.parts.filter((part) => part.seconds !== 0).map((part) => {
    sum += part.seconds;
    return [part.words, {n: seconds(part.seconds)}, {n: percent(part.seconds / step)}, {n: percent(data.parts[0].seconds / sum)}];
  });
  return table('Where the step goes', ['', {n: 'time'}, {n: 'share'}, {n: 'MFU so far'}], rows,
    ['step time', {n: seconds(step)}, {n: percent(1)}, {n: percent(data.simulation.mfu)}]);
}

function usedCategories(data) {
  return data.categories.filter((name) => data.simulation.stages.some((stage) => stage.breakdown_s[name] > 0));
}

function stagesPicture(data) {
  const used = usedCategories(data), {stages} = data.simulation;
  const high = Math.max(...stages.map((stage) => used.reduce((sum, name) => sum + stage.breakdown_s[name], 0)));
  const rows = stages.map((stage) => {
    let sum = 0;
    return {label: 'stage ' + stage.stage, value: '', pieces: used.filter((name) => stage.breakdown_s[name] > 0).map((name) => {
      const from = sum, value = stage.breakdown_s[name];
      sum += value;
      return {from, to: sum, color: colorOf(kindOf(name)), lines: ['stage ' + stage.stage + ': ' + name, seconds(value) + ', ' + percent(value / high)]};
    })};
  });
  return [legend(used.map((name) => [kindWords[kindOf(name)], colorOf(kindOf(name))])),
    picture('stages', 'Time of each stage by what it is spent on',
      'Every instant of a stage\u2019s ranks in one category; communication only where no computation hides it.',
      (width) => barRows(width, rows, {low: 0, high, mark: axisTime, gutter: 74, valueRoom: 34}))];
}

function stagesTable(data) {
  const used = usedCategories(data);
  return table('Time of each stage', [{n: 'stage'}, ...used.map((name) => ({n: name}))],
    data.simulation.stages.map((stage) => [{n: stage.stage}, ...used.map((name) => ({n: seconds(stage.breakdown_s[name])}))]));
}

function sensitivityPicture(data) {
  const step = data.simulation.step_time_s;
  const sorted = [...data.sensitivities].filter((one) => Math.abs(one.seconds_of_10_percent) > 1e-5 * step)
    .sort((a, b) => Math.abs(b.seconds_of_10_percent) - Math.abs(a.seconds_of_10_percent));
  if (sorted.length === 0) return null;
  const values = sorted.map((one) => one.seconds_of_10_percent / step * 100);
  const low = Math.min(0, ...values) * 1.15, high = Math.max(0, ...values) * 1.15;
  const rows = sorted.map((one, i) => ({label: one.figure, value: signedSeconds(one.seconds_of_10_percent),
    pieces: [{from: 0, to: values[i], color: values[i] < 0 ? 'var(--tp)' : 'var(--backward)',
      lines: [one.figure + ' \u00d7 1.1', signedSeconds(one.seconds_of_10_percent) + ' (' + signedPercent(values[i] / 100) + ')']}]}));
  return [h('h3', {}, 'What would change it'), picture('sensitivity', 'What ten percent more of a figure of the cluster does to the step time',
    'What 10 % more of a figure does to the step time, as estimated (simulate --set FIGURE=1.1), in percent of the step.',
    (width) => barRows(width, rows, {low, high, mark: (value) => +value.toFixed(3) + ' %', gutter: 180, valueRoom: 76}))];
}

function termsTable(data) {
  const rows = data.terms.map((term) => [term.name, {n: seconds(term.seconds)}, {n: '\u00b1' + percent(term.sigma)}, term.source, {wide: term.measure}]);
  return [h('h3', {}, 'How well it is known'), h('p', {class: 'quiet'}, 'Terms of the step of the stage that computes longest, those that know least first; \u00b1 is a relative standard deviation.'),
    table('How well each term is known', ['term', {n: 'time'}, {n: 'uncertain by'}, 'known from', 'what would narrow it'], rows)];
}

function stepSection(data) {
  return section('step', 'Where the step goes', 'Step', waterfallPicture(data), details('As a table', waterfallTable(data)),
    h('h3', {}, 'Stage by stage'), stagesPicture(data), details('As a table', stagesTable(data)), sensitivityPicture(data), termsTable(data));
}
