// Every size with its figures, and what was measured beside what was predicted.

function pointsSection(data) {
  const columns = [{n: 'devices'}, data.axis && {n: data.axis}, {n: 'step time'}, {n: '80 % interval'}, {n: 'tokens/s'}, {n: 'speed-up'}, {n: 'efficiency'}, {n: 'MFU'}, {n: 'exposed'}, {n: 'sent by a rank'}, {n: 'memory'}, 'plan'];
  const rows = data.points.map((one) => {
    const head = [{n: grouped(one.devices)}, data.axis && {n: one.degree === null ? '\u2013' : grouped(one.degree)}];
    if (!one.valid) return [...head, 'no plan', '', '', '', '', '', '', '', '', {wide: one.message}];
    const {step} = one;
    return [...head, {n: seconds(step.step_time_s)}, {n: step.interval_80_s.map(seconds).join(' to ')}, {n: count(step.tokens_per_s)}, {n: +step.speed_up.toPrecision(4)}, {n: percent(step.efficiency)},
      {n: percent(step.mfu)}, {n: percent(step.exposed_s / step.step_time_s)}, {n: step.bytes_sent === null ? '-' : bytes(step.bytes_sent)}, {n: bytes(step.peak_memory_bytes) + (one.fits ? '' : ' !')}, {wide: step.plan + (one.fits ? '' : ' (does not fit)')}];
  });
  const kept = (row) => (data.axis ? row : row.filter((cell, i) => i !== 1));
  return section('points', 'All sizes', 'Sizes', table('All sizes', kept(columns), rows.map(kept)),
    data.worth_testing.length > 0 && [h('h3', {}, 'Sizes worth testing'), h('ul', {class: 'plain'}, data.worth_testing.map((one) => h('li', {}, plural(one.devices, 'device') + ': ' + one.reasons.join(', '))))]);
}

function measuredSection(data) {
  if (!data.measured) return null;
  const rows = data.measured.points.map((one) => {
    const step = (data.points.find((other) => other.devices === one.devices) || {}).step;
    const known = one.error !== null;
    return [{n: grouped(one.devices)}, {n: one.runs}, {n: step ? seconds(step.step_time_s) : 'no plan'}, {n: step ? step.interval_80_s.map(seconds).join(' to ') : ''}, {n: seconds(one.step_time_s)},
      {n: known ? signedPercent(one.error) : ''}, known ? (one.inside_interval ? 'yes' : 'no') : '', {n: known ? +one.speed_up.toPrecision(4) : ''}, {n: known ? percent(one.efficiency) : ''}];
  });
  return section('measured', 'Measured', 'Measured', h('p', {}, data.measured.inside_interval + ' of ' + data.measured.predicted + ' sizes lie inside their interval; mean absolute error ' +
      percent(data.measured.mean_absolute_error) + '. Source: ' + data.measured.source + '.'),
    table('Measured beside predicted', [{n: 'devices'}, {n: 'runs'}, {n: 'predicted'}, {n: '80 % interval'}, {n: 'measured'}, {n: 'error'}, 'inside', {n: 'speed-up'}, {n: 'efficiency'}], rows));
}
