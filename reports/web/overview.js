// The beginning of the page: the plan in words, its main figures, and why it was chosen.

function overviewSection(data) {
  const {simulation, comparison} = data;
  const [low, high] = simulation.interval_80_s;
  const cards = [
    card(seconds(simulation.step_time_s), 'a step, predicted; 80 % interval ' + seconds(low) + ' to ' + seconds(high)),
    comparison && card(seconds(comparison.measured.median_s),
      'a step, measured; predicted against it ' + signedPercent(comparison.step_time_error)),
    card(percent(simulation.mfu), 'MFU, of ' + rate(simulation.peak_flop_per_s, 'FLOP/s') + ' a rank'),
    card(count(simulation.tokens_per_s), 'tokens a second, all ranks'),
    card(bytes(simulation.peak_memory_bytes), 'memory of the fullest rank (stage ' + simulation.largest_stage + ') of ' +
      bytes(simulation.capacity_bytes), simulation.fits ? '' : 'bad'),
  ];
  return section('overview', 'The plan', 'Plan',
    h('p', {}, data.words.join(' ')),
    h('div', {class: 'cards'}, cards.filter(Boolean)),
    h('p', {class: simulation.fits ? 'good' : 'bad'}, (simulation.fits ? '\u2713 ' : '\u2717 ') + data.verdict),
    h('dl', {}, data.header.map((line) => [h('dt', {}, line.name), h('dd', {}, line.text)])),
    data.reasons.length > 0 && [h('h3', {}, 'Reasons in the plan\u2019s file'), h('ul', {class: 'plain'}, data.reasons.map((reason) => h('li', {}, reason)))],
    h('p', {class: 'quiet'}, data.rule_of_thumb));
}
