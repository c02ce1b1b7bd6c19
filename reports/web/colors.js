// Kinds of work and their colours: those of the breakdown, and weight gradients by themselves.

const kinds = ['forward', 'backward', 'weight gradient', 'recompute', 'tp', 'sp', 'cp', 'ep', 'pp', 'dp', 'bubble',
  'optimizer', 'host', 'other'];

const kindWords = {
  forward: 'forward', backward: 'backward', 'weight gradient': 'weight gradient', recompute: 'recompute',
  tp: 'tensor parallel', sp: 'sequence parallel', cp: 'context parallel', ep: 'expert parallel', pp: 'pipeline sends',
  dp: 'data parallel', bubble: 'bubble', optimizer: 'optimizer', host: 'host', other: 'other',
};

// The kind of a category of the breakdown as the page's data names it ("tp", "exposed tp", ...).
function kindOf(category) {
  const name = category.replace(/^exposed /, '').replace(/_/g, ' ');
  return kinds.includes(name) ? name : 'other';
}

function variable(kind) {
  return kind === 'weight gradient' ? '--weight' : '--' + kind;
}

function colorOf(kind) {
  return 'var(' + variable(kind) + ')';
}

function resolved(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// What can be read on a colour: '#rrggbb'.
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return (r * 299 + g * 587 + b * 114) / 1000 > 140 ? '#111111' : '#ffffff';
}

// Viridis, by seven of its colours: dark is little.
const viridis = [[68, 1, 84], [70, 50, 126], [54, 92, 141], [39, 127, 142], [31, 161, 135], [74, 193, 109], [160, 218, 57],
  [253, 231, 37]];

function heat(part) {
  const place = Math.min(1, Math.max(0, part)) * (viridis.length - 1);
  const low = Math.min(viridis.length - 2, Math.floor(place));
  const mixed = viridis[low].map((from, i) => Math.round(from + (viridis[low + 1][i] - from) * (place - low)));
  const light = (mixed[0] * 299 + mixed[1] * 587 + mixed[2] * 114) / 1000;
  return {fill: 'rgb(' + mixed.join(',') + ')', text: light > 135 ? '#111111' : '#ffffff'};
}

const theme = {
  listeners: [],
  asked: '',  // '' = as the system says
  apply() {
    const dark = this.asked ? this.asked === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    document.documentElement.dataset.theme = dark && !this.printing ? 'dark' : 'light';
    for (const listener of this.listeners) listener();
  },
  ask(name) {
    this.asked = name;
    this.apply();
  },
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => theme.apply());
addEventListener('beforeprint', () => { theme.printing = true; theme.apply(); });
addEventListener('afterprint', () => { theme.printing = false; theme.apply(); });
