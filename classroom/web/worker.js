// Runs in a worker of its own, so that the page moves while it computes: the simulator's module, and what it
// asks of a system. The first message is the module's bytes, all others are questions, answered in order.
'use strict';
let compiled = null, instance = null;

// WASI, as far as the module may ask: there is a clock, and there are no files.
const wasi = new Proxy({
  clock_time_get(clock, precision, at) {
    new DataView(instance.exports.memory.buffer).setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
    return 0;
  },
  environ_sizes_get(number, size) {
    const memory = new DataView(instance.exports.memory.buffer);
    memory.setUint32(number, 0, true);
    memory.setUint32(size, 0, true);
    return 0;
  },
  environ_get: () => 0,
  proc_exit(code) { throw new Error('the simulator ended with code ' + code); },
}, {get: (known, name) => known[name] || (() => 8)});  // 8: no such file descriptor

function fresh() {
  const imports = {};
  for (const {module, name} of WebAssembly.Module.imports(compiled)) (imports[module] = imports[module] || {})[name] = wasi[name];
  instance = new WebAssembly.Instance(compiled, imports);
  instance.exports._initialize();
}

function ask(text) {
  const asked = new TextEncoder().encode(text), {allocate, ask: run, answer} = instance.exports;
  const at = allocate(asked.length) >>> 0;
  new Uint8Array(instance.exports.memory.buffer, at, asked.length).set(asked);
  const length = run(at, asked.length) >>> 0;
  return new TextDecoder().decode(new Uint8Array(instance.exports.memory.buffer, answer() >>> 0, length));
}

onmessage = ({data}) => {
  if (data.module) {
    compiled = new WebAssembly.Module(data.module);
    fresh();
    postMessage({ready: true});
    return;
  }
  const begin = performance.now();
  let text = '';
  try {
    text = ask(JSON.stringify({name: data.name, words: data.words}));
  } catch (error) {  // a trap leaves the module's memory as it was in the middle of something
    text = JSON.stringify({error: {kind: 'Trap', message: 'The simulator stopped: ' + error.message + '. It has been started again; please report this plan.'}});
    fresh();
  }
  postMessage({id: data.id, text, ms: performance.now() - begin});
};
