// The quiz: questions whose figures a seed picks, and whose answers the simulator gives.

// The variant of a question for a seed: {plan, plans}. One release gives one seed the same variant everywhere.
function variantOf(question, seed) {
  const start = varied(dice(names.version + '/quiz/' + question.id + '/' + seed), question.plan, question.vary);
  return {plans: {start, ...question.plans}};
}

// {text, answer, plan}
async function posed(question, seed) {
  const lesson = variantOf(question, seed), values = await valuesOf(lesson);
  return {text: filled(question.question, values), answer: compute(question.answer, values), plan: plansOf(lesson).start};
}

async function quizView() {
  const seed = record.seed(), body = h('div', {});
  const score = h('p', {role: 'status'});
  const tally = () => {
    const answers = Object.values(record.kept.quiz).filter((one) => one.seed === seed);
    score.textContent = answers.length + ' of ' + material.quiz.length + ' answered, ' + answers.filter((one) => one.right).length + ' right.';
  };
  const items = [];
  for (const question of material.quiz) {
    const {text, answer, plan} = await posed(question, seed);
    const verdict = h('p', {role: 'status'});
    const judge = (given) => {
      const {right, off} = judged(given, answer, question.within);
      record.kept.quiz[question.id] = {seed, given, right};
      record.write();
      verdict.className = right ? 'good' : 'bad';
      verdict.replaceChildren((right ? '\u2713 Right: ' : '\u2717 The simulator says ') + unitText(question.unit, answer) + (right || Math.abs(off) > 10 ? '. ' : ', you are ' + signedPercent(off) + ' off. '),
        h('a', {href: linkOf('workbench', plan)}, 'See the plan'));
      tally();
    };
    const before = record.kept.quiz[question.id];
    items.push(h('li', {'data-question': question.id, 'data-answer': answer}, h('p', {}, text),
      numberQuestion('Answer, within ' + percent(question.within), question.unit, judge, before && before.seed === seed ? before.given : undefined), verdict));
    if (before && before.seed === seed) judge(before.given);
  }
  tally();
  return append(body, [h('h1', {}, 'Quiz'), h('p', {}, 'Answer by thought or by formula; then let the simulator check. The figures are yours: they follow from your seed, and release ' + names.version + ' gives the same seed the same questions and answers everywhere.'),
    studentForm(() => show()), score, h('ol', {class: 'quiz'}, items)]);
}
