// The page: one photo at a time, its marks and its answer, and what goes on around it.

import { chart, spark } from "./chart.js";
import { Input } from "./input.js";
import { List } from "./list.js";
import { Marks } from "./marks.js";
import * as server from "./server.js";
import { hear, listKeys } from "./shortcuts.js";
import { Tools } from "./tools.js";
import { View } from "./view.js";

const POLL = 2000; // milliseconds between two looks at the state
const get = (id) => document.getElementById(id);

const view = new View(get("canvas"));
const list = new List(get("list"), open);
const input = new Input(view, {
  draft: (mark) => ask([...marks.list, mark], true),
  mark: (mark) => change(() => marks.add(mark)),
  cancel: () => {
    show();
    answerAgain(); // what is shown may be of the stroke that is forgotten
  },
});

let state = null;
let photo = null; // what the server knows of the one that is shown
let marks = new Marks();
let saving = Promise.resolve();
let hasAnswer = false;

// One question at a time while a stroke is drawn, and the newest marks next: the server cancels what is older.
let asking = { isBusy: false, next: null, number: 0 };

async function ask(all, isDraft = false) {
  if (isDraft && asking.isBusy) {
    asking.next = all;
    return;
  }
  const mine = { isBusy: true, next: null, number: asking.number + 1 };
  asking = mine;
  const { name } = photo;
  const late = setTimeout(() => (get("busy").hidden = false), 400);
  try {
    const found = await server.answer(name, all);
    if (asking !== mine || !photo || photo.name !== name) return;
    if (found.mask) {
      const [mask, doubt] = await Promise.all([server.grey(found.mask), server.grey(found.doubt)]);
      if (asking.number > mine.number || !photo || photo.name !== name) return;
      view.setMask(mask);
      view.setDoubt(doubt);
      hasAnswer = true;
      get("seconds").textContent = `${Math.round(1000 * found.seconds)} ms`;
    } else if (!all.length) {
      forgetAnswer();
    }
  } catch (error) {
    tell(error.message);
  } finally {
    clearTimeout(late);
    if (asking === mine) {
      get("busy").hidden = true;
      mine.isBusy = false;
      refresh();
      if (mine.next) ask(mine.next, true);
    }
  }
}

function forgetAnswer() {
  view.setMask(null);
  view.setDoubt(null);
  hasAnswer = false;
  get("seconds").textContent = "";
}

function change(how) {
  if (!photo) return;
  input.cancel();
  how();
  show();
  save();
  answerAgain();
}

function answerAgain() {
  if (!photo) return;
  if (marks.list.length || state.has_model) ask(marks.list);
  else {
    asking = { isBusy: false, next: null, number: asking.number + 1 };
    forgetAnswer();
    refresh();
  }
}

// Marks are kept one after another: each time the server is told what was there before.
function save() {
  const { name } = photo;
  const all = marks.list;
  saving = saving.then(async () => {
    if (!photo || photo.name !== name || photo.isStale) return;
    try {
      const { revision } = await server.keepMarks(name, all, photo.revision);
      if (photo && photo.name === name) photo.revision = revision;
    } catch (error) {
      tell(error.message);
      if (error.status === 409 && photo.name === name) {
        photo.isStale = true;
        open(name);
      }
    }
  });
  return saving;
}

function show() {
  view.setMarks(marks.list);
  refresh();
}

async function open(name) {
  input.cancel();
  input.isEnabled = false;
  await saving;
  const mine = (asking = { isBusy: false, next: null, number: asking.number + 1 });
  view.forget();
  forgetAnswer();
  photo = null;
  marks = new Marks();
  get("name").textContent = name;
  get("busy").hidden = false;
  location.replace(`#${encodeURIComponent(name)}`);
  refresh();
  try {
    const [found, picture] = await Promise.all([server.photo(name), server.picture(name)]);
    if (asking !== mine) return;
    photo = found;
    marks = new Marks(found.marks);
    view.setPhoto(picture, found.width, found.height);
    input.cursor = null;
    input.isEnabled = true;
    show();
    if (found.is_accepted) {
      view.setMask(await server.grey((await server.acceptedMask(name)).mask));
      hasAnswer = true;
    } else if (found.marks.length || state.has_model) {
      ask(marks.list);
    }
  } catch (error) {
    tell(error.message);
  } finally {
    if (asking === mine) get("busy").hidden = true;
    refresh();
    list.reveal(name);
  }
}

