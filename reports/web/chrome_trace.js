// The timeline as Chrome's trace events, which ui.perfetto.dev opens: a process for each rank, a thread for each lane.

function chromeEvents(model) {
  const events = [], threads = new Map(), named = new Set();
  const pidOf = (row) => row.rank * model.timelines.length + row.timeline.number;
  for (const row of model.rows) {
    const pid = pidOf(row), measured = row.timeline.measured ? 'measured' : 'predicted';
    if (!threads.has(row.lane)) threads.set(row.lane, threads.size);
    const tid = threads.get(row.lane);
    if (!named.has(pid)) {
      named.add(pid);
      events.push({ph: 'M', pid, tid, name: 'process_name', args: {name: 'rank ' + row.rank + ' ' + measured}},
        {ph: 'M', pid, tid, name: 'process_sort_index', args: {sort_index: pid}});
    }
    events.push({ph: 'M', pid, tid, name: 'thread_name', args: {name: row.lane}});
    const {bars} = row;
    for (let i = 0; i < bars.n; ++i) {
      const operation = row.timeline.operations[bars.operation[i]];
      const args = {phase: operation.phase, bytes: operation.bytes, flops: operation.flops};
      if (bars.microbatch[i] >= 0) args.microbatch = bars.microbatch[i];
      if (bars.layer[i] >= 0) args.layer = bars.layer[i];
      events.push({ph: 'X', pid, tid, name: operation.name, cat: operation.group || operation.phase, ts: bars.start[i] / 1e3,
        dur: (bars.end[i] - bars.start[i]) / 1e3, args});
    }
  }
  return events;
}

function saveChromeTrace(model) {
  const pieces = chromeEvents(model).map((event) => JSON.stringify(event));
  save('trace.json', 'application/json', '{"displayTimeUnit":"ms","traceEvents":[' + pieces.join(',\n') + ']}\n');
}
