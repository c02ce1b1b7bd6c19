// Which part of the timeline is seen, and the gestures that move it: wheel, drag, two fingers, keys, buttons.

class TimelineView {
  constructor(canvas, end, changed) {
    this.canvas = canvas;
    this.end = end;
    this.changed = changed;
    this.view = {from: 0, to: end, top: 0, width: 0, height: 0, left: 0, scale: 1};
    this.most = 0;  // pixels that may be scrolled down
    this.listen();
  }
  whole() { this.show(-0.01 * this.end, 1.01 * this.end); }
  show(from, to) {
    const widest = 1.02 * this.end, narrowest = 200;  // ns
    const span = Math.min(widest, Math.max(narrowest, to - from));
    const middle = (from + to) / 2;
    this.view.from = Math.min(1.01 * this.end - span, Math.max(-0.01 * this.end, middle - span / 2));
    this.view.to = this.view.from + span;
    this.changed();
  }
  isWhole() { return this.view.to - this.view.from >= 1.0199 * this.end; }
  timeAt(x) { return this.view.from + (x - this.view.left) / (this.view.width - this.view.left) * (this.view.to - this.view.from); }
  zoom(factor, x) {
    const at = x === undefined ? (this.view.from + this.view.to) / 2 : this.timeAt(Math.max(this.view.left, x));
    this.show(at - (at - this.view.from) * factor, at + (this.view.to - at) * factor);
  }
  pan(part) {
    const shift = part * (this.view.to - this.view.from);
    this.show(this.view.from + shift, this.view.to + shift);
  }
  scroll(pixels) {
    this.view.top = Math.min(this.most, Math.max(0, this.view.top + pixels));
    this.changed();
  }
  listen() {
    const {canvas} = this;
    const pointers = new Map();
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return {x: event.clientX - box.left, y: event.clientY - box.top};
    };
    canvas.addEventListener('wheel', (event) => {
      const {x} = place(event);
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.pan((event.deltaX || event.deltaY) / 1000);
        return;
      }
      if (event.deltaY > 0 && this.isWhole()) return;  // nothing to zoom out to: the page scrolls
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 33 : 1;
      this.zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY * lines)) * 0.0025), x);
    }, {passive: false});
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      canvas.classList.add('dragging');
    });
    canvas.addEventListener('pointermove', (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = place(event);
      const inner = this.view.width - this.view.left;
      if (pointers.size === 1) {
        if (event.pointerType === 'mouse') this.scroll(before.y - now.y);
        this.pan((before.x - now.x) / inner);
      } else if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const apart = Math.abs(before.x - other.x), apartNow = Math.abs(now.x - other.x);
        if (apart > 8 && apartNow > 8) this.zoom(apart / apartNow, other.x);
      }
      pointers.set(event.pointerId, now);
    });
    const end = (event) => {
      pointers.delete(event.pointerId);
      if (pointers.size === 0) canvas.classList.remove('dragging');
    };
    canvas.addEventListener('pointerup', end);
    canvas.addEventListener('pointercancel', end);
    canvas.addEventListener('dblclick', (event) => this.zoom(0.25, place(event).x));
    this.dragging = () => pointers.size > 0;
  }
  // Returns whether the key was one of ours.
  key(name) {
    const keys = {
      ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15),
      ArrowUp: () => this.scroll(-40), ArrowDown: () => this.scroll(40),
      '+': () => this.zoom(0.6), '=': () => this.zoom(0.6), '-': () => this.zoom(1 / 0.6), _: () => this.zoom(1 / 0.6),
      Home: () => this.whole(), 0: () => this.whole(),
      PageUp: () => this.pan(-0.9), PageDown: () => this.pan(0.9),
    };
    if (!keys[name]) return false;
    keys[name]();
    return true;
  }
}
