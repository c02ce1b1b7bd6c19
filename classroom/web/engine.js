// Asks the simulator. Three workers: one estimates, which is done while a slider moves; one plays steps; one searches,
// which takes seconds.

const engine = {
  module: null,  // bytes
  workers: {},
  memory: new Map(),  // answers by question: the simulator is a pure function
  async unpack() {
    const packed = bytesOf(document.getElementById('module').textContent.trim());
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    this.module = new Uint8Array(await new Response(stream).arrayBuffer());
    await this.worker('play');
  },
  worker(name) {
    if (!this.workers[name]) this.workers[name] = this.start();
    return this.workers[name];
  },
  start() {
    const url = URL.createObjectURL(new Blob([document.getElementById('worker').textContent], {type: 'text/javascript'}));
    const worker = new Worker(url), waiting = new Map();
    let next = 0;
    const one = {
      busy: () => waiting.size,
      ask: (question, words) => new Promise((resolve) => {
        waiting.set(++next, resolve);
        worker.postMessage({id: next, name: question, words});
      }),
    };
    return new Promise((resolve, reject) => {
      worker.onerror = (event) => reject(new Error('The simulator cannot be started: ' + event.message));
      worker.onmessage = ({data}) => {
        if (data.ready) return resolve(one);
        const done = waiting.get(data.id);
        waiting.delete(data.id);
        done(data);
      };
      worker.postMessage({module: this.module});
    });
  },
  knows(name, words) { return this.memory.has(JSON.stringify([name, words])); },
  // The answer as the command prints it with --json. Throws what the command refuses, in its words.
  async ask(name, words) {
    const key = JSON.stringify([name, words]);
    if (this.memory.has(key)) return this.memory.get(key);
    const worker = await this.worker(name === 'plan' ? 'search' : words.includes('--estimate') ? 'estimate' : 'play');
    const {text, ms} = await worker.ask(name, words);
    const {answer, error} = JSON.parse(text);
    if (error) {
      const thrown = new Error(error.message);
      thrown.kind = error.kind;
      throw thrown;
    }
    this.lastMs = ms;
    if (text.length < 200000) {
      if (this.memory.size > 500) this.memory.delete(this.memory.keys().next().value);
      this.memory.set(key, answer);
    }
    return answer;
  },
};
