// The expected error over the number of masks it was learned from, with its standard error: small, and large.

const NAMESPACE = "http://www.w3.org/2000/svg";

function add(parent, kind, attributes, text = "") {
  const element = document.createElementNS(NAMESPACE, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;

// The last check of each number of masks counts.
const points = (errors) => [...new Map(errors.map((one) => [one.n_masks, one])).values()].sort((a, b) => a.n_masks - b.n_masks);

function scales(found, width, height, [left, top, right, bottom]) {
  const first = 0;
  const last = Math.max(found[found.length - 1].n_masks, 5);
  const top_error = Math.max(0.02, ...found.map((one) => one.balanced_error + (one.standard_error || 0)));
  const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2].find((size) => size * 5 >= top_error) || 0.2;
  const most = step * Math.ceil(top_error / step);
  return {
    x: (n) => left + ((n - first) / (last - first)) * (width - left - right),
    y: (error) => height - bottom - (Math.max(0, error) / most) * (height - top - bottom),
    most,
    step,
    first,
    last,
  };
}

export function spark(svg, errors) {
  svg.replaceChildren();
  const found = points(errors);
  svg.classList.toggle("empty", found.length < 2);
  if (found.length < 2) return;
  const { x, y } = scales(found, 80, 24, [2, 3, 3, 2]);
  add(svg, "polyline", { points: found.map((one) => `${x(one.n_masks)},${y(one.balanced_error)}`).join(" ") });
  const end = found[found.length - 1];
  add(svg, "circle", { cx: x(end.n_masks), cy: y(end.balanced_error), r: 2.5 });
}

export function chart(svg, text, errors) {
  svg.replaceChildren();
  const found = points(errors);
  svg.classList.toggle("empty", !found.length);
  if (!found.length) {
    text.textContent = "It is known once two masks are accepted and learned from.";
    return;
  }
  const [width, height] = [560, 300];
  const { x, y, most, step, first, last } = scales(found, width, height, [52, 14, 18, 40]);
  for (let n = 0; n * step <= most * 1.001; n++) {
    const at = y(n * step);
    add(svg, "line", { x1: 52, x2: width - 18, y1: at, y2: at, class: "rule" });
    add(svg, "text", { x: 46, y: at + 4, "text-anchor": "end" }, `${+(100 * n * step).toFixed(1)} %`);
  }
  const apart = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((size) => last / size <= 10) || 1000;
  for (let n = first; n <= last; n += apart) add(svg, "text", { x: x(n), y: height - 22, "text-anchor": "middle" }, n);
  add(svg, "text", { x: (52 + width - 18) / 2, y: height - 4, "text-anchor": "middle" }, "accepted masks");
  const upper = found.map((one) => `${x(one.n_masks)},${y(one.balanced_error + (one.standard_error || 0))}`);
  const lower = found.map((one) => `${x(one.n_masks)},${y(one.balanced_error - (one.standard_error || 0))}`);
  add(svg, "polygon", { points: [...upper, ...lower.reverse()].join(" "), class: "band" });
  add(svg, "polyline", { points: found.map((one) => `${x(one.n_masks)},${y(one.balanced_error)}`).join(" ") });
  for (const one of found) add(svg, "circle", { cx: x(one.n_masks), cy: y(one.balanced_error), r: 3.5 });
  const end = found[found.length - 1];
  text.textContent =
    `With ${end.n_masks} masks: ${percent(end.balanced_error)} of the pixels are expected to be wrong in a new ` +
    `photo without any mark, each label counted alike (intersection over union ${end.iou.toFixed(2)}). By ` +
    "cross-validation; the band is one standard error.";
}
