// Mouse, pen, fingers and arrow keys on the photo: they become strokes and boxes, or move what is seen.

import { ERASER, box, stroke } from "./marks.js";

const LEAST_BOX = 4; // pixels of the screen; less is a click

export class Input {
  // on: { draft(mark), mark(mark), cancel() }
  constructor(view, on) {
    this.view = view;
    this.on = on;
    this.canvas = view.canvas;
    this.tool = { kind: "label", label: 1 };
    this.size = 18; // of the brush, in pixels of the screen: zoom in to draw finer
    this.isEnabled = false;
    this.pointers = new Map();
    this.drawn = null; // { label, radius, points } or { from, to }
    this.cursor = null; // of the keyboard, a point of the photo
    const listen = (name, handle, options) => this.canvas.addEventListener(name, handle.bind(this), options);
    listen("pointerdown", this.down);
    listen("pointermove", this.moved);
    listen("pointerup", this.up);
    listen("pointercancel", this.lost);
    listen("pointerleave", this.left);
    listen("wheel", this.wheel, { passive: false });
    listen("contextmenu", (event) => event.preventDefault());
    listen("keydown", this.key);
    listen("blur", () => this.finish());
  }

  get radius() {
    return this.size / 2 / this.view.scale;
  }

  place(event) {
    const edge = this.canvas.getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  }

  // Drawing, whatever draws.

  begin(point, isEraser = false) {
    if (this.tool.kind === "box" && !isEraser) {
      this.drawn = { from: point, to: point };
      return;
    }
    const label = isEraser || this.tool.kind === "eraser" ? ERASER : this.tool.label;
    this.drawn = { label, radius: this.radius, points: [point] };
    this.view.paint(label, this.radius, [point]);
    this.on.draft(this.current());
  }

  extend(point) {
    const { drawn } = this;
    if (drawn.from) {
      drawn.to = point;
      this.view.rubber = box(drawn.from, drawn.to).box;
      this.view.draw();
      return;
    }
    const last = drawn.points[drawn.points.length - 1];
    if (Math.hypot(point[0] - last[0], point[1] - last[1]) < Math.max(1 / this.view.scale, drawn.radius / 6)) return;
    drawn.points.push(point);
    this.view.paint(drawn.label, drawn.radius, [last, point]);
    this.on.draft(this.current());
  }

  current() {
    const { drawn } = this;
    return drawn.from ? box(drawn.from, drawn.to) : stroke(drawn.label, drawn.radius, drawn.points);
  }

  finish() {
    if (!this.drawn) return;
    const mark = this.current();
    const isClick =
      mark.box &&
      Math.min(mark.box[2] - mark.box[0], mark.box[3] - mark.box[1]) * this.view.scale < LEAST_BOX;
    this.drawn = this.view.rubber = null;
    if (isClick) this.on.cancel();
    else this.on.mark(mark);
    this.show();
  }

  cancel() {
    if (!this.drawn) return false;
    this.drawn = this.view.rubber = null;
    this.on.cancel();
    this.show();
    return true;
  }

  // The ring of the brush; with a cross where the keyboard moves it.
  show(point = this.cursor, hasCross = this.cursor !== null) {
    const isRing = point && this.isEnabled && (hasCross || ["label", "eraser"].includes(this.tool.kind));
    this.view.cursor = isRing
      ? {
          x: point[0],
          y: point[1],
          radius: this.tool.kind === "box" ? 3 / this.view.scale : this.radius,
          isDown: this.drawn !== null,
          colour: this.tool.kind === "label" ? `rgb(${this.view.colours[this.tool.label]})` : "#ffd400",
          hasCross,
        }
      : null;
    this.view.draw();
  }

  // Mouse, pen and fingers.

  down(event) {
    if (!this.isEnabled) return;
    this.canvas.focus();
    this.canvas.setPointerCapture(event.pointerId);
    const at = this.place(event);
    this.pointers.set(event.pointerId, at);
    this.cursor = null;
    if (this.pointers.size > 1) {
      this.cancel(); // a second finger: the first did not want to draw
      return;
    }
    const isMoving = event.button === 1 || event.button === 2 || this.tool.kind === "hand";
    if (isMoving) this.isPanning = true;
    else this.begin(this.view.toPhoto(...at), (event.buttons & 32) !== 0);
  }

  moved(event) {
    const at = this.place(event);
    const before = this.pointers.get(event.pointerId);
    if (before && this.pointers.size > 1) this.pinch(event.pointerId, before, at);
    else if (before && this.isPanning) this.view.move(at[0] - before[0], at[1] - before[1]);
    else if (before && this.drawn) {
      const events = event.getCoalescedEvents ? event.getCoalescedEvents() : [];
      for (const one of events.length ? events : [event]) this.extend(this.view.toPhoto(...this.place(one)));
    }
    if (before) this.pointers.set(event.pointerId, at);
    if (event.pointerType !== "touch" && this.cursor === null) this.show(this.view.toPhoto(...at), false);
  }

  pinch(id, before, at) {
    const [other] = [...this.pointers].filter(([key]) => key !== id).map(([, place]) => place);
    const length = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
    this.view.move((at[0] - before[0]) / 2, (at[1] - before[1]) / 2);
    if (length(before) > 1) this.view.zoom(length(at) / length(before), other);
  }

  up(event) {
    this.pointers.delete(event.pointerId);
    if (this.pointers.size) return;
    this.isPanning = false;
    this.finish();
  }

  lost(event) {
    this.pointers.delete(event.pointerId);
    this.isPanning = false;
    this.cancel();
  }

  left() {
    if (this.cursor === null && !this.drawn) {
      this.view.cursor = null;
      this.view.draw();
    }
  }

  wheel(event) {
    event.preventDefault();
    this.view.zoom(Math.exp(-Math.sign(event.deltaY) * Math.min(60, Math.abs(event.deltaY)) * 0.0035), this.place(event));
  }

  // The keyboard: arrows move the cursor, the space bar puts the brush down and lifts it.

  key(event) {
    if (!this.isEnabled || event.ctrlKey || event.metaKey || event.altKey) return;
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    const { width, height } = this.view.size;
    if (this.cursor === null) this.cursor = [width / 2, height / 2];
    else if (way) {
      const step = (event.shiftKey ? 24 : 6) / this.view.scale;
      this.cursor = [
        Math.min(width, Math.max(0, this.cursor[0] + step * way[0])),
        Math.min(height, Math.max(0, this.cursor[1] + step * way[1])),
      ];
      this.view.reveal(...this.cursor);
      if (this.drawn) this.extend(this.cursor);
    }
    if (event.key === " " && !event.repeat) {
      if (this.drawn) this.finish();
      else if (this.tool.kind !== "hand") this.begin(this.cursor);
    }
    this.show();
  }
}
