// A plan, its settings and what is said of it: at once the closed form's estimate, then what a play of the step says, and
// what takes longer to draw.

// What a play has in common with an estimate.
function mainCards(one, about, against, beside) {
  return [
    card(about + seconds(one.step_time_s), 'a step' + against),
    card(bytes(one.peak_memory_bytes), 'memory of the fullest rank, of ' + bytes(one.capacity_bytes) + (one.fits ? '' : ': does not fit') +
      beside((other) => bytes(other.peak_memory_bytes)), one.fits ? '' : 'bad'),
    card(about + percent(one.mfu), 'MFU' + beside((other) => percent(other.mfu))),
    card(about + count(one.tokens_per_s), 'tokens a second, all ranks' + beside((other) => count(other.tokens_per_s)))];
}

function estimateCards(estimate) {
  const [step, ...others] = mainCards(estimate, '\u2248 ', '', () => '');
  const waited = estimate.mean_bubble_s;
  return h('div', {class: 'cards'}, step,
    card('\u2248 ' + percent(waited / estimate.step_time_s), 'bubble: the mean stage waits ' + seconds(waited)), others);
}

function simulationCards(simulation, kept) {
  const now = figuresOf(simulation), before = kept && figuresOf(kept);
  const beside = (of) => before ? '; kept: ' + of(before) : '';
  const against = before && before.step_time_s !== now.step_time_s
    ? ' (' + signedPercent(now.step_time_s / before.step_time_s - 1) + ' against ' + seconds(before.step_time_s) + ')' : '';
  const [step, ...others] = mainCards(now, '', against, beside);
  return h('div', {class: 'cards'}, step,
    card(percent(now.share.bubble), 'bubble: the mean stage waits ' + seconds(now.time.bubble) + beside((one) => percent(one.share.bubble))), others);
}

const memoryColors = [0, 1, 2, 3, 4, 5, 6];
function memoryBars(simulation) {
  const used = memoryParts.filter(([name]) => simulation.memory.some((stage) => stage[name + '_bytes'] > 0));
  const color = (i) => 'var(--memory-' + memoryColors[i % memoryColors.length] + ')', opacity = (i) => i < memoryColors.length ? 1 : 0.55;
  const high = Math.max(simulation.capacity_bytes, ...simulation.memory.map((stage) => stage.total_bytes));
  const [unit, size] = high >= 2 ** 30 ? ['GiB', 2 ** 30] : ['MiB', 2 ** 20];
  const rows = simulation.memory.map((stage) => {
    let sum = 0;
    return {label: 'stage ' + stage.stage, value: bytes(stage.total_bytes), pieces: used.map(([name, words], i) => {
      const from = sum;
      sum += stage[name + '_bytes'];
      return {from: from / size, to: sum / size, color: color(i), opacity: opacity(i), lines: ['stage ' + stage.stage + ': ' + words, bytes(stage[name + '_bytes'])]};
    })};
  });
  rows.push({label: 'may use', value: bytes(simulation.capacity_bytes), pieces: [{from: 0, to: simulation.capacity_bytes / size, color: 'var(--bubble)', lines: ['what a rank may use', bytes(simulation.capacity_bytes)]}]});
  return [legend(used.map(([, words], i) => [words, color(i)])),
    picture('stage-memory', 'Memory of each stage by what it holds', 'What the fullest rank of each stage holds, beside what a rank may use.',
      (width) => barRows(width, rows, {low: 0, high: high / size, mark: (value) => +value.toPrecision(4) + ' ' + unit, gutter: 74, valueRoom: 78}))];
}

// What a plan is called: its degrees as the command writes them, and its size.
function descriptionOf(simulation) {
  const {plan} = simulation, now = figuresOf(simulation);
  return simulation.description + ' \u2013 ' + plan.model.name + ' on ' + plural(now.ranks, 'rank') + ' of ' + plan.cluster_name + ', dp ' + now.dp + ', ' +
    plural(now.microbatches, 'micro-batch', 'es') + ' a rank';
}

// `toggled()` keeps or forgets, and tells which.
function keepButton(toggled) {
  const keep = button('Keep for comparison', 'Keep these figures beside those of the next plans', () => {
    keep.textContent = toggled() ? 'Compare no longer' : 'Keep for comparison';
  });
  return keep;
}

function copyLinkButton() {
  const copy = button('Copy link', 'Copy a link to this plan', async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      copy.textContent = 'Copied';
    } catch (error) {
      copy.textContent = 'Copy it from the address bar';
    }
    setTimeout(() => { copy.textContent = 'Copy link'; }, 2000);
  });
  return copy;
}

const thoroughBars = 60000;