const readable = (photos) => photos.filter((one) => !one.broken);

function step(by) {
  const names = readable(state.photos).map((one) => one.name);
  const at = names.indexOf(photo ? photo.name : "");
  open(names[(at + by + names.length) % names.length]);
}

async function accept() {
  if (!photo || get("accept").disabled) return;
  input.finish();
  const { name } = photo;
  get("accept").disabled = true;
  await saving;
  try {
    await server.accept(name, photo.revision);
    photo.is_accepted = true;
    await look();
    const next = readable(state.photos).find((one) => !one.is_accepted && one.name !== name);
    if (next) await open(next.name);
    else tell("All photos are done. Export has all masks.");
  } catch (error) {
    tell(error.message);
    if (error.status === 409) open(name);
  }
  refresh();
  get("canvas").focus();
}

async function withdraw() {
  try {
    await server.withdraw(photo.name);
    await look();
    await open(photo.name);
  } catch (error) {
    tell(error.message);
  }
}

// Around the photo.

async function look() {
  state = await server.state();
  const usable = readable(state.photos);
  const n_done = usable.filter((one) => one.is_accepted).length;
  get("folder").textContent = state.folder;
  document.title = `${state.folder} · Annotate`;
  get("done-bar").max = Math.max(1, usable.length);
  get("done-bar").value = n_done;
  get("done-text").textContent = `${n_done} of ${usable.length} done`;
  get("export").toggleAttribute("aria-disabled", n_done === 0);
  list.update(state.photos, photo ? photo.name : get("name").textContent);
  spark(get("spark"), state.errors);
  if (get("progress").open) chart(get("chart"), get("chart-text"), state.errors);
  const { stage, fraction, problem } = state.learning;
  const last = state.errors[state.errors.length - 1];
  const known = last ? `expected error ${(100 * last.balanced_error).toFixed(1)} %` : "nothing learned yet";
  const doing = stage && stage !== "learned" ? [stage, fraction ? `${Math.round(100 * fraction)} %` : "…"].join(" ") : "";
  get("learning").textContent = problem ? `not learned: ${problem}` : [known, doing].filter(Boolean).join(" · ");
  get("curve").classList.toggle("busy-now", Boolean(doing));
}

async function poll() {
  try {
    const had = state && state.has_model;
    await look();
    if (!had && state.has_model && photo && !marks.list.length && !photo.is_accepted) ask([]);
    if (get("message").dataset.status === "0") tell("");
  } catch (error) {
    tell(error.message, error.status);
  }
  setTimeout(poll, POLL);
}

function refresh() {
  const is = Boolean(photo);
  get("undo").disabled = !is || !marks.canUndo;
  get("redo").disabled = !is || !marks.canRedo;
  get("clear").disabled = !is || !marks.list.length;
  get("accept").disabled = !is || !hasAnswer;
  get("withdraw").hidden = !is || !photo.is_accepted;
  const isBare = is && !hasAnswer && !marks.list.length && !asking.isBusy;
  get("hint").textContent = isBare
    ? state.has_boxes
      ? "Draw over the thing, then over what is around it."
      : "Draw a stroke on each thing, in its colour."
    : "";
  get("about").textContent = is ? `${photo.width} × ${photo.height}${photo.is_accepted ? " · accepted" : ""}` : "";
}

let quiet = 0;
function tell(text, status = "") {
  const message = get("message");
  message.hidden = !text;
  message.textContent = text;
  message.dataset.status = String(status);
  clearTimeout(quiet);
  if (text && status !== 0) quiet = setTimeout(() => (message.hidden = true), 7000);
}

// Tools.

