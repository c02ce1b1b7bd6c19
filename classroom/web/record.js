// What a student has answered, kept in this browser and saved as a file for the teacher.

const record = {
  key: 'meshplan-classroom',
  kept: {student: '', seed: '', lessons: {}, quiz: {}, runs: {}},
  read() {
    try {
      const kept = JSON.parse(localStorage.getItem(this.key));
      if (kept && kept.lessons && kept.quiz && kept.runs) this.kept = kept;
    } catch (error) {
      // A browser that keeps nothing for pages from disk: the file is then saved in one sitting.
    }
  },
  write() {
    try {
      localStorage.setItem(this.key, JSON.stringify(this.kept));
    } catch (error) {
      // as above
    }
  },
  lesson(id) { return this.kept.lessons[id] || {}; },
  save(id, facts) {
    this.kept.lessons[id] = {...this.lesson(id), ...facts};
    this.write();
  },
  // Without a seed of its own a student has that of the name, so that neighbours get other variants.
  seed() { return this.kept.seed || this.kept.student || 'example'; },
  forget() {
    this.kept = {student: '', seed: '', lessons: {}, quiz: {}, runs: {}};
    this.write();
  },
};

// The same numbers from 0 to 1 for the same text, everywhere: FNV-1a, then mulberry32.
function dice(text) {
  let state = 2166136261;
  for (const byte of new TextEncoder().encode(text)) state = Math.imul(state ^ byte, 16777619);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function picked(roll, all) {
  return all[Math.floor(roll() * all.length)];
}

function varied(roll, plan, axes) {
  return Object.assign({}, plan, ...axes.map((axis) => picked(roll, axis)));
}

function studentForm(changed) {
  const id = 'student-' + ++controlCount;
  const name = h('input', {id, type: 'text', autocomplete: 'name', value: record.kept.student});
  const seed = h('input', {id: id + '-seed', type: 'text', size: 10, value: record.kept.seed, placeholder: 'as the name'});
  const take = () => {
    Object.assign(record.kept, {student: name.value.trim(), seed: seed.value.trim()});
    record.write();
    changed();
  };
  return h('form', {class: 'answer student', onsubmit: (event) => { event.preventDefault(); take(); }},
    h('label', {for: id}, 'Your name'), name, h('label', {for: id + '-seed'}, 'Seed, if your teacher gives one'), seed, h('button', {type: 'submit'}, 'Use'));
}
