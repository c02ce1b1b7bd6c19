// Speed-up and efficiency over the number of devices: predicted with their intervals, measured, and the ideal.

const stepsOf = (data) => data.points.filter((one) => one.valid);
const measuredOf = (data) => (data.measured ? data.measured.points.filter((one) => one.speed_up !== null) : []);

// Marks of a logarithmic axis over devices: the sizes themselves, as far as they can be told apart.
function sizeMarks(x, sizes) {
  const marks = [];
  for (const size of sizes) {
    const last = marks[marks.length - 1];
    if (last === undefined || x(size) - x(last) > 12 + (textWidth(grouped(size), 11) + textWidth(grouped(last), 11)) / 2) marks.push(size);
  }
  return marks;
}

function powersOfTwo(low, high) {
  const marks = [];
  for (let power = Math.floor(Math.log2(low)); power <= Math.ceil(Math.log2(high)); ++power) marks.push(2 ** power);
  return marks;
}

// A frame with devices along the bottom, on a logarithmic scale. `rows` are marks of the other axis with their words.
function curveFrame(width, data, rows, y, unit) {
  const left = 56, right = 18, top = 24, bottom = top + 280;
  const sizes = data.points.map((one) => one.devices);
  const low = Math.log2(sizes[0]), high = Math.max(low + 1e-9, Math.log2(sizes[sizes.length - 1]));
  const x = (devices) => left + (Math.log2(devices) - low) / (high - low || 1) * (width - left - right);
  const place = (value) => bottom - y(value) * (bottom - top);
  const parts = [text(left, 12, unit, {fill: 'var(--quiet)', 'font-size': 11})];
  for (const [value, words] of rows)
    parts.push(line(left, place(value), width - right, place(value)),
      text(left - 6, place(value) + 4, words, {'text-anchor': 'end', fill: 'var(--quiet)', 'font-size': 11}));
  for (const size of sizeMarks(x, sizes))
    parts.push(line(x(size), top, x(size), bottom + 4), axisLabel(x(size), bottom + 18, grouped(size), width));
  parts.push(text(width - right, bottom + 34, 'devices', {'text-anchor': 'end', fill: 'var(--quiet)', 'font-size': 11}));
  return {x, place, parts, left, right, top, bottom, height: bottom + 42};
}

function pathOf(points) {
  return points.map(([x, y], i) => (i ? 'L' : 'M') + x.toFixed(1) + ' ' + y.toFixed(1)).join('');
}

function bandOf(points) {
  return pathOf([...points.map((one) => [one.x, one.high]), ...points.map((one) => [one.x, one.low]).reverse()]) + 'Z';
}

function wordsOf(point) {
  const {step} = point;
  return [plural(point.devices, 'device') + ': ' + +step.speed_up.toPrecision(4) + ' times the work a second',
    '80 % interval ' + +step.speed_up_80[0].toPrecision(3) + ' to ' + +step.speed_up_80[1].toPrecision(3),
    'efficiency ' + percent(step.efficiency) + ', step time ' + seconds(step.step_time_s), step.plan, point.fits ? '' : 'does not fit into memory'];
}

function dot(x, y, point) {
  return hover(s('circle', {cx: x, cy: y, r: 4.5, fill: point.fits ? 'var(--forward)' : 'var(--ground)', stroke: 'var(--forward)', 'stroke-width': 2}), wordsOf(point));
}

function measuredDot(x, y, point) {
  return hover(rect(x - 4, y - 4, 8, 8, 'var(--backward)', {stroke: 'var(--text)', transform: 'rotate(45 ' + x.toFixed(1) + ' ' + y.toFixed(1) + ')'}),
    ['measured on ' + plural(point.devices, 'device') + ': ' + seconds(point.step_time_s), +point.speed_up.toPrecision(4) + ' times the work a second, efficiency ' + percent(point.efficiency),
      'predicted against it ' + signedPercent(point.error) + (point.inside_interval ? ', inside' : ', outside') + ' its interval']);
}

// Measured speed-ups are of the smallest measured size; the picture has them on the prediction's scale.
function measuredScale(data) {
  const base = measuredOf(data)[0];
  const predicted = base && stepsOf(data).find((one) => one.devices === base.devices);
  return predicted ? predicted.devices / data.first_devices : 1;
}

function lawAt(data, devices) {
  const scale = devices / data.first_devices, part = data.serial_part;
  return data.mode === 'strong' ? 1 / (part + (1 - part) / scale) : scale - part * (scale - 1);
}

function kneeLine(data, frame) {
  if (data.knee_devices === null) return null;
  const x = frame.x(data.knee_devices), end = x > frame.left + 60;
  return [line(x, frame.top, x, frame.bottom, {stroke: 'var(--good)', 'stroke-dasharray': '4 3', 'stroke-width': 1.5}),
    text(end ? x - 5 : x + 5, frame.bottom - 8, 'knee', {'text-anchor': end ? 'end' : 'start', fill: 'var(--good)', 'font-size': 11, ...halo})];
}