function makeTools() {
  view.colours = state.labels.map((label) => label.colour);
  view.transparent = new Set(state.has_boxes ? [0] : []);
  const tools = new Tools(get("kinds"), input, state.labels, state.has_boxes);
  KEYS.unshift(...tools.keys);
  if (state.has_boxes) KEYS.push(["1", "", () => tools.choose("label-1")], ["2", "", () => tools.choose("label-0")]);
}

function setSize(size) {
  input.size = Math.min(96, Math.max(4, size));
  get("size").value = String(input.size);
  const dot = get("dot").firstElementChild;
  dot.style.width = dot.style.height = `${Math.min(28, Math.max(3, input.size / 3))}px`;
  input.show();
}

function toggle(what) {
  view.shown[what] = !view.shown[what];
  get(`show-${what}`).setAttribute("aria-pressed", String(view.shown[what]));
  view.draw();
}

// Keys: what is pressed, what it does in words, and what is done. Without words it is not listed.
const KEYS = [
  ["Enter", "accept the mask, and go on to the next photo", accept],
  ["N", "next photo", () => step(1)],
  ["P", "photo before", () => step(-1)],
  ["Z", "undo; Ctrl+Z does, too", () => change(() => marks.undo())],
  ["Y", "redo; Ctrl+Shift+Z does, too", () => change(() => marks.redo())],
  ["[", "smaller brush", () => setSize(input.size / 1.25)],
  ["]", "larger brush", () => setSize(input.size * 1.25)],
  ["M", "mask on and off", () => toggle("mask")],
  ["O", "outline on and off", () => toggle("outline")],
  ["D", "doubt on and off", () => toggle("doubt")],
  ["K", "marks on and off", () => toggle("marks")],
  ["+", "zoom in", () => view.zoom(1.3)],
  ["=", "", () => view.zoom(1.3)],
  ["-", "zoom out", () => view.zoom(1 / 1.3)],
  ["0", "show all of the photo", () => view.fit()],
  ["C", "to the photo, for the arrow keys", () => get("canvas").focus()],
  ["Arrows", "on the photo: move the cursor; with Shift, faster", null],
  ["Space", "on the photo: put the brush down, or lift it", null],
  ["Escape", "forget the stroke that is being drawn", () => input.cancel()],
  ["?", "these shortcuts", help],
];

function help() {
  listKeys(get("keys"), KEYS);
  get("shortcuts").showModal();
}

hear(KEYS, () => state !== null, (isForth) => change(() => (isForth ? marks.redo() : marks.undo())));

const clicks = {
  undo: () => change(() => marks.undo()),
  redo: () => change(() => marks.redo()),
  clear: () => change(() => marks.clear()),
  accept,
  withdraw,
  help,
  "zoom-in": () => view.zoom(1.3),
  "zoom-out": () => view.zoom(1 / 1.3),
  "zoom-fit": () => view.fit(),
  "show-mask": () => toggle("mask"),
  "show-outline": () => toggle("outline"),
  "show-doubt": () => toggle("doubt"),
  "show-marks": () => toggle("marks"),
  curve: () => {
    chart(get("chart"), get("chart-text"), state.errors);
    get("progress").showModal();
  },
};
for (const [id, act] of Object.entries(clicks)) get(id).addEventListener("click", act);
get("size").addEventListener("input", (event) => setSize(Number(event.target.value)));

// The photo that the address names, or "".
function named() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // someone has changed it
  }
}

window.addEventListener("hashchange", () => {
  const name = named();
  if (state && name !== get("name").textContent && readable(state.photos).some((one) => one.name === name)) open(name);
});

async function start() {
  try {
    state = await server.state();
  } catch (error) {
    tell(error.message);
    setTimeout(start, POLL);
    return;
  }
  makeTools();
  setSize(input.size);
  const usable = readable(state.photos);
  const first = usable.find((one) => one.name === named()) || usable[0];
  await look();
  if (first) await open(first.name);
  else tell("None of the photos can be read.");
  poll();
}

start();
