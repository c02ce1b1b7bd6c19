// A plan is a link: the settings of a plan stand behind the '#' as the command line spells them, and where the reader
// is as `at`: #at=lesson-3&model=llama3-8b&cluster=dgx-h100&gpus=64&tp=8&sp

const places = ['workbench', 'lessons', 'quiz', 'runs', 'questions', 'grading'];

// The words of the command line for settings {flag: value}; true is a flag, an array an option that is given often.
function wordsOf(plan) {
  return Object.entries(plan).flatMap(([flag, value]) => {
    if (value === true) return ['--' + flag];
    if (value === false || value === null || value === undefined || value === '') return [];
    return [value].flat().flatMap((one) => ['--' + flag, String(one)]);
  });
}

function commandOf(plan, name) {
  const quoted = (word) => /^[\w.,:=/+-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'";
  return 'meshplan ' + (name || 'simulate') + ' ' + wordsOf(plan).map(quoted).join(' ');
}

function linkOf(at, plan) {
  const parts = ['at=' + encodeURIComponent(at)];
  for (const [flag, value] of Object.entries(plan || {}))
    for (const one of [value].flat()) {
      if (one === false || one === null || one === undefined || one === '') continue;
      parts.push(one === true ? flag : flag + '=' + encodeURIComponent(one).replace(/%2C/g, ',').replace(/%3A/g, ':'));
    }
  return '#' + parts.join('&');
}

// {at, plan}. Throws an Error whose message says what was expected.
function readLink(fragment, flags) {
  const read = {at: 'workbench', plan: null};
  const text = fragment.replace(/^#/, '');
  if (text === '' || text === 'content') return read;
  if (text.length > 8000) throw new Error('This link is longer than any plan: expected settings such as model=llama3-8b&gpus=64&tp=8.');
  for (const part of text.split('&')) {
    const equals = part.indexOf('=');
    let flag = part, value = true;
    try {
      flag = decodeURIComponent(equals < 0 ? part : part.slice(0, equals));
      if (equals >= 0) value = decodeURIComponent(part.slice(equals + 1));
    } catch (error) {
      throw new Error('This link cannot be read at "' + part.slice(0, 80) + '": a % must be followed by two hexadecimal digits.');
    }
    if (flag === 'at') {
      const known = places.includes(value) || lessons.some((lesson) => lesson.id === value);
      if (!known) throw new Error('This link leads to "' + String(value).slice(0, 80) + '", which is no place here: expected ' + places.join(', ') + ' or a lesson.');
      read.at = value;
      continue;
    }
    if (!flags.has(flag)) throw new Error('This link has the setting "' + flag.slice(0, 80) + '", which no plan has: expected settings as `meshplan simulate --help` lists them, such as model=llama3-8b&gpus=64&tp=8.');
    read.plan = read.plan || {};
    if (flag === 'set' && read.plan.set) read.plan.set = [read.plan.set, value].flat();
    else read.plan[flag] = value;
  }
  return read;
}
