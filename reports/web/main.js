// Puts the page together from its data.

function start() {
  const begin = performance.now();
  const data = JSON.parse(document.getElementById('data').textContent);
  document.title = data.title + ', ' + data.description + ' \u2013 meshplan report';
  const main = document.getElementById('content');
  const timeline = timelineSection(data);
  append(main, [h('h1', {}, data.title), h('p', {class: 'quiet'}, data.description), overviewSection(data), timeline, stepSection(data),
    comparisonSection(data), memorySection(data), trafficSection(data), meshSection(data), searchSection(data),
    h('footer', {}, 'Written by ' + data.generator + '. This page holds all of its data and asks for nothing over a network.')]);
  document.getElementById('top').replaceChildren(topBar(data));
  theme.apply();
  redrawPictures();
  if (timeline.start) timeline.start();

  let waiting = 0, width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width) return;  // a phone's address bar comes and goes
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      redrawPictures();
      if (timeline.arrange) timeline.arrange();
    });
  });
  const forPaper = () => {
    redrawPictures();
    if (timeline.arrange) { timeline.arrange(); timeline.draw(); }
  };
  addEventListener('beforeprint', forPaper);
  addEventListener('afterprint', forPaper);
  document.documentElement.dataset.ready = (performance.now() - begin).toFixed(0);
}

start();
