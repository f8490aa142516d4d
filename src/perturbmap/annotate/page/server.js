// What the page asks of the server. All addresses are relative to that of the page, which has the token.

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, method = "GET", body = undefined) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, "The server does not answer. Is perturbmap annotate running?");
  }
  const text = await response.text();
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    found = { error: text };
  }
  if (!response.ok) throw new Refused(response.status, found.error || `The server said ${response.status}.`);
  return found;
}

const of = (name) => `photos/${encodeURIComponent(name)}`;

export const state = () => ask("state");
export const photo = (name) => ask(of(name));
export const keepMarks = (name, marks, revision) => ask(`${of(name)}/marks`, "PUT", { marks, revision });
export const answer = (name, marks) => ask(`${of(name)}/answer`, "POST", { marks });
export const acceptedMask = (name) => ask(`${of(name)}/mask`);
export const accept = (name, revision) => ask(`${of(name)}/mask`, "PUT", { revision });
export const withdraw = (name) => ask(`${of(name)}/mask`, "DELETE");
export const pictureAddress = (name) => `${of(name)}/picture`;
export const thumbnailAddress = (name) => `${of(name)}/thumbnail`;
export const thoughtAddress = (name, stamp) => `${of(name)}/thought?at=${stamp}`;

export async function picture(name) {
  const response = await fetch(pictureAddress(name));
  if (!response.ok) throw new Refused(response.status, (await response.json()).error);
  return createImageBitmap(await response.blob());
}

// The numbers of a grey PNG that came as base64 text: { width, height, values }.
export async function grey(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }), { colorSpaceConversion: "none" });
  const { width, height } = bitmap;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const pixels = context.getImageData(0, 0, width, height).data;
  const values = new Uint8Array(width * height);
  for (let n = 0; n < values.length; n++) values[n] = pixels[4 * n];
  return { width, height, values };
}
