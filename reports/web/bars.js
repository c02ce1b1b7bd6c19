// The timeline's bars, unpacked into typed arrays: times in nanoseconds since the step's common start.

function bytesOf(base64) {
  const text = atob(base64);
  const unpacked = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) unpacked[i] = text.charCodeAt(i);
  return unpacked;
}

// See BarRow (reports/src/html/packed_bars.hpp).
function unpackRow(row) {
  const packed = bytesOf(row.packed), n = row.bars;
  const bars = {n, start: new Float64Array(n), end: new Float64Array(n), operation: new Uint32Array(n),
    microbatch: new Int32Array(n), layer: new Int32Array(n)};
  let at = 0;
  const number = () => {
    let value = 0, scale = 1, byte = 0;
    do {
      byte = packed[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  const signed = () => {
    const value = number();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  };
  let microbatch = 0, layer = 0, start = 0;
  for (let i = 0; i < n; ++i) {
    bars.operation[i] = number();
    bars.microbatch[i] = microbatch += signed();
    bars.layer[i] = layer += signed();
    bars.start[i] = start += signed();
    bars.end[i] = start + number();
  }
  return bars;
}

// The first bar that ends after `time`; ends ascend with starts, for a lane does one thing at a time.
function firstEndingAfter(bars, time) {
  let low = 0, high = bars.n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.end[middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}

// Runs of bars of one micro-batch and kind: what a schedule calls a task.
function tasksOf(bars, kindOfOperation) {
  const tasks = [];
  let last = null;
  for (let i = 0; i < bars.n; ++i) {
    const microbatch = bars.microbatch[i];
    if (microbatch < 0) { last = null; continue; }
    const kind = kindOfOperation[bars.operation[i]];
    const forward = kind === 0;
    if (last && last.microbatch === microbatch && last.forward === forward) {
      last.end = bars.end[i];
      last.after = i + 1;
    } else {
      last = {start: bars.start[i], end: bars.end[i], microbatch, forward, kind, first: i, after: i + 1};
      tasks.push(last);
    }
  }
  return tasks;
}

// All rows of a page's timelines, stage by stage, predicted above measured.
function unpackTimelines(data) {
  const timelines = data.timelines.map((timeline, number) => {
    const kindOfOperation = Uint8Array.from(timeline.operations, (operation) => {
      const kind = operation.phase === 'weight_grad' && !operation.group ? 'weight gradient'
        : kindOf(data.categories[operation.category]);
      return kinds.indexOf(kind);
    });
    return {...timeline, number, kindOfOperation};
  });
  const rows = [];
  for (const timeline of timelines)
    for (const row of timeline.rows) {
      const bars = unpackRow(row);
      rows.push({timeline, rank: row.rank, stage: row.stage, lane: row.lane, compute: row.lane === 'compute', bars,
        tasks: row.lane === 'compute' ? tasksOf(bars, timeline.kindOfOperation) : []});
    }
  rows.sort((a, b) => a.stage - b.stage || a.timeline.number - b.timeline.number || a.rank - b.rank);
  return {timelines, rows};
}
