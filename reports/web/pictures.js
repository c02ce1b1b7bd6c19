// Pictures: SVG that is drawn anew for every width, with a caption, a button that saves it and, for readers who do not
// see it, a table.

const fontSize = 12;

function text(x, y, content, attributes) {
  return s('text', {x, y, 'font-size': fontSize, fill: 'var(--text)', ...attributes}, content);
}

function rect(x, y, width, height, fill, attributes) {
  return s('rect', {x, y, width: Math.max(0, width), height: Math.max(0, height), fill, ...attributes});
}

function line(x1, y1, x2, y2, attributes) {
  return s('line', {x1, y1, x2, y2, stroke: 'var(--line)', ...attributes});
}

// Around letters that stand on lines.
const halo = {stroke: 'var(--ground)', 'stroke-width': 4, 'paint-order': 'stroke'};

// About as wide as the text is drawn.
const textWidth = (() => {
  let context = null;
  return (content, size) => {
    context = context || document.createElement('canvas').getContext('2d');
    context.font = (size || fontSize) + 'px system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif';
    return context.measureText(content).width;
  };
})();

// As much of the text as `width` holds.
function fitted(content, width) {
  if (textWidth(content) <= width) return content;
  let length = content.length;
  while (length > 1 && textWidth(content.slice(0, length) + '\u2026') > width) --length;
  return content.slice(0, length).trimEnd() + '\u2026';
}

// The text of an SVG file: colours as they are shown, fonts that any program has.
function svgFile(picture) {
  const copy = picture.cloneNode(true);
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('font-family', 'system-ui, Segoe UI, Roboto, Helvetica Neue, DejaVu Sans, sans-serif');
  const [, , width, height] = copy.getAttribute('viewBox').split(' ');
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  for (const element of copy.querySelectorAll('*'))
    for (const name of ['fill', 'stroke', 'stop-color']) {
      const value = element.getAttribute(name);
      const match = value && /^var\((--[\w-]+)\)$/.exec(value);
      if (match) element.setAttribute(name, resolved(match[1]));
    }
  copy.insertBefore(rect(0, 0, width, height, resolved('--ground')), copy.firstChild);
  return '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(copy) + '\n';
}

function saveSvg(name, picture) {
  save(name + '.svg', 'image/svg+xml', svgFile(picture));
}

const pictures = [];

// draw(width) returns {height, parts}; `label` says in a sentence what the picture shows.
function picture(name, label, caption, draw) {
  const drawn = s('svg', {role: 'img', 'aria-label': label, 'data-picture': name});
  const holder = h('div', {class: 'picture'}, drawn);
  const one = {
    shown: () => holder.isConnected,
    redraw() {
      const width = Math.round(holder.clientWidth) || 800;
      const {height, parts} = draw(width);
      set(drawn, {viewBox: '0 0 ' + width + ' ' + Math.ceil(height)});
      drawn.replaceChildren(s('title', {}, label), ...parts.flat(Infinity).filter(Boolean));
    },
  };
  pictures.push(one);
  return h('figure', {}, h('figcaption', {}, h('span', {}, caption),
    button('Save as SVG', 'Save the picture "' + label + '" as SVG', () => saveSvg(name, drawn))), holder);
}

function redrawPictures() {
  for (const one of pictures) one.redraw();
}

// A mark's words below an axis, centred on it unless they would leave the picture.
function axisLabel(x, y, words, width) {
  const half = textWidth(words, 11) / 2, anchor = x + half > width ? 'end' : x < half ? 'start' : 'middle';
  return text(x, y, words, {'text-anchor': anchor, fill: 'var(--quiet)', 'font-size': 11});
}

// Horizontal bars, each a row of pieces from a common zero: [{label, pieces: [{from, to, color, lines}], value}].
function barRows(width, rows, {low, high, mark, gutter, unit, valueRoom}) {
  // Where there is little room names stand above their bars.
  const above = width < 560 && gutter > 90;
  const left = above ? 8 : gutter, right = valueRoom === undefined ? 70 : valueRoom;
  const rowHeight = above ? 40 : 22, barTop = above ? 18 : 0, top = 4, bottom = top + rows.length * rowHeight;
  const x = (value) => left + (value - low) / (high - low || 1) * (width - left - right);
  const marks = ticks(low, high, Math.max(2, Math.floor((width - left - right) / 90)));
  const step = stepOf(marks);
  const parts = marks.map((at) => [line(x(at), top, x(at), bottom + 4),
    text(x(at), bottom + 18, mark(at, step), {'text-anchor': x(at) < 20 ? 'start' : 'middle', fill: 'var(--quiet)'})]);
  if (low < 0) parts.push(line(x(0), top, x(0), bottom, {stroke: 'var(--quiet)'}));
  rows.forEach((row, i) => {
    const y = top + i * rowHeight + barTop, weight = row.bold ? 600 : 400;
    parts.push(above ? text(left, y - 1, fitted(row.label, width - left - 4), {'font-weight': weight, ...halo})
      : text(left - 8, y + 15, fitted(row.label, left - 10), {'text-anchor': 'end', 'font-weight': weight}));
    for (const piece of row.pieces) {
      const from = x(Math.min(piece.from, piece.to)), to = x(Math.max(piece.from, piece.to));
      parts.push(hover(rect(from, y + 3, Math.max(piece.from === piece.to ? 0 : 0.75, to - from), 16, piece.color,
        {opacity: piece.opacity}), piece.lines));
    }
    if (row.value) {
      const last = x(Math.max(low, ...row.pieces.map((piece) => Math.max(piece.from, piece.to))));
      parts.push(text(last + 5, y + 15, row.value, {'font-weight': weight, ...halo}));
    }
  });
  if (unit) parts.push(text(left, bottom + 34, unit, {fill: 'var(--quiet)'}));
  return {height: bottom + (unit ? 40 : 24), parts};
}
