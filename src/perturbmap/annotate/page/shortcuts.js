// Keyboard shortcuts: [what is pressed, what it does in words, the act]. Without words they are not listed, and without
// an act someone else does it.

export function listKeys(table, keys) {
  table.replaceChildren(
    ...keys
      .filter(([, words]) => words)
      .map(([key, words]) => {
        const row = document.createElement("tr");
        const name = document.createElement("th");
        name.scope = "row";
        const cap = document.createElement("kbd");
        cap.textContent = key;
        name.append(cap);
        const what = document.createElement("td");
        what.textContent = words;
        row.append(name, what);
        return row;
      }),
  );
}

// Ctrl+Z and its like call undo(isForth).
export function hear(keys, isReady, undo) {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || !isReady()) return;
    if (event.ctrlKey || event.metaKey) {
      const key = event.key.toLowerCase();
      if (key !== "z" && key !== "y") return;
      event.preventDefault();
      undo(key === "y" || event.shiftKey);
      return;
    }
    if (event.altKey) return;
    // A button that has the focus is pressed by Enter; so is a photo of the list.
    const isOwn = event.target instanceof Element && event.target.closest("button, a, input");
    if (isOwn && ["Enter", " "].includes(event.key)) return;
    const pressed = event.key.length === 1 ? event.key.toUpperCase() : event.key;
    const found = keys.find(([key, , act]) => act && key === pressed);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
}
