// Ten questions that teachers ask about 3-D parallelism, answered with figures of plans that can be opened.

async function questionsView() {
  const items = [];
  for (const question of material.questions) {
    const values = await valuesOf(question);
    const links = Object.entries(plansOf(question)).map(([name, plan], i) => [i > 0 && ', ', h('a', {href: linkOf('workbench', plan)}, name === 'start' ? 'the plan' : 'variant ' + i)]);
    items.push(h('li', {}, h('p', {}, h('b', {}, filled(question.question, values))),
      details('An answer', paragraphs(question.answer, values), h('p', {class: 'quiet'}, 'On the workbench: ', links))));
  }
  return h('div', {}, h('h1', {}, 'Ten questions'), h('p', {}, 'Say your answer aloud first. Then open ours: its figures are computed in this page, and each plan opens on the workbench.'), h('ol', {class: 'questions'}, items));
}
