// The list of photos: small pictures with what the model thinks on top, the most useful first.

import { thoughtAddress, thumbnailAddress } from "./server.js";

export class List {
  constructor(element, open) {
    this.element = element;
    this.open = open;
    this.items = new Map();
    this.order = "";
  }

  update(photos, current) {
    for (const photo of photos) {
      let item = this.items.get(photo.name);
      if (!item) this.items.set(photo.name, (item = this.make(photo)));
      this.fill(item, photo, photo.name === current);
    }
    const order = photos.map((photo) => photo.name).join("\n");
    if (order !== this.order) {
      const top = this.element.parentElement.scrollTop;
      const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
      this.element.replaceChildren(...photos.map((photo) => this.items.get(photo.name).row));
      this.element.parentElement.scrollTop = top;
      if (focused) focused.focus();
      this.order = order;
    }
  }

  make(photo) {
    const row = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "photo";
    const frame = document.createElement("span");
    frame.className = "frame";
    const text = document.createElement("span");
    text.className = "text";
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = photo.file;
    const about = document.createElement("span");
    about.className = "about";
    text.append(name, about);
    button.append(frame, text);
    button.addEventListener("click", () => this.open(photo.name));
    row.append(button);
    const item = { row, button, frame, about, thumb: null, thought: null };
    if (!photo.broken) {
      item.thumb = document.createElement("img");
      item.thumb.alt = "";
      item.thumb.loading = "lazy";
      item.thumb.decoding = "async";
      item.thumb.src = thumbnailAddress(photo.name);
      frame.append(item.thumb);
    }
    return item;
  }

  fill(item, photo, isCurrent) {
    const kind = photo.broken ? "broken" : photo.is_accepted ? "accepted" : photo.has_marks ? "begun" : "new";
    item.button.dataset.kind = kind;
    item.button.disabled = kind === "broken";
    item.button.title = photo.broken || photo.file;
    if (isCurrent) item.button.setAttribute("aria-current", "true");
    else item.button.removeAttribute("aria-current");
    const doubt = typeof photo.doubt === "number" ? `doubt ${(100 * photo.doubt).toFixed(1)} %` : "";
    const said = {
      broken: "cannot be read",
      accepted: "✓ done",
      begun: ["begun", doubt].filter(Boolean).join(" · "),
      new: doubt || "new",
    }[kind];
    if (item.about.textContent !== said) item.about.textContent = said;
    if (photo.thought && item.stamp !== photo.thought) {
      item.stamp = photo.thought;
      if (!item.thought) {
        item.thought = document.createElement("img");
        item.thought.alt = "";
        item.thought.loading = "lazy";
        item.thought.className = "thought";
        item.frame.append(item.thought);
      }
      item.thought.src = thoughtAddress(photo.name, photo.thought);
    }
  }

  reveal(name) {
    const item = this.items.get(name);
    if (item) item.row.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
