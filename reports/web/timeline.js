// The timeline's section: controls, canvas, what is said of an operation, and the same as a table.

function timelineModel(data) {
  const model = unpackTimelines(data);
  model.ranksOfStage = new Map();
  model.rankOfStage = new Map();
  for (const row of model.rows) {
    if (!model.ranksOfStage.has(row.stage)) model.ranksOfStage.set(row.stage, new Set());
    model.ranksOfStage.get(row.stage).add(row.rank);
    if (!model.rankOfStage.has(row.stage)) model.rankOfStage.set(row.stage, row.rank);
  }
  model.bars = model.rows.reduce((sum, row) => sum + row.bars.n, 0);
  model.end = Math.max(1, ...model.timelines.map((timeline) => timeline.step_s * 1e9));
  return model;
}

function titleOf(row, index) {
  const operation = row.timeline.operations[row.bars.operation[index]];
  const microbatch = row.bars.microbatch[index], layer = row.bars.layer[index];
  return operation.name + (microbatch >= 0 ? ', micro-batch ' + microbatch : '') + (layer >= 0 ? ', layer ' + layer : '');
}

// The same operation in the other timeline, on the same stage: of this rank, or of the one that stands for it.
function counterpart(model, row, index) {
  const name = row.timeline.operations[row.bars.operation[index]].name;
  const others = model.rows.filter((other) => other.timeline !== row.timeline && other.stage === row.stage && other.lane === row.lane);
  const other = others.find((one) => one.rank === row.rank) || others[0];
  if (!other) return null;
  const {bars, timeline} = other;
  for (let i = 0; i < bars.n; ++i)
    if (bars.microbatch[i] === row.bars.microbatch[index] && bars.layer[i] === row.bars.layer[index] &&
        timeline.operations[bars.operation[i]].name === name) return {row: other, index: i};
  return null;
}

function describeBar(model, row, index) {
  const operation = row.timeline.operations[row.bars.operation[index]];
  const start = row.bars.start[index] * 1e-9, duration = (row.bars.end[index] - row.bars.start[index]) * 1e-9;
  const kind = kinds[row.timeline.kindOfOperation[row.bars.operation[index]]];
  const other = counterpart(model, row, index);
  const otherTime = other && (other.row.bars.end[other.index] - other.row.bars.start[other.index]) * 1e-9;
  return [
    titleOf(row, index),
    (row.timeline.measured ? 'measured' : 'predicted') + ': ' + seconds(duration) + ', from ' + seconds(start),
    other && (other.row.timeline.measured ? 'measured' : 'predicted') + ': ' + seconds(otherTime) +
      (otherTime > 0 ? ' (' + signedPercent(row.timeline.measured ? otherTime / duration - 1 : duration / otherTime - 1) + ' predicted against measured)' : ''),
    kindWords[kind] + (operation.group ? ', group ' + operation.group : '') + ', phase ' + operation.phase.replace('_', ' '),
    'stage ' + row.stage + ', rank ' + row.rank + ', lane ' + row.lane.replace(/_/g, ' ') + (operation.peer >= 0 ? ', with rank ' + operation.peer : ''),
    operation.bytes > 0 && bytes(operation.bytes) + (duration > 0 ? ' at ' + rate(operation.bytes / duration, 'B/s') : ''),
    operation.flops > 0 && rate(operation.flops, 'FLOP') + (duration > 0 ? ' at ' + rate(operation.flops / duration, 'FLOP/s') : ''),
  ].filter(Boolean);
}

// The kinds that a row has bars of.
function kindsIn({bars, timeline: {kindOfOperation}}) {
  const found = new Set();
  for (const operation of new Set(bars.operation)) found.add(kindOfOperation[operation]);
  return found;
}

// Busy seconds by kind, of a rank.
function busyByKind(rows) {
  const busy = new Float64Array(kinds.length);
  for (const {bars, timeline} of rows)
    for (let i = 0; i < bars.n; ++i) busy[timeline.kindOfOperation[bars.operation[i]]] += bars.end[i] - bars.start[i];
  return busy;
}

