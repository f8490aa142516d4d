// The photo on its canvas: what is shown on top of it, and where on the screen it is.

import { ERASER, isBox } from "./marks.js";

const OPACITY = 0.38;
const ZOOM_MOST = 40; // screen pixels for one of the photo

export class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.shown = { mask: true, outline: true, doubt: true, marks: true };
    this.colours = [];
    this.transparent = new Set();
    this.cursor = null; // { x, y, radius, isDown } in pixels of the photo, for the keyboard and the mouse
    this.rubber = null; // a box while it is drawn
    this.forget();
    this.waiting = false;
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  forget() {
    this.photo = this.tint = this.heat = this.outline = this.layer = null;
    this.size = { width: 1, height: 1 };
    this.scale = 1;
    this.x = this.y = 0;
    this.isFitted = true;
    this.draw();
  }

  setPhoto(bitmap, width, height) {
    this.photo = bitmap;
    this.size = { width, height };
    this.layer = new OffscreenCanvas(bitmap.width, bitmap.height);
    this.fit();
  }

  // Where things are. Points of the photo are in its own pixels, at full size.

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.max(1, Math.round(clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    if (this.isFitted) this.fit();
    else this.draw();
  }

  fit() {
    const { clientWidth, clientHeight } = this.canvas;
    const margin = Math.min(24, clientWidth / 40);
    this.scale = Math.min(
      (clientWidth - 2 * margin) / this.size.width,
      (clientHeight - 2 * margin) / this.size.height,
      ZOOM_MOST,
    );
    this.x = (clientWidth - this.scale * this.size.width) / 2;
    this.y = (clientHeight - this.scale * this.size.height) / 2;
    this.isFitted = true;
    this.draw();
  }

  zoom(factor, at = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2]) {
    const least = Math.min(40 / Math.max(this.size.width, this.size.height), 1);
    const scale = Math.min(ZOOM_MOST, Math.max(least, this.scale * factor));
    this.x = at[0] - ((at[0] - this.x) * scale) / this.scale;
    this.y = at[1] - ((at[1] - this.y) * scale) / this.scale;
    this.scale = scale;
    this.isFitted = false;
    this.draw();
  }

  move(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.isFitted = false;
    this.draw();
  }

  toPhoto(x, y) {
    return [(x - this.x) / this.scale, (y - this.y) / this.scale];
  }

  // The cursor of the keyboard stays where it can be seen.
  reveal(x, y) {
    const { clientWidth, clientHeight } = this.canvas;
    const left = this.x + x * this.scale;
    const top = this.y + y * this.scale;
    const dx = Math.max(0, 30 - left) - Math.max(0, left - clientWidth + 30);
    const dy = Math.max(0, 30 - top) - Math.max(0, top - clientHeight + 30);
    if (dx || dy) this.move(dx, dy);
  }

  // What is on top.

  setMask(grey) {
    this.tint = this.outline = null;
    if (grey) {
      this.tint = tinted(grey, this.colours, this.transparent);
      this.outline = outlines(grey);
    }
    this.draw();
  }

  setDoubt(grey) {
    this.heat = grey ? heated(grey) : null;
    this.draw();
  }

  setMarks(marks) {
    if (!this.layer) return;
    const context = this.layer.getContext("2d");
    context.clearRect(0, 0, this.layer.width, this.layer.height);
    for (const mark of marks) if (!isBox(mark)) this.paint(mark.label, mark.radius, mark.points);
    this.boxes = marks.filter(isBox).map((mark) => mark.box);
    this.draw();
  }

  paint(label, radius, points) {
    const context = this.layer.getContext("2d");
    const ratio = this.layer.width / this.size.width;
    context.globalCompositeOperation = label === ERASER ? "destination-out" : "source-over";
    context.strokeStyle = label === ERASER ? "black" : `rgb(${this.colours[label]})`;
    context.lineWidth = Math.max(1, 2 * radius * ratio);
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(points[0][0] * ratio, points[0][1] * ratio);
    for (const [x, y] of points) context.lineTo(x * ratio, y * ratio);
    context.stroke();
    this.draw();
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.drawNow();
    });
  }

  drawNow() {
    const { context, canvas, shown } = this;
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!this.photo) return;
    const { width, height } = this.size;
    context.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, ratio * this.x, ratio * this.y);
    const isSmooth = this.scale * (width / this.photo.width) < 3;
    const put = (picture, smooth, opacity = 1) => {
      context.imageSmoothingEnabled = smooth;
      context.imageSmoothingQuality = "high";
      context.globalAlpha = opacity;
      context.drawImage(picture, 0, 0, width, height);
      context.globalAlpha = 1;
    };
    put(this.photo, isSmooth);
    if (shown.mask && this.tint) put(this.tint, isSmooth, OPACITY);
    if (shown.doubt && this.heat) put(this.heat, true);
    if (shown.outline && this.outline) {
      const one = width / this.outline.width;
      context.save();
      context.scale(one, one);
      context.lineCap = "square";
      for (const [colour, wide] of [["rgb(0 0 0 / 0.65)", 3.2], ["white", 1.5]]) {
        context.strokeStyle = colour;
        context.lineWidth = wide / this.scale / one;
        context.stroke(this.outline.path);
      }
      context.restore();
    }
    if (shown.marks) {
      put(this.layer, isSmooth, 0.72);
      for (const box of this.boxes || []) this.drawBox(box);
    }
    if (this.rubber) this.drawBox(this.rubber);
    if (this.cursor) this.drawCursor();
  }

  drawBox([left, top, right, bottom]) {
    const { context } = this;
    for (const [colour, dash] of [["rgb(0 0 0 / 0.7)", []], ["white", [7, 5]]]) {
      context.strokeStyle = colour;
      context.lineWidth = 2 / this.scale;
      context.setLineDash(dash.map((length) => length / this.scale));
      context.strokeRect(left, top, right - left, bottom - top);
    }
    context.setLineDash([]);
  }

  drawCursor() {
    const { context, cursor } = this;
    for (const [colour, wide] of [["rgb(0 0 0 / 0.75)", 3], [cursor.isDown ? cursor.colour : "white", 1.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide / this.scale;
      context.beginPath();
      context.arc(cursor.x, cursor.y, Math.max(cursor.radius, 2 / this.scale), 0, 2 * Math.PI);
      if (cursor.hasCross) {
        const arm = cursor.radius + 7 / this.scale;
        context.moveTo(cursor.x - arm, cursor.y);
        context.lineTo(cursor.x + arm, cursor.y);
        context.moveTo(cursor.x, cursor.y - arm);
        context.lineTo(cursor.x, cursor.y + arm);
      }
      context.stroke();
    }
  }
}

function filled(width, height, fill) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  fill(new Uint32Array(image.data.buffer));
  context.putImageData(image, 0, 0);
  return canvas;
}

