// Numbers as the command prints them: planner::format_seconds, format_bytes, reports::percent.

function grouped(number) {
  return Math.round(number).toLocaleString('en-US');
}

function seconds(value) {
  const size = Math.abs(value);
  if (size >= 10) return value.toFixed(1) + ' s';
  if (size >= 1) return value.toFixed(2) + ' s';
  if (size >= 0.1) return (value * 1e3).toFixed(0) + ' ms';
  if (size >= 1e-3) return (value * 1e3).toFixed(1) + ' ms';
  if (size === 0) return '0';
  return (value * 1e6).toFixed(1) + ' \u00b5s';
}

function signedSeconds(value) {
  return (value < 0 ? '\u2212' : '+') + seconds(Math.abs(value));
}

function bytes(value) {
  const units = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];
  for (const [unit, size] of units)
    if (value >= size) return (value / size).toFixed(1) + ' ' + unit;
  return Math.round(value) + ' B';
}

function percent(part) {
  return (part * 100).toFixed(1) + ' %';
}

function signedPercent(part) {
  return (part < 0 ? '\u2212' : '+') + percent(Math.abs(part));
}

function rate(value, unit) {
  const units = [['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3]];
  for (const [prefix, size] of units)
    if (value >= size) return (value / size).toPrecision(3) + ' ' + prefix + unit;
  return value.toPrecision(3) + ' ' + unit;
}

function count(value) {
  const units = [['B', 1e9], ['M', 1e6]];
  for (const [unit, size] of units)
    if (value >= size) return (value / size).toFixed(1) + ' ' + unit;
  return value >= 100 ? grouped(value) : String(+value.toPrecision(3));
}

function plural(number, noun, end) {
  return grouped(number) + ' ' + noun + (number === 1 ? '' : end || 's');
}

// 1, 2 or 5 times a power of ten, at least `least`.
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const times of [1, 2, 5]) if (times * power >= least * (1 - 1e-9)) return times * power;
  return 10 * power;
}

// Marks of an axis from `low` to `high`, at most `most` of them.
function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const step = niceStep((high - low) / Math.max(1, most));
  const marks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) marks.push(i * step);
  return marks;
}

// How far apart they are.
function stepOf(marks) {
  return marks.length > 1 ? marks[1] - marks[0] : Math.abs(marks[0]) || 1;
}

// A time on an axis whose marks are `step` apart: as many digits as tell them apart.
function axisTime(value, step) {
  const [unit, size] = step >= 1 ? ['s', 1] : step >= 1e-3 ? ['ms', 1e-3] : step >= 1e-6 ? ['\u00b5s', 1e-6] : ['ns', 1e-9];
  const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
  return (value / size).toFixed(Math.min(3, digits)) + ' ' + unit;
}