function timelineTable(model) {
  const groups = new Map();
  for (const row of model.rows) {
    const key = row.stage + ':' + row.timeline.number + ':' + row.rank;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const all = [...groups.values()].map((rows) => ({rows, busy: busyByKind(rows)}));
  const used = kinds.filter((_, kind) => all.some(({busy}) => busy[kind] > 0));
  const rows = all.slice(0, 128).map(({rows: lanes, busy}) => [{n: lanes[0].stage}, {n: lanes[0].rank},
    lanes[0].timeline.measured ? 'measured' : 'predicted', {n: grouped(lanes.reduce((sum, row) => sum + row.bars.n, 0))},
    ...used.map((kind) => ({n: seconds(busy[kinds.indexOf(kind)] * 1e-9)}))]);
  return table('Operations of each rank', [{n: 'stage'}, {n: 'rank'}, '', {n: 'operations'}, ...used.map((kind) => ({n: kindWords[kind]}))], rows);
}

function timelineSection(data) {
  const model = timelineModel(data);
  const notes = data.timelines.filter((timeline) => timeline.note).map((timeline) => h('p', {class: 'note'}, timeline.note));
  if (model.bars === 0) return section('timeline', 'Timeline', 'Timeline', notes);
  const both = model.timelines.filter((timeline) => timeline.rows.length > 0).length > 1;
  const severalRanks = [...model.ranksOfStage.values()].some((ranks) => ranks.size > 1);
  const options = {source: both ? 'both' : model.rows[0].timeline.measured ? 'measured' : 'predicted', lanes: 'all', allRanks: false};
  if (linesOf(model, options).reduce((sum, group) => sum + group.lanes.length, 0) > 56) options.lanes = 'compute';

  const canvas = h('canvas', {tabindex: '0', role: 'application', 'aria-roledescription': 'timeline', 'aria-describedby': 'timeline-keys'});
  const key = h('div', {});
  const kindsOf = new Map(model.rows.map((row) => [row, kindsIn(row)]));
  const live = h('p', {class: 'live', 'aria-live': 'polite'});
  let layout = null, selected = null, waiting = false;

  const draw = () => {
    waiting = false;
    const begin = performance.now();
    const {view} = viewer;
    view.width = canvas.clientWidth || 800;
    view.left = view.width < 600 ? 62 : both ? 134 : severalRanks && options.allRanks ? 104 : 62;
    const bars = drawTimeline(new CanvasPainter(canvas, view.width, view.height), model, layout, view, selected);
    Object.assign(canvas.dataset, {total: model.bars, from: view.from, to: view.to, top: view.top, bars,
      drawMs: (performance.now() - begin).toFixed(2), draws: Number(canvas.dataset.draws || 0) + 1});
    canvas.setAttribute('aria-label', 'Timeline from ' + seconds(Math.max(0, view.from * 1e-9)) + ' to ' + seconds(view.to * 1e-9) +
      ', ' + plural(layout.groups.length, 'rank') + ', ' + plural(bars, 'operation') + ' in sight');
  };
  const changed = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(draw);
  };
  const viewer = new TimelineView(canvas, model.end, changed);
  const arrange = () => {
    const groups = linesOf(model, options);
    const most = Math.max(240, Math.min(620, Math.round(innerHeight * 0.72)));
    layout = layOut(groups, most - axisHeight);
    viewer.view.height = Math.min(most, layout.height + axisHeight + 6);
    canvas.style.height = viewer.view.height + 'px';
    const shownRows = layout.lanes.flatMap((lane) => lane.rows);
    key.replaceChildren(legend(kinds.filter((_, kind) => shownRows.some((row) => kindsOf.get(row).has(kind)))
      .map((kind) => [kindWords[kind], colorOf(kind)])));
    viewer.most = Math.max(0, layout.height - (viewer.view.height - axisHeight));
    viewer.scroll(0);
  };

  const barAt = (x, y) => {
    const at = y - axisHeight + viewer.view.top;
    const lane = layout.lanes.find((one) => at >= one.y && at < one.y + one.height);
    if (!lane || x < viewer.view.left || y < axisHeight) return null;
    const time = viewer.timeAt(x), near = 2 / viewer.view.scale;
    for (const row of lane.rows) {
      const index = firstEndingAfter(row.bars, time - near);
      if (index < row.bars.n && row.bars.start[index] <= time + near) {
        const exact = firstEndingAfter(row.bars, time);
        return {row, index: exact < row.bars.n && row.bars.start[exact] <= time ? exact : index};
      }
    }
    return null;
  };
  const select = (bar) => {
    selected = bar;
    if (bar) {
      const {start, end} = bar.row.bars, {view} = viewer;
      const lane = layout.lanes.find((one) => one.rows.includes(bar.row));
      const hidden = end[bar.index] < view.from || start[bar.index] > view.to;
      if (lane && lane.y < view.top) view.top = lane.y;
      if (lane && lane.y + lane.height > view.top + view.height - axisHeight)
        view.top = Math.min(viewer.most, lane.y + lane.height - (view.height - axisHeight));
      if (hidden) {
        const half = (view.to - view.from) / 2, middle = (start[bar.index] + end[bar.index]) / 2;
        viewer.show(middle - half, middle + half);
      }
      live.textContent = describeBar(model, bar.row, bar.index).join('; ');
    } else {
      live.textContent = '';
    }
    changed();
  };
  // The next or previous operation of the selected one's lane; or the lane above or below, at its time.
  const step = (along, down) => {
    if (!selected) {
      const lane = layout.lanes.find((one) => one.y >= viewer.view.top);
      const row = lane.rows[0];
      select({row, index: Math.min(row.bars.n - 1, firstEndingAfter(row.bars, viewer.view.from))});
    } else if (along) {
      const index = selected.index + along;
      if (index >= 0 && index < selected.row.bars.n) select({row: selected.row, index});
    } else {
      const rows = layout.lanes.flatMap((lane) => lane.rows);
      const row = rows[rows.indexOf(selected.row) + down];
      if (row && row.bars.n)
        select({row, index: Math.min(row.bars.n - 1, firstEndingAfter(row.bars, selected.row.bars.start[selected.index]))});
    }
  };
  const zoomToSelected = () => {
    if (!selected) return;
    const {start, end} = selected.row.bars;
    const length = Math.max(2000, end[selected.index] - start[selected.index]);
    viewer.show(start[selected.index] - 4 * length, end[selected.index] + 4 * length);
  };
  const keys = {
    n: () => step(1), p: () => step(-1), j: () => step(0, 1), k: () => step(0, -1), Enter: zoomToSelected,
    Escape: () => select(null),
  };
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const own = keys[event.key];
    if (own) own();
    if (own || viewer.key(event.key)) event.preventDefault();
  });
  canvas.addEventListener('pointermove', (event) => {
    const box = canvas.getBoundingClientRect();
    const bar = viewer.dragging() ? null : barAt(event.clientX - box.left, event.clientY - box.top);
    if (bar) tip.show(event.clientX, event.clientY, describeBar(model, bar.row, bar.index)); else tip.hide();
  });
  canvas.addEventListener('pointerleave', () => tip.hide());
  let pressed = null;
  canvas.addEventListener('pointerdown', (event) => { pressed = {x: event.clientX, y: event.clientY}; tip.hide(); });
  canvas.addEventListener('click', (event) => {
    if (pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 4) return;
    const box = canvas.getBoundingClientRect();
    select(barAt(event.clientX - box.left, event.clientY - box.top));
  });

  const saveVisible = () => {
    const painter = new SvgPainter();
    const {view} = viewer;
    drawTimeline(painter, model, layout, view, selected);
    saveSvg('timeline', s('svg', {viewBox: '0 0 ' + view.width + ' ' + view.height},
      s('title', {}, canvas.getAttribute('aria-label')), painter.parts));
  };
  const controls = h('div', {class: 'controls', role: 'toolbar', 'aria-label': 'Timeline'},
    button('\u2212', 'Zoom out', () => viewer.zoom(1 / 0.6)), button('+', 'Zoom in', () => viewer.zoom(0.6)),
    button('\u25c0', 'Earlier', () => viewer.pan(-0.25)), button('\u25b6', 'Later', () => viewer.pan(0.25)),
    button('Whole step', 'Show the whole step', () => viewer.whole()),
    choice('Lanes', [['all', 'computing and communication'], ['compute', 'computing']], options.lanes,
      (value) => { options.lanes = value; arrange(); }),
    both && choice('Show', [['both', 'predicted above measured'], ['predicted', 'predicted'], ['measured', 'measured']], 'both',
      (value) => { options.source = value; arrange(); }),
    severalRanks && choice('Ranks', [['', 'one of each stage'], ['all', 'all']], '',
      (value) => { options.allRanks = value === 'all'; arrange(); }),
    h('span', {class: 'gap'}),
    button('Save as SVG', 'Save what is seen of the timeline as SVG', saveVisible),
    button('Save trace', 'Save the trace for Perfetto or chrome://tracing', () => saveChromeTrace(model)));
  theme.listeners.push(() => changed());
  const shown = section('timeline', 'Timeline', 'Timeline',
    h('p', {class: 'quiet'}, plural(model.bars, 'operation') + (both ? ', predicted above measured' : '') +
      '. Numbers are micro-batches. Where operations are narrower than a pixel, a column has the colour of what takes most of it and is paler the ' +
      'less of it is busy. A vertical line marks the end of the step' + (both ? ', red the measured one' : '') + '.'),
    notes, controls, key, canvas, live,
    h('p', {class: 'keys', id: 'timeline-keys'}, 'Wheel or two fingers zoom, dragging moves. Keys: ', h('kbd', {}, '+'), ' ', h('kbd', {}, '\u2212'),
      ' zoom, arrows move, ', h('kbd', {}, 'Home'), ' whole step, ', h('kbd', {}, 'n'), ' ', h('kbd', {}, 'p'), ' next and previous operation, ',
      h('kbd', {}, 'j'), ' ', h('kbd', {}, 'k'), ' lane below and above, ', h('kbd', {}, 'Enter'), ' zoom to it.'),
    details('The timeline as a table: what each rank is busy with', timelineTable(model)));
  shown.start = () => { arrange(); viewer.whole(); draw(); };
  shown.arrange = arrange;
  shown.draw = draw;
  return shown;
}
