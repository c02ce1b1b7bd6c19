// Elements of the page. What a file names (models, clusters, operations) only ever becomes text.

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === '') continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return parent;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  return element;
}

function h(tag, attributes, ...children) {
  return append(set(document.createElement(tag), attributes), children);
}

function s(tag, attributes, ...children) {
  return append(set(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes), children);
}

// A cell is text, a number's text to be aligned right ({n: '1.2'}), long text ({wide: '...'}) or an element.
function cell(tag, value) {
  if (value instanceof Node) return h(tag, {}, value);
  if (value && value.n !== undefined) return h(tag, {class: 'n'}, value.n);
  if (value && value.wide !== undefined) return h(tag, {class: 'wide'}, value.wide);
  return h(tag, {}, value === undefined ? '' : value);
}

function table(label, columns, rows, sumRow) {
  const head = h('tr', {}, columns.map((column) => set(cell('th', column), {scope: 'col'})));
  const body = rows.map((row) => h('tr', {}, row.map((value) => cell('td', value))));
  if (sumRow) body.push(h('tr', {class: 'sum'}, sumRow.map((value) => cell('td', value))));
  const shown = h('table', {'aria-label': label}, h('thead', {}, head), h('tbody', {}, body));
  return h('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label}, shown);
}

function details(summary, ...children) {
  return h('details', {}, h('summary', {}, summary), children);
}

function legend(entries) {
  return h('ul', {class: 'legend'}, entries.map(([name, color]) =>
    h('li', {}, h('i', {style: 'background:' + color}), name)));
}

// `short`: as the page's head names it.
function section(id, title, short, ...children) {
  return h('section', {id, 'data-short': short, 'aria-labelledby': id + '-title'}, h('h2', {id: id + '-title'}, title), children);
}

function button(text, label, action, attributes) {
  return h('button', {type: 'button', 'aria-label': label, title: label === text ? null : label, onclick: action,
    ...attributes}, text);
}

function choice(label, options, value, action) {
  const box = h('select', {'aria-label': label, onchange: () => action(box.value)},
    options.map(([name, text]) => h('option', {value: name, selected: name === value}, text)));
  return h('label', {}, h('span', {}, label), box);
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  const link = h('a', {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// What a pointer is over, in words, beside it.
const tip = {
  show(x, y, lines) {
    const box = document.getElementById('tip');
    box.replaceChildren(h('b', {}, lines[0]), ...lines.slice(1).filter(Boolean).map((line) => h('div', {}, line)));
    box.hidden = false;
    const {width, height} = box.getBoundingClientRect();
    const left = x + 14 + width > innerWidth - 4 ? Math.max(4, x - width - 14) : x + 14;
    const top = y + 14 + height > innerHeight - 4 ? Math.max(4, y - height - 14) : y + 14;
    box.style.left = left + 'px';
    box.style.top = top + 'px';
  },
  hide() {
    document.getElementById('tip').hidden = true;
  },
};

// Shows lines beside the pointer while it is over an element of a picture.
function hover(element, lines) {
  element.addEventListener('pointermove', (event) => tip.show(event.clientX, event.clientY, lines));
  element.addEventListener('pointerleave', () => tip.hide());
  return append(element, [s('title', {}, lines.filter(Boolean).join('\n'))]);
}
