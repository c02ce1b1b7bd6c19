// Puts the page together from its data.

function start() {
  const data = pageData();
  let timeline = null;
  showPage(data, data.title + ', ' + data.description + ' \u2013 meshplan report', () => {
    timeline = timelineSection(data);
    return [overviewSection(data), timeline, stepSection(data), comparisonSection(data), memorySection(data), trafficSection(data),
      meshSection(data), searchSection(data)];
  }, () => timeline);
}

start();
