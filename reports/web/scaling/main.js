// Puts the page of a scaling curve together from its data.

function cardSection(data) {
  const knee = data.points.find((one) => one.devices === data.knee_devices);
  const last = data.points.filter((one) => one.fits).pop();
  const part = last && last.step.parts.find((one) => one.name === data.next_bottleneck);
  const cards = [
    knee && card(grouped(knee.devices), 'devices at the knee: the largest size up to which all that fit keep ' + percent(data.least_efficiency)),
    knee && card(percent(knee.step.efficiency), 'efficiency there'),
    last && card(+last.step.speed_up.toPrecision(4) + ' \u00d7', 'work a second on ' + plural(last.devices, 'device') + ', the most that fit, against ' + grouped(data.first_devices)),
    data.serial_part !== null && card(percent(Math.max(0, data.serial_part)), 'serial part' + (data.trend ? ', single sizes ' + data.trend : '')),
    part && card(part.words, 'next bottleneck'),
  ];
  return section('card', 'What the curve says', 'Card', h('div', {class: 'cards'}, cards.filter(Boolean)),
    h('dl', {}, data.card.map((line) => [h('dt', {}, line.name), h('dd', {}, line.text)])),
    data.notes.length > 0 && h('ul', {class: 'plain'}, data.notes.map((note) => h('li', {class: 'bad'}, note))),
    h('h3', {}, 'The first size'),
    h('dl', {}, data.header.map((line) => [h('dt', {}, line.name), h('dd', {}, line.text)])));
}

function start() {
  const data = pageData();
  showPage(data, data.title + ', ' + data.description + ' \u2013 meshplan scale', () => [cardSection(data),
    data.first_devices !== null && [curvesSection(data), sharesSection(data), measuredSection(data)], pointsSection(data)]);
}

start();
