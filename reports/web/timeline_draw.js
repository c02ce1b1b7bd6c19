// How the timeline is drawn, on a canvas or into an SVG. Bars narrower than a pixel are summed by pixel: each column
// shows the kind that takes most of it, as strongly as it is busy, so that half a million bars cost what one does that
// is wide enough to be seen.

const axisHeight = 26, stageGap = 6;

const laneFamilies = [['tp', /^tp$/], ['cp', /^cp$/], ['ep', /^ep/], ['pp send', /^pp_(return_)?send/], ['pp receive', /^pp_(return_)?recv/],
  ['dp', /^dp$/], ['host', /^host$/], ['copies', /^(from|to)_host$/]];

function familyOf(lane) {
  const found = laneFamilies.find(([, pattern]) => pattern.test(lane));
  return found ? found[0] : lane;
}

// Lines of the timeline: of each rank of each stage the computing, and below it what it communicates.
function linesOf(model, {source, lanes, allRanks}) {
  const groups = new Map();
  for (const row of model.rows) {
    if (source !== 'both' && (source === 'measured') !== row.timeline.measured) continue;
    if (!allRanks && row.rank !== model.rankOfStage.get(row.stage)) continue;
    const key = row.stage + ':' + row.timeline.number + ':' + row.rank;
    if (!groups.has(key))
      groups.set(key, {stage: row.stage, timeline: row.timeline, rank: row.rank, lanes: new Map()});
    const family = row.compute ? 'compute' : familyOf(row.lane);
    if (lanes === 'compute' && family !== 'compute') continue;
    const families = groups.get(key).lanes;
    if (!families.has(family)) families.set(family, []);
    families.get(family).push(row);
  }
  const order = ['compute', ...laneFamilies.map(([name]) => name)];
  return [...groups.values()].map((group) => ({...group,
    lanes: [...group.lanes].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b))}));
}

function laneHeight(size) {
  return Math.max(3, Math.round(size * 0.5));
}

// Gives every line its place: as tall as `available` allows.
function layOut(groups, available) {
  const heightAt = (size) => {
    let height = 0;
    groups.forEach((group, i) => {
      if (i > 0) height += groups[i - 1].stage === group.stage ? 2 : stageGap;
      for (const [family] of group.lanes) height += family === 'compute' ? size : laneHeight(size);
    });
    return height;
  };
  let size = 20;
  while (size > 6 && heightAt(size) > available) --size;
  const lanes = [];
  let y = 0;
  groups.forEach((group, i) => {
    if (i > 0) y += groups[i - 1].stage === group.stage ? 2 : stageGap;
    group.y = y;
    for (const [family, rows] of group.lanes) {
      const height = family === 'compute' ? size : laneHeight(size);
      lanes.push({group, family, rows, y, height});
      y += height;
    }
    group.height = y - group.y;
  });
  return {groups, lanes, size, height: y};
}

// Colours of kinds, each a quarter, half, three quarters and wholly opaque, as a canvas' memory has them.
function paletteOf(colors) {
  const bytes = new Uint8Array(colors.length * 16);
  colors.forEach((color, kind) => {
    for (let level = 1; level <= 4; ++level) {
      const at = (kind * 4 + level - 1) * 4;
      for (let i = 0; i < 3; ++i) bytes[at + i] = parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
      bytes[at + 3] = Math.round(level * 63.75);
    }
  });
  return new Uint32Array(bytes.buffer);
}

// Lines of bars are set pixel by pixel in an image one pixel high for each, and then drawn as high as they are: far
// cheaper than as many rectangles.
class CanvasPainter {
  constructor(canvas, width, height) {
    const ratio = Math.min(2, devicePixelRatio || 1);
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    this.ratio = ratio;
    this.context = canvas.getContext('2d');
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
  }
  beginLines(left, width, count, colors) {
    this.left = left;
    this.pixels = Math.max(1, Math.round(width * this.ratio));
    this.image = new ImageData(this.pixels, Math.max(1, count));
    this.memory = new Uint32Array(this.image.data.buffer);
    this.palette = paletteOf(colors);
    this.lines = [];
  }
  beginLine(y, height) { this.lines.push({y, height}); }
  // From x0 to x1 of the line, `level` quarters opaque.
  span(x0, x1, kind, level) {
    const from = Math.round(x0 * this.ratio), to = Math.min(this.pixels, Math.max(from + 1, Math.round(x1 * this.ratio)));
    const line = (this.lines.length - 1) * this.pixels;
    this.memory.fill(this.palette[kind * 4 + level - 1], line + from, line + to);
  }
  endLines() {
    const source = document.createElement('canvas');
    source.width = this.pixels;
    source.height = this.image.height;
    source.getContext('2d').putImageData(this.image, 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.lines.forEach(({y, height}, i) =>
      this.context.drawImage(source, 0, i, this.pixels, 1, this.left, y, this.pixels / this.ratio, height));
  }
  clip(x, y, width, height) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
  }
  unclip() { this.context.restore(); }
  rect(x, y, width, height, color, opacity) {
    this.context.globalAlpha = opacity === undefined ? 1 : opacity;
    this.context.fillStyle = color;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }
  frame(x, y, width, height, color) {
    this.context.strokeStyle = color;
    this.context.lineWidth = 2;
    this.context.strokeRect(x, y, width, height);
  }
  text(x, y, content, color, size, align) {
    this.context.font = size + 'px system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif';
    this.context.textAlign = align || 'left';
    this.context.textBaseline = 'middle';
    this.context.fillStyle = color;
    this.context.fillText(content, x, y);
  }
}

