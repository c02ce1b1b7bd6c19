// The mesh on the nodes: which rank sits where, coloured by its place along one axis.

const placeColors = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#d4b800', '#7a5fc7'];

function placeColor(place, degree) {
  if (degree <= placeColors.length) return {fill: placeColors[place], text: place === 6 || place === 4 || place === 1 ? '#111111' : '#ffffff'};
  return heat(place / (degree - 1));
}

function meshSection(data) {
  const {mesh} = data;
  const nodes = Math.ceil(mesh.coordinates.length / mesh.ranks_per_node), mostNodes = 64, shownNodes = Math.min(nodes, mostNodes);
  const allNodes = Math.ceil(mesh.ranks / mesh.ranks_per_node);
  const axes = mesh.axes.map((axis, i) => ({axis, i, degree: mesh.degrees[i]})).filter((one) => one.degree > 1);
  let chosen = axes.find((one) => one.axis === 'pp') || axes[0] || {axis: mesh.axes[0], i: 0, degree: 1};
  const device = (node) => {
    let before = 0;
    for (const type of mesh.node_types) if (node < (before += type.nodes)) return type.device;
    return '';
  };
  const place = (rank) => axes.map(({axis, i}) => axis + ' ' + mesh.coordinates[rank][i]).join(', ') || 'the only rank';
  const keyHolder = h('div', {});
  const key = () => keyHolder.replaceChildren(chosen.degree <= 16
    ? legend(Array.from({length: chosen.degree}, (_, at) => [chosen.axis + ' ' + at, placeColor(at, chosen.degree).fill]))
    : h('p', {class: 'quiet'}, chosen.axis + ' 0 is darkest, ' + chosen.axis + ' ' + (chosen.degree - 1) + ' lightest.'));
  const drawn = picture('mesh', 'The ranks on their nodes',
    'Each box is a node, each cell a rank with its number; ranks of one colour have the same place along the chosen axis, so that a group along it has one rank of each colour.', (width) => {
      const perNode = mesh.ranks_per_node, columns = perNode <= 4 ? perNode : perNode <= 16 ? 4 : 8, lines = Math.ceil(perNode / columns);
      const cellSize = 34, cellHeight = 24, nodeWidth = columns * cellSize + 12, nodeHeight = lines * cellHeight + 28;
      const across = Math.max(1, Math.floor((width + 8) / (nodeWidth + 8)));
      const parts = [];
      for (let node = 0; node < shownNodes; ++node) {
        const x = (node % across) * (nodeWidth + 8), y = Math.floor(node / across) * (nodeHeight + 8);
        parts.push(rect(x + 0.5, y + 0.5, nodeWidth, nodeHeight, 'var(--raised)', {stroke: 'var(--line)', rx: 4}),
          text(x + 6, y + 15, fitted('node ' + node + (mesh.node_types.length > 1 ? ' ' + device(node) : ''), nodeWidth - 8), {fill: 'var(--quiet)', 'font-size': 11}));
        for (let i = 0; i < perNode; ++i) {
          const rank = node * perNode + i;
          if (rank >= mesh.coordinates.length) break;
          const at = placeColor(mesh.coordinates[rank][chosen.i], chosen.degree);
          const cx = x + 6 + (i % columns) * cellSize, cy = y + 22 + Math.floor(i / columns) * cellHeight;
          parts.push(hover(rect(cx + 1, cy + 1, cellSize - 2, cellHeight - 2, at.fill, {rx: 2}), ['rank ' + rank, place(rank), 'node ' + node + ', ' + device(node)]),
            text(cx + cellSize / 2, cy + 16, rank, {'text-anchor': 'middle', 'font-size': 11, fill: at.text, 'pointer-events': 'none'}));
        }
      }
      return {height: Math.ceil(shownNodes / across) * (nodeHeight + 8), parts};
    });
  key();
  const rows = mesh.coordinates.slice(0, 64).map((_, rank) => [{n: rank}, {n: Math.floor(rank / mesh.ranks_per_node)}, ...axes.map(({i}) => ({n: mesh.coordinates[rank][i]}))]);
  return section('mesh', 'The mesh on the nodes', 'Mesh',
    h('p', {}, axes.map(({axis, degree}) => axis + ' ' + degree).join(' \u00d7 ') || 'One rank', ' on ', plural(allNodes, 'node'), ' of ', mesh.ranks_per_node, '.'),
    shownNodes < allNodes && h('p', {class: 'note'}, 'The first ' + shownNodes + ' of ' + grouped(allNodes) + ' nodes.'),
    axes.length > 1 && h('div', {class: 'controls'}, choice('Colour by', axes.map(({axis}) => [axis, axis]), chosen.axis, (value) => {
      chosen = axes.find(({axis}) => axis === value);
      key();
      redrawPictures();
    })), keyHolder, drawn,
    details('As a table' + (mesh.ranks > 64 ? ' (the first 64 ranks)' : ''), table('Places of the ranks', [{n: 'rank'}, {n: 'node'}, ...axes.map(({axis}) => ({n: axis}))], rows)));
}
