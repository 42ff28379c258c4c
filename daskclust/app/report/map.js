"use strict";
// The map of the report: layers, zoom, legend. Without this script a plain picture stays.
(async () => {
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const viewer = document.getElementById("viewer");
  const canvas = viewer.querySelector("canvas");
  if (!("DecompressionStream" in window) || !canvas.getContext) return;

  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };
  const { width, height } = data;
  const raw = await unpack(data.labels);
  const Labels = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[data.bytes];
  const labels = new Labels(raw);
  const margins = data.margins ? new Uint8Array(await unpack(data.margins)) : null;
  // Places of the known classes, from 1, and the label that each should have; 0 is none.
  const known = data.known ? new Labels(await unpack(data.known)) : null;
  const isRight = (i) => labels[i] === data.matches[known[i] - 1] + 1;
  const photo = data.photo ? new Image() : null;
  if (photo) { photo.onload = () => draw(); photo.src = data.photo; }

  // Colors as the 32 bits of a pixel.
  const little = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
  const pixel = (r, g, b, a = 255) =>
    (little ? (a << 24) | (b << 16) | (g << 8) | r : (r << 24) | (g << 16) | (b << 8) | a) >>> 0;
  const parts = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  const NONE = pixel(0x1a, 0x1a, 0x1a);
  const HIDDEN = pixel(0x1a, 0x1a, 0x1a, 40);
  // As the chips of the key, see style.css.
  const RIGHT_COLOR = pixel(0x5b, 0x9b, 0xd5), WRONG = pixel(0xf0, 0x6a, 0x20), UNKNOWN = pixel(0x4d, 0x4d, 0x4d);
  const colors = data.colors.map((color) => pixel(...parts(color)));
  const SCALE = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"].map(parts);
  const ramp = Array.from({ length: 101 }, (_, i) => {
    const at = (i / 100) * (SCALE.length - 1), low = Math.min(Math.floor(at), SCALE.length - 2);
    return pixel(...SCALE[low].map((v, k) => Math.round(v + (at - low) * (SCALE[low + 1][k] - v))));
  });

  const shown = data.names.map(() => true);
  const sheet = document.createElement("canvas");
  sheet.width = width;
  sheet.height = height;
  let layer = "labels";
  const paint = () => {
    const context = sheet.getContext("2d");
    const image = context.createImageData(width, height);
    const out = new Uint32Array(image.data.buffer);
    for (let i = 0; i < labels.length; i++) {
      const label = labels[i];
      if (label === 0) out[i] = NONE;
      else if (!shown[label - 1]) out[i] = HIDDEN;
      else if (layer === "labels") out[i] = colors[label - 1];
      else if (layer === "margins") out[i] = margins[i] === 255 ? NONE : ramp[margins[i]];
      else if (layer === "errors") out[i] = known[i] === 0 ? UNKNOWN : isRight(i) ? RIGHT_COLOR : WRONG;
      else out[i] = 0; // the scene shows through
    }
    context.putImageData(image, 0, 0);
  };

  // What is seen: pixels of the sheet to pixels of the screen.
  const LEFT = 96, BOTTOM = 44, TOP = 8, RIGHT = 8, CLOSEST = 40;
  const view = { zoom: 1, x: 0, y: 0 };
  let wide = 0, high = 0;
  const whole = () => Math.min((wide - LEFT - RIGHT) / width, (high - TOP - BOTTOM) / height);
  const fit = () => {
    view.zoom = whole();
    view.x = view.y = 0;
    limit();
  };
  const limit = () => {
    view.zoom = Math.max(whole(), Math.min(Math.max(CLOSEST, whole()), view.zoom));
    const across = (wide - LEFT - RIGHT) / view.zoom, down = (high - TOP - BOTTOM) / view.zoom;
    view.x = across >= width ? 0 : Math.max(0, Math.min(width - across, view.x));
    view.y = down >= height ? 0 : Math.max(0, Math.min(height - down, view.y));
  };
  const zoomBy = (factor, px = wide / 2, py = high / 2) => {
    const x = view.x + (px - LEFT) / view.zoom, y = view.y + (py - TOP) / view.zoom;
    view.zoom *= factor;
    limit();
    view.x = x - (px - LEFT) / view.zoom;
    view.y = y - (py - TOP) / view.zoom;
    limit();
    draw();
  };

  const nice = (span, count) => {
    const rough = Math.abs(span) / count, power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((m) => m * power >= rough);
  };
  const text = (value, step) => {
    const digits = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9)));
    return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };
  // A ruler along x or y: where its marks lie on the screen, and what they say.
  const marks = (from, until, start, size, room) => {
    const first = start + size * from * data.step, last = start + size * until * data.step;
    if (!(Math.abs(last - first) > 0)) return [];
    const step = nice(last - first, room), found = [];
    const low = Math.min(first, last), top = Math.max(first, last);
    for (let value = Math.ceil(low / step) * step; value <= top + step * 1e-9; value += step) {
      found.push([from + ((until - from) * (value - first)) / (last - first), text(value, step)]);
    }
    return found;
  };
  const draw = () => {
    const ratio = window.devicePixelRatio || 1, ink = getComputedStyle(viewer);
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    const right = Math.min(wide - RIGHT, LEFT + (width - view.x) * view.zoom);
    const bottom = Math.min(high - BOTTOM, TOP + (height - view.y) * view.zoom);
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP, right - LEFT, bottom - TOP);
    context.clip();
    const box = [LEFT - view.x * view.zoom, TOP - view.y * view.zoom, width * view.zoom, height * view.zoom];
    if (layer === "photo" && photo && photo.complete) context.drawImage(photo, ...box);
    context.drawImage(sheet, ...box);
    context.restore();
    context.strokeStyle = context.fillStyle = ink.color;
    context.globalAlpha = 0.75;
    context.lineWidth = 1;
    context.strokeRect(LEFT - 0.5, TOP - 0.5, right - LEFT + 1, bottom - TOP + 1);
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    const shownWidth = (right - LEFT) / view.zoom, shownHeight = (bottom - TOP) / view.zoom;
    const columns = marks(view.x, view.x + shownWidth, data.left, data.across, Math.max(2, (right - LEFT) / 110));
    for (const [at, said] of columns) {
      const px = LEFT + (at - view.x) * view.zoom;
      context.fillRect(px, bottom, 1, 5);
      // Whole at both ends, where the next pixel is outside.
      const most = wide - context.measureText(said).width / 2 - 1;
      context.fillText(said, Math.min(Math.max(px, LEFT - 20), most), bottom + 17);
    }
    context.fillText(data.xName, (LEFT + right) / 2, bottom + 35);
    context.textAlign = "right";
    const rows = marks(view.y, view.y + shownHeight, data.top, data.down, Math.max(2, (bottom - TOP) / 60));
    for (const [at, said] of rows) {
      const py = TOP + (at - view.y) * view.zoom;
      context.fillRect(LEFT - 5, py, 5, 1);
      context.fillText(said, LEFT - 8, py + 4);
    }
    context.save();
    context.translate(12, (TOP + bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(data.yName, 0, 0);
    context.restore();
  };
  const resize = () => {
    const before = whole();
    const isWhole = view.zoom <= before * 1.001 || wide === 0;
    wide = viewer.clientWidth;
    const room = wide - LEFT - RIGHT;
    high = Math.round(Math.max(220, Math.min(room * (height / width), window.innerHeight * 0.78, 900))) + TOP + BOTTOM;
    canvas.style.height = high + "px";
    if (isWhole) fit(); else limit();
    draw();
  };

  // What lies below the pointer.
  const readout = viewer.querySelector(".readout");
  const tell = (px, py) => {
    const x = Math.floor(view.x + (px - LEFT) / view.zoom), y = Math.floor(view.y + (py - TOP) / view.zoom);
    if (px < LEFT || py < TOP || x < 0 || y < 0 || x >= width || y >= height) {
      readout.textContent = "\u00a0";
      return;
    }
    const i = y * width + x, label = labels[i], column = x * data.step, row = y * data.step;
    let said = `row ${row}, column ${column}`;
    if (data.unit !== "pixel") {
      const at = (start, size, n) => (start + size * (n + 0.5)).toLocaleString("en", { maximumFractionDigits: 5 });
      said += ` \u00b7 ${at(data.left, data.across, column)}, ${at(data.top, data.down, row)} ${data.unit}`;
    }
    said += label === 0 ? " \u00b7 no data" : ` \u00b7 ${data.names[label - 1]} (${data.codes[label - 1]})`;
    if (margins && margins[i] <= 100) said += ` \u00b7 margin ${(margins[i] / 100).toFixed(2)}`;
    if (known && known[i] > 0) said += ` \u00b7 known: ${data.knownNames[known[i] - 1]} (${isRight(i) ? "right" : "wrong"})`;
    readout.textContent = said;
  };

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = place(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    if (held) {
      view.x -= (px - held[0]) / view.zoom;
      view.y -= (py - held[1]) / view.zoom;
      held = [px, py];
      limit();
      draw();
    }
    tell(px, py);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { held = null; });
  canvas.addEventListener("dblclick", (event) => zoomBy(2, ...place(event)));
  canvas.addEventListener("wheel", (event) => {
    // The page scrolls, unless the map was asked for.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY / 300), ...place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = 60 / view.zoom;
    const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (move) {
      view.x += move[0];
      view.y += move[1];
      limit();
      draw();
    } else if (event.key === "+" || event.key === "=") zoomBy(1.5);
    else if (event.key === "-") zoomBy(1 / 1.5);
    else if (event.key === "0") { fit(); draw(); }
    else return;
    event.preventDefault();
  });

  const boxes = [...document.querySelectorAll("#legend input")];
  const repaint = () => { paint(); draw(); };
  const actions = {
    in: () => zoomBy(1.6),
    out: () => zoomBy(1 / 1.6),
    all: () => { fit(); draw(); },
    show: () => choose(true),
    hide: () => choose(false),
  };
  const choose = (value) => {
    for (const box of boxes) shown[Number(box.dataset.class)] = box.checked = value;
    repaint();
  };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
  for (const box of boxes) {
    box.hidden = false;
    box.addEventListener("change", () => { shown[Number(box.dataset.class)] = box.checked; repaint(); });
  }
  const keys = { margins: viewer.querySelector(".scale"), errors: viewer.querySelector(".errors") };
  const choices = [...viewer.querySelectorAll("input[name=layer]")];
  const take = (choice) => {
    layer = choice.value;
    for (const [of, key] of Object.entries(keys)) if (key) key.hidden = layer !== of;
    repaint();
  };
  for (const choice of choices) choice.addEventListener("change", () => take(choice));

  for (const part of document.querySelectorAll(".tools, .readout, .how")) part.hidden = false;
  readout.textContent = "\u00a0";
  viewer.querySelector("img").hidden = true;
  canvas.hidden = false;
  paint();
  resize();
  take(choices.find((choice) => choice.checked) || choices[0]);
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  viewer.dataset.ready = "yes";
})();