class SvgPainter {
  constructor() {
    this.parts = [];
    this.groups = [];
    this.clips = 0;
  }
  add(element) { (this.groups.length ? this.groups[this.groups.length - 1] : this.parts).push(element); }
  clip(x, y, width, height) {
    const id = 'clip' + this.clips++;
    this.add(s('clipPath', {id}, rect(x, y, width, height, '#000')));
    this.groups.push([]);
    this.id = id;
  }
  beginLines(left, width, count, colors) {
    this.left = left;
    this.colors = colors;
  }
  beginLine(y, height) { this.line = {y, height}; }
  span(x0, x1, kind, level) {
    this.rect(this.left + x0, this.line.y, Math.max(0.5, x1 - x0), this.line.height, this.colors[kind], level < 4 ? level / 4 : undefined);
  }
  endLines() {}
  unclip() { this.add(s('g', {'clip-path': 'url(#' + this.id + ')'}, this.groups.pop())); }
  rect(x, y, width, height, color, opacity) {
    this.add(rect(+x.toFixed(2), y, +width.toFixed(2), height, color, {'fill-opacity': opacity}));
  }
  frame(x, y, width, height, color) {
    this.add(rect(x, y, width, height, 'none', {stroke: color, 'stroke-width': 2}));
  }
  text(x, y, content, color, size, align) {
    this.add(s('text', {x, y: y + size * 0.36, fill: color, 'font-size': size,
      'text-anchor': {right: 'end', center: 'middle'}[align] || null}, content));
  }
}

// Bars of one row between two times. Returns how many there were.
function drawBars(painter, row, view, columns) {
  const {bars, timeline: {kindOfOperation}} = row;
  const {from, to, scale} = view;
  const {n, start, end, operation} = bars;
  const width = view.width - view.left, first = firstEndingAfter(bars, from);
  let column = -1, i = first;
  let runBegin = -1, runEnd = -1, runKind = -1, runLevel = 0;  // columns that look alike
  const paintRun = () => {
    if (runKind >= 0) painter.span(runBegin, runEnd, runKind, runLevel);
    runKind = -1;
  };
  const flush = () => {
    if (column < 0) return;
    let best = 0, sum = 0;
    for (let kind = 0; kind < columns.length; ++kind) {
      sum += columns[kind];
      if (columns[kind] > columns[best]) best = kind;
    }
    columns.fill(0);
    const level = Math.max(1, Math.min(4, Math.round(sum * 4)));
    if (runKind !== best || runLevel !== level || runEnd !== column) {
      paintRun();
      runKind = best;
      runLevel = level;
      runBegin = column;
    }
    runEnd = column + 1;
    column = -1;
  };
  for (; i < n && start[i] < to; ++i) {
    const x0 = Math.max(0, (start[i] - from) * scale), x1 = Math.min(width, (end[i] - from) * scale);
    const kind = kindOfOperation[operation[i]];
    if (x1 - x0 >= 1.5) {
      flush();
      paintRun();
      painter.span(x0, x1 - x0 > 4 ? x1 - 0.5 : x1, kind, 4);
      continue;
    }
    const at = Math.floor(x0);
    if (at !== column) {
      flush();
      column = at;
    }
    columns[kind] += Math.max(x1 - x0, 1e-3);
  }
  flush();
  paintRun();
  return i - first;
}

// What can be read on a task: names of its operations where one is wide enough, else its micro-batch.
function drawLabels(painter, row, view, y, height, model, inks) {
  const {bars, tasks, timeline} = row;
  const {from, to, scale, left} = view;
  if (height < 9) return;
  const size = Math.min(11, height - 1), middle = y + height / 2 + 0.5;
  const place = (time) => Math.min(view.width, Math.max(left, left + (time - from) * scale));
  let low = 0, high = tasks.length;
  while (low < high) { const half = (low + high) >> 1; if (tasks[half].end > from) high = half; else low = half + 1; }
  for (let t = low; t < tasks.length && tasks[t].start < to; ++t) {
    const task = tasks[t];
    const x0 = place(task.start), x1 = place(task.end);
    if (x1 - x0 < 15) continue;
    painter.rect(x0, y, 1, height, model.ground);
    let named = 0;
    for (let i = task.first; i < task.after && scale * (task.end - task.start) > 60 * Math.min(4, task.after - task.first); ++i) {
      const from0 = place(bars.start[i]), to0 = place(bars.end[i]);
      if (to0 - from0 < 24) continue;
      const name = timeline.operations[bars.operation[i]].name;
      const label = named ? name : task.microbatch + ' ' + name;
      if (to0 - from0 < label.length * 6.4 + 6) continue;
      painter.text(from0 + 4, middle, label, inks[timeline.kindOfOperation[bars.operation[i]]], size);
      ++named;
    }
    const label = String(task.microbatch);
    if (!named && x1 - x0 > label.length * 7 + 4) painter.text((x0 + x1) / 2, middle, label, inks[task.kind], size, 'center');
  }
}

