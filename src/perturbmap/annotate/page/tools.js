// The tools: one for each label, the eraser, the box and the hand; a group of radio buttons.

function listed(labels, hasBoxes) {
  const brushes = labels.map(({ name, colour }, n) => ({ id: `label-${n}`, name, colour, tool: { kind: "label", label: n } }));
  if (hasBoxes) brushes.reverse(); // the foreground first
  const keys = hasBoxes ? ["F", "B"] : brushes.map((_, n) => (n < 9 ? String(n + 1) : ""));
  return [
    ...brushes.map((one, n) => ({ ...one, key: keys[n], words: `draw ${one.name.toLowerCase()}` })),
    { id: "eraser", name: "Erase", key: "E", words: "erase", tool: { kind: "eraser" } },
    ...(hasBoxes ? [{ id: "box", name: "Box", key: "R", words: "box", tool: { kind: "box" } }] : []),
    { id: "hand", name: "Move", key: "V", words: "move", tool: { kind: "hand" } },
  ];
}

export class Tools {
  constructor(element, input, labels, hasBoxes) {
    this.input = input;
    this.all = listed(labels, hasBoxes);
    this.buttons = new Map(this.all.map((one) => [one.id, this.make(one)]));
    element.append(...this.buttons.values());
    element.addEventListener("keydown", (event) => this.arrow(event));
    this.choose(this.all[0].id);
  }

  // As shortcuts: the key, what it does in words, and the act.
  get keys() {
    return this.all.filter((one) => one.key).map((one) => [one.key, one.words, () => this.choose(one.id)]);
  }

  make(one) {
    const button = document.createElement("button");
    button.type = "button";
    button.id = one.id;
    button.setAttribute("role", "radio");
    button.title = one.key ? `${one.name} (${one.key})` : one.name;
    if (one.colour) {
      const patch = document.createElement("i");
      patch.className = "patch";
      patch.style.background = `rgb(${one.colour})`;
      button.append(patch);
    }
    button.append(one.name[0].toUpperCase() + one.name.slice(1));
    button.addEventListener("click", () => this.choose(one.id));
    return button;
  }

  choose(id) {
    this.input.finish();
    for (const [other, button] of this.buttons) {
      button.setAttribute("aria-checked", String(other === id));
      button.tabIndex = other === id ? 0 : -1;
    }
    this.input.tool = this.all.find((one) => one.id === id).tool;
    this.input.canvas.dataset.tool = this.input.tool.kind;
    this.input.show();
  }

  // Arrow keys go through the tools, as in any group of radio buttons.
  arrow(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const ids = [...this.buttons.keys()];
    const id = ids[(ids.indexOf(document.activeElement.id) + by + ids.length) % ids.length];
    this.choose(id);
    this.buttons.get(id).focus();
  }
}
