// The file that a student hands in, and the teacher's table of many. The table trusts no verdict of a file: it poses the
// same questions again and judges the answers. A file proves nothing about who wrote it.

function handedIn() {
  return {schema: 'meshplan classroom', schema_version: 1, release: names.version, ...record.kept, seed: record.seed()};
}

// Reads a student's file. Throws an Error that says what was expected.
function readHandedIn(text, file) {
  let read = null;
  try {
    read = JSON.parse(text);
  } catch (error) {
    throw new Error(file + ': no JSON: ' + error.message);
  }
  if (!read || read.schema !== 'meshplan classroom' || read.schema_version !== 1) throw new Error(file + ': expected a file that this page saved ("schema": "meshplan classroom", version 1).');
  for (const part of ['lessons', 'quiz', 'runs']) if (typeof read[part] !== 'object' || read[part] === null) throw new Error(file + ': "' + part + '" is missing.');
  if (read.release !== names.version) throw new Error(file + ': made with release ' + read.release + ', this page is ' + names.version + ': answers may differ. Open it with the page of that release.');
  return read;
}

async function marksOf(read) {
  const marks = {predicted: 0, reached: 0, quiz: 0, runs: 0};
  for (const lesson of lessons) {
    const done = read.lessons[lesson.id];
    if (!done) continue;
    const values = await valuesOf(lesson);
    if (!lesson.search && typeof done.prediction === 'number' && judged(done.prediction, compute(lesson.predict.answer, values), lesson.predict.within).right) ++marks.predicted;
    if (lesson.search && done.right === true) ++marks.predicted;
    if (done.reached && !lesson.search) {
      try {
        const now = {...values, now: figuresOf(await engine.ask('simulate', wordsOf(done.reached)), done.reached)};
        if (lesson.try.checks.every((check) => compute(check.holds, now))) ++marks.reached;
      } catch (error) {
        // A plan that the simulator refuses reaches nothing.
      }
    } else if (done.reached) {
      ++marks.reached;
    }
  }
  for (const question of material.quiz) {
    const done = read.quiz[question.id];
    if (done && done.seed === read.seed && judged(Number(done.given), (await posed(question, String(read.seed))).answer, question.within).right) ++marks.quiz;
  }
  for (const [i, one] of casesOf(String(read.seed)).entries()) {
    const done = read.runs['run-' + (i + 1)];
    if (done && done.seed === read.seed && done.said === one.fault.id) ++marks.runs;
  }
  return marks;
}

function gradingView() {
  const own = h('p', {}), rows = [], results = h('div', {role: 'status'});
  const tell = () => {
    const {lessons: done, quiz, runs} = record.kept;
    own.textContent = (record.kept.student || 'Nobody') + ', seed ' + record.seed() + ': ' + plural(Object.keys(done).length, 'lesson') + ' begun, ' +
      plural(Object.keys(quiz).length, 'question') + ' of the quiz answered, ' + plural(Object.keys(runs).length, 'run') + ' diagnosed.';
  };
  tell();
  const columns = ['student', 'seed', {n: 'predicted, of ' + lessons.length}, {n: 'reached, of ' + lessons.length}, {n: 'quiz, of ' + material.quiz.length}, {n: 'runs, of ' + material.runs.cases}];
  const load = h('input', {type: 'file', id: 'handed-in', multiple: true, accept: '.json,application/json', onchange: async () => {
    const faults = [];
    for (const file of load.files) {
      try {
        const read = readHandedIn(await file.text(), file.name), marks = await marksOf(read);
        rows.push([String(read.student || file.name), String(read.seed), {n: marks.predicted}, {n: marks.reached}, {n: marks.quiz}, {n: marks.runs}]);
      } catch (error) {
        faults.push(h('p', {class: 'bad'}, error.message));
      }
    }
    results.replaceChildren(table('Marks', columns, rows), ...faults,
      button('Save as CSV', 'Save the table as CSV', () => save('marks.csv', 'text/csv', csvOf(columns, rows))));
  }});
  return h('div', {}, h('h1', {}, 'Grading'),
    section('student', 'For students', 'Students', h('p', {}, 'Do the lessons, the quiz and the broken runs in this browser, then save the file and hand it in.'), studentForm(() => { tell(); }), own,
      h('div', {class: 'controls'}, button('Save my file', 'Save the file for the teacher', () => save('classroom-' + (record.seed().replace(/[^\w-]+/g, '_')) + '.json', 'application/json', JSON.stringify(handedIn(), null, 2) + '\n')),
        button('Begin anew', 'Forget all answers kept in this browser', () => { record.forget(); show(); }))),
    section('teacher', 'For teachers', 'Teachers', h('p', {}, 'Open many files at once. The page poses each student\u2019s questions again, by the seed, and judges the answers with the simulator. Lesson 9 needs a search, so its verdict is taken as the file has it.'),
      h('p', {class: 'quiet'}, 'This is no examination: a file can be written by hand, and answers can be copied from a neighbour with the same seed. Give seeds, and let students explain an answer.'),
      h('label', {for: 'handed-in'}, 'Files of students '), load, results));
}

function csvOf(columns, rows) {
  const plain = (value) => value && value.n !== undefined ? value.n : value;
  // A cell that begins like a formula would be one in a spreadsheet.
  const quoted = (value) => '"' + String(plain(value)).replace(/^[=+@\t\r-]/, "'$&").replace(/"/g, '""') + '"';
  return [columns, ...rows].map((row) => row.map(quoted).join(',')).join('\r\n') + '\r\n';
}