// `view`: {from, to} in ns, {width, height} in pixels, `left` of which is for names, `top`: scrolled so far down.
function drawTimeline(painter, model, layout, view, selected) {
  const color = (name) => resolved(name);
  const colors = kinds.map((kind) => color(variable(kind)));
  const inks = colors.map(inkOn);
  const columns = new Float64Array(kinds.length);
  const quiet = color('--quiet'), grid = color('--line'), ink = color('--text');
  const inner = view.width - view.left;
  view.scale = inner / (view.to - view.from);
  model.ground = color('--ground');

  const marks = ticks(view.from * 1e-9, view.to * 1e-9, Math.max(2, Math.floor(inner / 110)));
  const step = marks.length > 0 ? stepOf(marks) : 1;
  painter.clip(view.left, 0, inner, view.height);
  for (const mark of marks) {
    const x = view.left + (mark * 1e9 - view.from) * view.scale;
    painter.rect(x, axisHeight - 5, 1, view.height, grid);
    const label = axisTime(mark, step);
    if (x + 8 + label.length * 6.5 < view.width) painter.text(x + 4, axisHeight / 2 - 2, label, quiet, 11);
  }
  painter.unclip();

  let bars = 0;
  painter.clip(view.left, axisHeight, inner, view.height - axisHeight);
  const inSight = layout.lanes.map((lane) => ({lane, y: axisHeight + lane.y - view.top}))
    .filter(({lane, y}) => y + lane.height >= axisHeight && y <= view.height);
  painter.beginLines(view.left, inner, inSight.length, colors);
  for (const {lane, y} of inSight) {
    painter.beginLine(y, lane.height - (lane.height > 8 ? 1 : 0));
    for (const row of lane.rows) bars += drawBars(painter, row, view, columns);
  }
  painter.endLines();
  for (const {lane, y} of inSight) {
    for (const row of lane.rows) if (row.compute) drawLabels(painter, row, view, y, lane.height, model, inks);
    if (selected && lane.rows.includes(selected.row)) {
      const {start, end} = selected.row.bars;
      const x0 = view.left + (start[selected.index] - view.from) * view.scale;
      const x1 = view.left + (end[selected.index] - view.from) * view.scale;
      painter.frame(x0 - 1, y - 1, Math.max(3, x1 - x0) + 2, lane.height + 1, ink);
    }
  }
  for (const timeline of model.timelines) {
    const x = view.left + (timeline.step_s * 1e9 - view.from) * view.scale;
    if (timeline.rows.length && x > view.left && x < view.width + 2)
      painter.rect(x - 1, axisHeight, 1.5, view.height, timeline.measured ? color('--bad') : ink, 0.8);
  }
  painter.unclip();

  painter.clip(0, axisHeight, view.left, view.height - axisHeight);
  const several = new Set(layout.groups.map((group) => group.timeline.number)).size > 1;
  let stage = -1, lastY = -99;
  for (const group of layout.groups) {
    const y = axisHeight + group.y - view.top;
    if (y + group.height < axisHeight - 20 || y > view.height) { stage = group.stage; continue; }
    const middle = y + Math.max(layout.size, 8) / 2 + (group.lanes.length > 1 ? 1 : 0);
    if (middle - lastY < 11) continue;
    const narrow = view.left < 90;
    const which = group.timeline.measured ? (narrow ? 'm' : 'measured') : (narrow ? 'p' : 'predicted');
    if (stage !== group.stage) painter.text(4, middle, (narrow ? 's' : 'stage ') + group.stage, ink, 11);
    const rankText = model.ranksOfStage.get(group.stage).size > 1 ? (narrow ? 'r' : 'rank ') + group.rank : '';
    const words = several ? which + (rankText && view.left > 150 ? ' ' + rankText : '') : rankText;
    painter.text(view.left - 6, middle, words, group.timeline.measured ? color('--bad') : quiet, 10, 'right');
    stage = group.stage;
    lastY = middle;
    for (const lane of layout.lanes) {
      if (lane.group !== group || lane.family === 'compute' || lane.height < 9) continue;
      painter.text(view.left - 6, axisHeight + lane.y - view.top + lane.height / 2, lane.family, quiet, 9, 'right');
      lastY = axisHeight + lane.y - view.top + lane.height / 2;
    }
  }
  painter.unclip();
  const shown = view.height - axisHeight;
  if (layout.height > shown) {
    const size = Math.max(20, shown * shown / layout.height);
    painter.rect(view.width - 5, axisHeight + view.top / (layout.height - shown) * (shown - size), 4, size, quiet, 0.55);
  }
  return bars;
}
