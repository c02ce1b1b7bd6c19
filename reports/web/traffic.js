// Communication by level of the fabric: bytes, messages, and the time that nothing hides.

function levelName(data, level) {
  if (level < 0) return 'no link';
  const {name, link_gb_per_s: speed} = data.levels[level];
  return name + ', ' + +speed.toPrecision(4) + ' GB/s a link';
}

function trafficPicture(data) {
  const rows = data.traffic.map((row) => {
    const hidden = Math.max(0, row.alone_s - row.exposed_s), name = row.group + ' on ' + (row.level < 0 ? 'no link' : data.levels[row.level].name);
    const color = colorOf(kindOf(row.category));
    return {label: name + (row.category === row.group ? '' : ' (' + row.category + ')'), value: seconds(row.exposed_s) + (hidden > 0 ? ' of ' + seconds(row.exposed_s + hidden) : ''), pieces: [
      {from: 0, to: row.exposed_s, color, lines: [name, 'exposed ' + seconds(row.exposed_s)]},
      {from: row.exposed_s, to: row.exposed_s + hidden, color, opacity: 0.35, lines: [name, 'hidden or overlapped ' + seconds(hidden)]}]};
  });
  const high = Math.max(...data.traffic.map((row) => Math.max(row.alone_s, row.exposed_s)), 1e-9);
  return picture('traffic', 'Communication time of each group and level, exposed and hidden',
    'Seconds of a step, the mean over ranks: strong what no computation hides, pale what is hidden. Where a kind uses several levels, what is exposed is divided by the time that its messages take.',
    (width) => barRows(width, rows, {low: 0, high, mark: axisTime, gutter: 228, valueRoom: 132}));
}

function trafficTables(data) {
  const levels = [...new Set(data.traffic.map((row) => row.level))].sort((a, b) => a - b);
  const rows = [];
  for (const level of levels) {
    const own = data.traffic.filter((row) => row.level === level);
    for (const row of own)
      rows.push([levelName(data, level), row.group, row.category, {n: count(row.messages)}, {n: bytes(row.bytes)},
        {n: row.messages > 0 ? bytes(row.bytes / row.messages) : ''}, {n: seconds(row.alone_s)}, {n: seconds(row.exposed_s)}]);
    if (own.length > 1) {
      const sum = (key) => own.reduce((all, row) => all + row[key], 0);
      rows.push([levelName(data, level), 'all', '', {n: count(sum('messages'))}, {n: bytes(sum('bytes'))}, '', {n: seconds(sum('alone_s'))}, {n: seconds(sum('exposed_s'))}]);
    }
  }
  return table('Communication by level', ['level', 'group', 'counted as', {n: 'messages'}, {n: 'bytes'}, {n: 'a message'}, {n: 'alone'}, {n: 'exposed'}], rows);
}

function trafficSection(data) {
  if (data.traffic.length === 0)
    return section('traffic', 'Communication', 'Communication', h('p', {}, 'The ranks of this plan send each other nothing.'));
  return section('traffic', 'Communication', 'Communication', trafficPicture(data),
    h('p', {class: 'quiet'}, 'Of a rank in a step, the mean over ranks: collectives that it joins and messages that it sends to the next stage, the bytes that it passes in, and what they take, each alone.'),
    trafficTables(data));
}
