// What is drawn on a photo: strokes and boxes in their order, and the way back and forth through them.

const round = (value) => Math.round(value * 10) / 10;

export const ERASER = -1;

export function stroke(label, radius, points) {
  return { label, radius: round(Math.max(0.5, radius)), points: points.map(([x, y]) => [round(x), round(y)]) };
}

export function box([x0, y0], [x1, y1]) {
  return { box: [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)].map(round) };
}

export const isBox = (mark) => mark.box !== undefined;

export class Marks {
  constructor(list = []) {
    this.list = list;
    this.past = list.map((_, n) => list.slice(0, n)); // after a reload, too, strokes can be taken back one by one
    this.future = [];
  }

  set(list) {
    this.past.push(this.list);
    this.list = list;
    this.future = [];
  }

  add(mark) {
    this.set([...this.list, mark]);
  }

  clear() {
    if (this.list.length) this.set([]);
  }

  get canUndo() {
    return this.past.length > 0;
  }

  get canRedo() {
    return this.future.length > 0;
  }

  undo() {
    if (!this.canUndo) return;
    this.future.push(this.list);
    this.list = this.past.pop();
  }

  redo() {
    if (!this.canRedo) return;
    this.past.push(this.list);
    this.list = this.future.pop();
  }
}