// {element, plan(), figures()}; `changed(plan)` is told of every plan that the reader makes.
function workbench({plan, only, changed, label}) {
  let now = plan, newest = null, wanted = null, estimating = false, toPlay = null, playing = false, simulation = null, kept = null, generation = 0, fault = '';
  const controls = controlsFor(only, (flag, value) => set(changedPlan(now, flag, value), performance.now()));
  const said = h('p', {class: 'note', role: 'status', hidden: true});
  const head = h('p', {class: 'quiet'});
  const cards = h('div', {}), bars = h('div', {}), more = h('div', {class: 'thorough'});
  const command = h('code', {}), failures = h('a', {}, 'What failures cost it');
  const results = h('div', {class: 'results', 'aria-live': 'off'}, said, head, cards, bars, more);
  const keep = keepButton(() => {
    kept = kept ? null : simulation;
    draw();
    return Boolean(kept);
  });
  const element = h('section', {class: 'workbench', 'aria-label': label || 'Workbench'}, controls.element,
    h('div', {}, h('div', {class: 'controls'}, keep, copyLinkButton(), failures), results, h('p', {class: 'command'}, 'The same from a terminal: ', command)));

  const draw = () => {
    if (!simulation) return;
    const data = {simulation, categories: Object.keys(simulation.stages[0].breakdown_s)};
    head.textContent = descriptionOf(simulation);
    cards.replaceChildren(simulationCards(simulation, kept));
    bars.replaceChildren();
    bars.classList.remove('old');
    forgetPictures();
    append(bars, [h('h3', {}, 'Time of each stage'), stagesPicture(data), h('h3', {}, 'Memory'), memoryBars(simulation)]);
    redrawPictures();
    element.dataset.step = simulation.step_time_s;
  };
  const drawEstimate = (estimate) => {
    cards.replaceChildren(estimateCards(estimate));
    for (const later of [bars, more]) later.classList.add('old');
  };
  const drawThorough = async (mine) => {
    element.dataset.thorough = '';
    more.classList.add('old');
    await new Promise((resolve) => setTimeout(resolve, 250));
    if (mine !== generation) return;
    const asked = {...now};
    try {
      const data = await engine.ask('page', [...wordsOf(asked), '--bars', String(thoroughBars)]);
      if (mine !== generation) return;
      const timeline = timelineSection(data);
      more.replaceChildren(timeline, memorySection(data), stepSection(data), trafficSection(data));
      more.classList.remove('old');
      redrawPictures();
      if (timeline.start) timeline.start();
      element.arrange = () => { redrawPictures(); if (timeline.arrange) { timeline.arrange(); timeline.draw(); } };
    } catch (error) {
      if (mine !== generation) return;
      more.replaceChildren(h('p', {class: 'note'}, error.message));
    }
    element.dataset.thorough = mine;
  };
  const show = ({begin}) => {
    said.hidden = fault === '';
    said.textContent = fault && fault + (simulation ? ' The figures below are still those of the plan before.' : '');
    results.classList.toggle('old', fault !== '');
    draw();
    element.dataset.answerMs = (performance.now() - begin).toFixed(1);
    element.dataset.engineMs = (engine.lastMs || 0).toFixed(1);
    element.dataset.answers = Number(element.dataset.answers || 0) + 1;
    if (element.answered) element.answered();
    if (!fault) drawThorough(++generation);
  };
  // Plays the newest plan, one at a time: those that a moving slider has passed are left out.
  const play = async (one) => {
    toPlay = one;
    if (playing) return;
    playing = true;
    while (toPlay) {
      const played = toPlay;
      toPlay = null;
      try {
        const answer = await engine.ask('simulate', played.words);
        if (played !== newest) continue;
        simulation = answer;
        fault = '';
      } catch (error) {
        if (played !== newest) continue;
        fault = error.message;
      }
      show(played);
    }
    playing = false;
  };
  const answer = async () => {
    if (estimating) return;
    estimating = true;
    while (wanted) {
      const one = wanted;
      wanted = null;
      try {
        if (!engine.knows('simulate', one.words)) {
          const estimate = await engine.ask('simulate', [...one.words, '--estimate']);
          if (one !== newest) continue;
          drawEstimate(estimate);
          element.dataset.estimateMs = (performance.now() - one.begin).toFixed(1);
        }
        play(one);
      } catch (error) {
        if (one !== newest) continue;
        fault = error.message;
        show(one);
      }
    }
    estimating = false;
  };
  const set = (plan, begin) => {
    now = plan;
    controls.show(now);
    command.textContent = commandOf(now);
    failures.href = linkOf('workbench', ofFailures(now));
    newest = wanted = {words: wordsOf(now), begin: begin || performance.now()};
    ++generation;
    if (changed) changed(now);
    answer();
  };
  return Object.assign(element, {
    set,
    plan: () => now,
    simulation: () => fault ? null : simulation,
    begin() { set(now); },
  });
}

// Pictures and listeners of what is replaced are not drawn again.
function forgetPictures() {
  for (let i = pictures.length; i-- > 0;) if (!pictures[i].shown()) pictures.splice(i, 1);
  theme.listeners.length = 0;
}