// Colours as the canvas keeps them: alpha, blue, green, red from the highest byte on.
const packed = ([red, green, blue], alpha) => ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;

function tinted({ width, height, values }, colours, transparent) {
  const table = new Uint32Array(256);
  colours.forEach((colour, label) => (table[label] = transparent.has(label) ? 0 : packed(colour, 255)));
  return filled(width, height, (pixels) => {
    for (let n = 0; n < values.length; n++) pixels[n] = table[values[n]];
  });
}

function heated({ width, height, values }) {
  const table = new Uint32Array(256);
  for (let v = 0; v < 256; v++) {
    const t = v / 255;
    table[v] = packed([255, Math.round(225 - 165 * t), 0], Math.round(165 * t ** 1.3));
  }
  return filled(width, height, (pixels) => {
    for (let n = 0; n < values.length; n++) pixels[n] = table[values[n]];
  });
}

// The sides between pixels of two labels, runs of them joined, in pixels of the mask.
function outlines({ width, height, values }) {
  const path = new Path2D();
  for (let y = 1; y < height; y++) {
    let begin = -1;
    for (let x = 0; x <= width; x++) {
      const differs = x < width && values[y * width + x] !== values[(y - 1) * width + x];
      if (differs && begin < 0) begin = x;
      if (!differs && begin >= 0) {
        path.moveTo(begin, y);
        path.lineTo(x, y);
        begin = -1;
      }
    }
  }
  for (let x = 1; x < width; x++) {
    let begin = -1;
    for (let y = 0; y <= height; y++) {
      const differs = y < height && values[y * width + x] !== values[y * width + x - 1];
      if (differs && begin < 0) begin = y;
      if (!differs && begin >= 0) {
        path.moveTo(x, begin);
        path.lineTo(x, y);
        begin = -1;
      }
    }
  }
  return { path, width, height };
}
