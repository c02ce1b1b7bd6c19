// What every page has around its sections: cards, the head, redrawing and paper.

function card(value, words, state) {
  return h('div', {class: 'card'}, h('b', {class: state}, value), h('span', {}, words));
}

function topBar() {
  const links = [...document.querySelectorAll('main > section')].map((one) =>
    h('a', {href: '#' + one.id}, one.dataset.short));
  const colors = choice('Colours', [['', 'as the system'], ['light', 'light'], ['dark', 'dark']], '', (name) => theme.ask(name));
  return h('div', {class: 'bar'}, h('div', {}, h('nav', {'aria-label': 'Sections'}, links), colors));
}

// Shows a page. `moving` is a part that is arranged and drawn by itself (the timeline), if there is one.
function showPage(data, title, parts, moving) {
  const begin = performance.now();
  document.title = title;
  append(document.getElementById('content'), [h('h1', {}, data.title), h('p', {class: 'quiet'}, data.description), ...parts(),
    h('footer', {}, 'Written by ' + data.generator + '. This page holds all of its data and asks for nothing over a network.')]);
  document.getElementById('top').replaceChildren(topBar());
  theme.apply();
  redrawPictures();
  const own = moving ? moving() : {};
  if (own.start) own.start();

  let waiting = 0, width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width) return;  // a phone's address bar comes and goes
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      redrawPictures();
      if (own.arrange) own.arrange();
    });
  });
  const forPaper = () => {
    redrawPictures();
    if (own.arrange) { own.arrange(); own.draw(); }
  };
  addEventListener('beforeprint', forPaper);
  addEventListener('afterprint', forPaper);
  document.documentElement.dataset.ready = (performance.now() - begin).toFixed(0);
}

function pageData() {
  return JSON.parse(document.getElementById('data').textContent);
}
