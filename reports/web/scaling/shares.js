// Where the step of each size goes, and what the efficiency that it has lost went to.

const slices = [
  ['compute', 'forward', ['ideal', 'beyond_model', 'products', 'attention', 'streams', 'slowdown']],
  ['recompute', 'recompute', ['recompute']],
  ['tensor parallel', 'tp', ['tensor']],
  ['context parallel', 'cp', ['context']],
  ['expert parallel', 'ep', ['experts']],
  ['pipeline sends', 'pp', ['sends']],
  ['data parallel', 'dp', ['data']],
  ['bubble', 'bubble', ['bubble']],
  ['optimizer', 'optimizer', ['optimizer', 'offload']],
  ['rest', 'host', ['host', 'waits', 'overhead']],
];

function sliceOf(step, names) {
  return step.parts.filter((part) => names.includes(part.name)).reduce((sum, part) => sum + part.seconds, 0);
}

function usedSlices(data) {
  return slices.filter(([, , names]) => stepsOf(data).some((one) => sliceOf(one.step, names) > 5e-4 * one.step.step_time_s));
}

function sharesPicture(data) {
  const used = usedSlices(data);
  const rows = stepsOf(data).map((one) => {
    let from = 0;
    const pieces = used.map(([name, kind, names]) => {
      const part = Math.max(0, sliceOf(one.step, names) / one.step.step_time_s);
      const piece = {from, to: from + part, color: colorOf(kind), lines: [plural(one.devices, 'device') + ': ' + name + ' ' + percent(part), seconds(part * one.step.step_time_s) + ' of ' + seconds(one.step.step_time_s)]};
      from += part;
      return piece;
    });
    return {label: grouped(one.devices), value: seconds(one.step.step_time_s), pieces};
  });
  return picture('shares', 'Where the step of each size goes, in parts of its time',
    'Communication only where nothing hides it; beside each bar the step time.',
    (width) => barRows(width, rows, {low: 0, high: 1, mark: (part) => Math.round(100 * part) + ' %', gutter: 64, valueRoom: 76, unit: 'of the step; rows: devices'}));
}

function sharesTable(data) {
  const used = usedSlices(data);
  return table('Where the step of each size goes', [{n: 'devices'}, ...used.map(([name]) => ({n: name})), {n: 'step time'}],
    stepsOf(data).map((one) => [{n: grouped(one.devices)}, ...used.map(([, , names]) => ({n: percent(sliceOf(one.step, names) / one.step.step_time_s)})), {n: seconds(one.step.step_time_s)}]));
}

function lossesTable(data) {
  const iso = data.points.some((one) => one.step && one.step.iso_batch);
  return table('Efficiency lost', [{n: 'devices'}, {n: 'lost'}, {n: 'to communication'}, {n: 'to the bubble'}, {n: 'to what does not shrink'}, {n: 'serial part'}, 'link', iso && {n: 'iso batch'}].filter(Boolean),
    stepsOf(data).map((one) => [{n: grouped(one.devices)}, {n: percent(1 - one.step.efficiency)}, {n: percent(one.step.lost_to_communication)}, {n: percent(one.step.lost_to_bubble)},
      {n: percent(one.step.lost_to_rest)}, {n: one.step.serial_part === null ? '\u2013' : +(100 * one.step.serial_part).toPrecision(3) + ' %'}, one.level || '\u2013',
      iso && {n: one.step.iso_batch ? (one.step.iso_batch.reached ? '' : '> ') + grouped(one.step.iso_batch.global_batch_size) : '\u2013'}].filter((cell) => cell !== false)));
}

function sharesSection(data) {
  return section('shares', 'Where the step goes', 'Step', legend(usedSlices(data).map(([name, kind]) => [name, colorOf(kind)])), sharesPicture(data),
    details('As a table', sharesTable(data)),
    h('h3', {}, 'Efficiency lost since ' + plural(data.first_devices, 'device')),
    h('p', {class: 'quiet'}, 'Device time for the same work, part by part, against the first size. The serial part is what explains the speed-up of each size by itself: where it rises, overhead that grows with the devices bends the curve, where it is constant, a part that does not shrink.'),
    lossesTable(data));
}