function curveLegend(data) {
  const entries = [['predicted, with 80 % interval', 'var(--forward)'], ['ideal', 'var(--quiet)']];
  if (data.serial_part !== null) entries.push(['one serial part for all (' + (data.mode === 'strong' ? 'Amdahl' : 'Gustafson') + ')', 'var(--recompute)']);
  if (measuredOf(data).length > 0) entries.push(['measured', 'var(--backward)']);
  return legend(entries);
}

function speedUpPicture(data) {
  const points = stepsOf(data), sizes = data.points.map((one) => one.devices);
  const ideal = (devices) => devices / data.first_devices;
  const values = [...points.flatMap((one) => one.step.speed_up_80), ideal(sizes[0]), ideal(sizes[sizes.length - 1])];
  const low = Math.min(...values), high = Math.max(...values, low * 2);
  const y = (value) => Math.log2(value / low) / Math.log2(high / low);
  return picture('speedup', 'Speed-up over the number of devices, both on logarithmic scales',
    'Work a second against ' + plural(data.first_devices, 'device') + '; the band is the 80 % interval of the ratio, in which both sizes err by the same factors.' + (points.every((one) => one.fits) ? '' : ' Hollow points lack memory.'), (width) => {
      const rows = powersOfTwo(low, high).filter((mark) => mark >= low * 0.999 && mark <= high * 1.001).map((mark) => [mark, mark >= 1 ? grouped(mark) : '1/' + Math.round(1 / mark)]);
      const frame = curveFrame(width, data, rows, y, 'speed-up');
      const {x, place} = frame;
      const every = sizes.flatMap((size, i) => i + 1 < sizes.length ? [0, 0.25, 0.5, 0.75].map((part) => size * (sizes[i + 1] / size) ** part) : [size]);
      const parts = [...frame.parts];
      parts.push(s('path', {d: bandOf(points.map((one) => ({x: x(one.devices), low: place(one.step.speed_up_80[0]), high: place(one.step.speed_up_80[1])}))), fill: 'var(--forward)', opacity: 0.18}));
      parts.push(s('path', {d: pathOf([sizes[0], sizes[sizes.length - 1]].map((size) => [x(size), place(ideal(size))])), stroke: 'var(--quiet)', 'stroke-dasharray': '6 4', 'stroke-width': 1.5, fill: 'none'}));
      if (data.serial_part !== null)
        parts.push(s('path', {d: pathOf(every.map((size) => [x(size), place(Math.max(low, Math.min(high, lawAt(data, size))))])), stroke: 'var(--recompute)', 'stroke-width': 1.5, fill: 'none'}));
      parts.push(s('path', {d: pathOf(points.map((one) => [x(one.devices), place(one.step.speed_up)])), stroke: 'var(--forward)', 'stroke-width': 2, fill: 'none'}), kneeLine(data, frame));
      for (const one of points) parts.push(dot(x(one.devices), place(one.step.speed_up), one));
      const scale = measuredScale(data);
      for (const one of measuredOf(data)) parts.push(measuredDot(x(one.devices), place(Math.max(low, Math.min(high, one.speed_up * scale))), one));
      return {height: frame.height, parts};
    });
}

function efficiencyPicture(data) {
  const points = stepsOf(data);
  const high = Math.max(1.05, ...points.map((one) => one.step.efficiency * 1.03), ...measuredOf(data).map((one) => one.efficiency * 1.03));
  return picture('efficiency', 'Efficiency over the number of devices',
    'Speed-up over the ratio of devices: the ratio of MFUs. The dashed line is the least efficiency of the knee.', (width) => {
      const frame = curveFrame(width, data, ticks(0, high, 6).map((mark) => [mark, Math.round(100 * mark) + ' %']), (value) => value / high, 'efficiency');
      const {x, place} = frame, parts = [...frame.parts];
      const spread = (one) => [one.step.speed_up_80[0] / one.step.speed_up, one.step.speed_up_80[1] / one.step.speed_up].map((factor) => Math.min(high, one.step.efficiency * factor));
      parts.push(s('path', {d: bandOf(points.map((one) => ({x: x(one.devices), low: place(spread(one)[0]), high: place(spread(one)[1])}))), fill: 'var(--forward)', opacity: 0.18}));
      parts.push(line(frame.left, place(data.least_efficiency), width - frame.right, place(data.least_efficiency), {stroke: 'var(--bad)', 'stroke-dasharray': '5 3', 'stroke-width': 1.5}));
      parts.push(s('path', {d: pathOf(points.map((one) => [x(one.devices), place(one.step.efficiency)])), stroke: 'var(--forward)', 'stroke-width': 2, fill: 'none'}), kneeLine(data, frame));
      for (const one of points) parts.push(dot(x(one.devices), place(one.step.efficiency), one));
      for (const one of measuredOf(data)) parts.push(measuredDot(x(one.devices), place(one.efficiency), one));
      return {height: frame.height, parts};
    });
}

function curvesSection(data) {
  return section('curves', 'Speed-up and efficiency', 'Curves', curveLegend(data), speedUpPicture(data), efficiencyPicture(data));
}
