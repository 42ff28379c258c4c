"use strict";
// The page: tiles on a canvas, one target (a pixel or a polygon) that the next class is for.

const $ = (id) => document.getElementById(id);
const canvas = $("map"), paint = canvas.getContext("2d");
const MOST_TILES = 300, CLOSEST = 40;
const LENS = 70;                   // screen pixels around the target where no map covers the picture
const LAYERS = ["scene", "map", "uncertainty"];
let state = null;                  // as the server tells it
let view = null;                   // {x, y: pixel in the middle, zoom: screen pixels a pixel}
let chosen = null;                 // pixel chosen by a person instead of the question
let polygon = null;                // corners [row, column] while one is drawn
let closed = false;                // whether that polygon is whole
let tiles = new Map();             // by layer, level and place: {image, version, wanted}
let spectrum = null, lastQuestion = "";
let isWhole = true;                // until somebody moves the picture

// The server

async function ask(path, options) {
  const answer = await fetch(path, options);
  const found = await answer.json().catch(() => ({}));
  if (answer.status === 409) {
    if (found.state) show(found.state);
    say(found.refused);
    return null;
  }
  if (!answer.ok) throw new Error(`the server says ${answer.status}`);
  return found;
}

async function act(wish) {
  try {
    const found = await ask("act", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(wish),
    });
    if (found) show(found);
    return found !== null;
  } catch (error) {
    say(`That did not reach the command (${error.message}). Is it still running?`);
    return false;
  }
}

async function listen() {
  for (;;) {
    try {
      show(await ask(`state?since=${state ? state.version : -1}`));
    } catch (error) {
      $("status").textContent = "not connected";
      $("status").className = "";
      await new Promise((go) => setTimeout(go, 1500));
    }
  }
}

function say(text) {
  $("message").textContent = text || "";
  $("message").hidden = !text;
}

// What is shown

function show(found) {
  if (!found || !found.shape || (state && found.version < state.version)) return;
  const before = state;
  state = found;
  if (!view) whole();
  $("status").textContent = state.status;
  $("status").className = state.status === "ready" ? "ready" : "";
  say(state.message.startsWith("saved") ? "" : state.message);
  $("saved").textContent = Object.values(state.saved).length
    ? `Written: ${Object.values(state.saved).join(", ")}` : "";
  $("n-labels").textContent = state.n_labels;
  $("n-skipped").textContent = state.n_skipped ? `, ${state.n_skipped} skipped` : "";
  $("file").textContent = state.file;
  if (state.scene) document.title = `${state.scene}: labels`;
  showAccuracy();
  if (!before || JSON.stringify(before.classes) !== JSON.stringify(state.classes)) showClasses();
  if (!before || before.look !== state.look) showLook();
  const question = state.question ? `${state.question.row} ${state.question.column}` : "";
  if (question && question !== lastQuestion) {
    lastQuestion = question;
    if (!polygon && !chosen) bring(state.question);
  }
  showTarget();
  draw();
}

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function showAccuracy() {
  const a = state.accuracy;
  $("accuracy").textContent = a
    ? `The map guessed ${a.right} of the last ${a.total} answers right, before it learned them. ` +
      "Questions are about uncertain pixels: the accuracy elsewhere is higher."
    : "The map has not guessed an answer yet.";
  const without = state.classes.filter((one) => !one.labels).map((one) => one.name);
  $("enough").textContent = state.change === null ? ""
    : `Ten more answers are expected to change ${percent(state.change)} of the map` +
      (state.enough ? ", so there are enough." : ".") +
      (without.length ? ` Without a label so far: ${without.join(", ")}.` : "");
  $("enough").className = state.enough ? "enough" : "";
}

function element(kind, text, attributes) {
  const made = document.createElement(kind);
  if (text) made.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  return made;
}

function swatch(color) {
  const made = element("span", "", { class: "swatch" });
  made.style.background = color;
  return made;
}

function showClasses() {
  const focused = document.activeElement && document.activeElement.dataset.class;
  const list = $("classes"), editor = $("class-list");
  list.replaceChildren();
  state.classes.forEach((one, i) => {
    const button = element("button", "", { "data-class": one.name, type: "button" });
    button.append(swatch(one.color), element("span", one.name));
    if (i < 9) button.append(element("kbd", String(i + 1)));
    button.append(element("span", String(one.labels), { class: "count" }));
    button.addEventListener("click", () => label(one.name));
    list.append(button);
    if (focused === one.name) button.focus();
  });
  if (!state.classes.length) list.append(element("span", "Add the first class below."));
  if (editor.contains(document.activeElement)) return;
  editor.replaceChildren();
  for (const one of state.classes) {
    const line = element("div");
    const name = element("input", "", { type: "text", maxlength: 60, "aria-label": `Name of ${one.name}` });
    const color = element("input", "", { type: "color", "aria-label": `Color of ${one.name}` });
    name.value = one.name;
    color.value = one.color;
    const change = () => {
      if (name.value.trim() === one.name && color.value === one.color) return;
      name.blur();
      color.blur();
      act({ do: "change", class: one.name, to: name.value, color: color.value });
    };
    name.addEventListener("change", change);
    color.addEventListener("change", change);
    const remove = element("button", "Remove", { type: "button" });
    remove.addEventListener("click", () => {
      const labels = one.labels ? ` and its ${one.labels} labels` : "";
      if (confirm(`Remove ${one.name}${labels}?`)) {
        remove.blur();
        act({ do: "remove", class: one.name });
      }
    });
    line.append(color, name, remove);
    editor.append(line);
  }
}

function showLook() {
  ["red", "green", "blue"].forEach((id, i) => {
    const select = $(id);
    if (!select.options.length) {
      state.band_names.forEach((name, band) => select.append(new Option(name, band)));
    }
    select.value = state.bands[i];
  });
  if (!$("stretch").options.length) {
    state.stretches.forEach((name) => $("stretch").append(new Option(name)));
  }
  $("stretch").value = state.stretch;
}

function whyAsked() {
  if (!state.n_labels) return "The first questions are spread over the scene.";
  const known = state.classes.filter((one) => one.labels).length;
  return known > 1 && state.has_map ? "Asked because the map is uncertain here."
    : "Asked because it differs most from the pixels labeled so far.";
}

// The target: what the next class is for

function target() {
  return chosen || (state && state.question);
}

function showTarget() {
  const at = target(), box = $("question"), busy = state.status !== "ready";
  for (const [name, value] of [["row", at && at.row], ["column", at && at.column]]) {
    if (at) box.dataset[name] = value;
    else delete box.dataset[name];
  }
  if (polygon) {
    $("asked").textContent = closed ? "Which class is in the polygon?" : "Draw a polygon";
    $("hint").textContent = closed ? "Up to 100 of its pixels, evenly spread, are labeled."
      : "Click its corners; Enter or a double click closes it.";
  } else if (at) {
    $("asked").textContent = `Which class is row ${at.row}, column ${at.column}?`;
    $("hint").textContent = chosen ? "You chose this pixel; Esc goes back to the question."
      : `${whyAsked()} A click on the scene chooses another pixel.`;
  } else {
    $("asked").textContent = busy ? "Please wait" : "No pixel is left to ask for";
    $("hint").textContent = "";
  }
  const usable = polygon ? closed : Boolean(at);
  for (const button of $("classes").querySelectorAll("button")) button.disabled = !usable;
  $("skip").disabled = $("another").disabled = Boolean(chosen || polygon || !state.question);
  $("undo").disabled = !state.can_undo;
  $("refit").disabled = busy;
  $("save").disabled = !state.n_labels || busy;
  $("polygon").setAttribute("aria-pressed", String(Boolean(polygon)));
  if (at && !polygon) wantSpectrum(at, chosen ? "chosen pixel" : "asked pixel");
}

async function label(name) {
  const at = target();
  if (polygon) {
    if (closed && await act({ do: "polygon", corners: polygon, class: name })) release();
  } else if (at) {
    const sent = { do: "label", row: at.row, column: at.column, class: name, asked: !chosen };
    if (await act(sent) && chosen) release();
  }
}

function release() {
  chosen = polygon = null;
  closed = false;
  showTarget();
  draw();
}

function choose(row, column) {
  const [height, width] = state.shape;
  if (row < 0 || column < 0 || row >= height || column >= width) return;
  chosen = { row, column };
  showTarget();
  draw();
}

function startPolygon() {
  if (polygon) return release();
  polygon = [];
  closed = false;
  chosen = null;
  showTarget();
  draw();
}

function closePolygon() {
  if (polygon && polygon.length >= 3) closed = true;
  showTarget();
  draw();
}

// The picture

function size() {
  return [canvas.clientWidth || 1, canvas.clientHeight || 1];
}

function whole() {
  const [width, height] = size(), [rows, columns] = state.shape;
  view = { x: columns / 2, y: rows / 2, zoom: Math.min(width / columns, height / rows) * 0.96 };
  isWhole = true;
}

function bring(pixel) {
  const [width, height] = size();
  const x = (pixel.column + 0.5 - view.x) * view.zoom, y = (pixel.row + 0.5 - view.y) * view.zoom;
  if (Math.abs(x) > width / 2 - 20 || Math.abs(y) > height / 2 - 20) {
    view.x = pixel.column + 0.5;
    view.y = pixel.row + 0.5;
    isWhole = false;
  }
}

function zoomBy(factor, x, y) {
  const [width, height] = size(), [rows, columns] = state.shape;
  const least = Math.min(width / columns, height / rows) * 0.5;
  const zoom = Math.min(CLOSEST, Math.max(least, view.zoom * factor));
  const dx = (x ?? width / 2) - width / 2, dy = (y ?? height / 2) - height / 2;
  view.x += dx / view.zoom - dx / zoom;
  view.y += dy / view.zoom - dy / zoom;
  view.zoom = zoom;
  isWhole = false;
  draw();
}

function pixelAt(event) {
  const box = canvas.getBoundingClientRect(), [width, height] = size();
  return [
    (event.clientY - box.top - height / 2) / view.zoom + view.y,
    (event.clientX - box.left - width / 2) / view.zoom + view.x,
  ];
}

function tile(layer, level, down, across) {
  const key = `${layer}/${level}/${down}/${across}`;
  const version = layer === "scene" ? state.look : state.map;
  let held = tiles.get(key);
  if (held) tiles.delete(key);
  else held = { image: null, wanted: null };
  tiles.set(key, held);
  if (held.wanted !== version) {
    held.wanted = version;
    const image = new Image();
    image.onload = () => { if (held.wanted === version) { held.image = image; draw(); } };
    image.onerror = () => setTimeout(() => { if (held.wanted === version) { held.wanted = null; draw(); } }, 3000);
    image.src = `tile/${key}?v=${version}`;
  }
  while (tiles.size > MOST_TILES) tiles.delete(tiles.keys().next().value);
  return held.image;
}

function drawLayer(layer, level, width, height) {
  const step = state.tile * 2 ** level, [rows, columns] = state.shape;
  const left = view.x - width / 2 / view.zoom, above = view.y - height / 2 / view.zoom;
  const to = (at, n) => Math.min(Math.ceil(n / step) - 1, Math.floor(at / step));
  const lastDown = to(above + height / view.zoom, rows), lastAcross = to(left + width / view.zoom, columns);
  for (let down = Math.max(0, Math.floor(above / step)); down <= lastDown; down++) {
    for (let across = Math.max(0, Math.floor(left / step)); across <= lastAcross; across++) {
      const image = tile(layer, level, down, across);
      if (!image) continue;
      const scale = 2 ** level * view.zoom;
      paint.drawImage(image, (across * step - left) * view.zoom, (down * step - above) * view.zoom,
        image.width * scale, image.height * scale);
    }
  }
}

let drawing = false;
function draw() {
  if (drawing || !state) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; drawNow(); });
}

function drawNow() {
  const [width, height] = size(), dense = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
  }
  paint.setTransform(dense, 0, 0, dense, 0, 0);
  paint.clearRect(0, 0, width, height);
  paint.imageSmoothingEnabled = view.zoom < 1;
  const level = Math.max(0, Math.min(state.top, Math.floor(Math.log2(1 / view.zoom) + 0.3)));
  const opacity = { scene: 1, map: $("opacity").value / 100, uncertainty: $("uncertainty").value / 100 };
  const covers = state.has_map && opacity.map > 0;
  const show = (layer) => {
    if (!opacity[layer] || !state.look || (layer !== "scene" && !state.has_map)) return;
    // The coarse picture is there at once; the fine one covers it. Where layers are transparent
    // both would show, so only whole ones are drawn twice.
    paint.globalAlpha = opacity[layer];
    if (level < state.top && opacity[layer] === 1) drawLayer(layer, state.top, width, height);
    drawLayer(layer, level, width, height);
  };
  show("scene");
  paint.save();
  if (covers) {
    leaveLens(width, height);
    // Gray below a transparent map: its colors stay those of the classes.
    paint.filter = "grayscale(1)";
    show("scene");
    paint.filter = "none";
  }
  LAYERS.slice(1).forEach(show);
  paint.restore();
  paint.globalAlpha = 1;
  drawMarks(width, height);
}

// Leave the picture uncovered around the pixel that a class is wanted for.
function leaveLens(width, height) {
  const at = polygon ? null : target();
  if (!at) return;
  const [x, y] = onScreen(at.row + 0.5, at.column + 0.5);
  paint.beginPath();
  paint.rect(0, 0, width, height);
  paint.arc(x, y, LENS, 0, 7);
  paint.clip("evenodd");
}

function onScreen(row, column) {
  const [width, height] = size();
  return [(column - view.x) * view.zoom + width / 2, (row - view.y) * view.zoom + height / 2];
}

function drawMarks() {
  const radius = Math.max(3, Math.min(6, view.zoom / 2));
  for (const [row, column, of] of state.labels) {
    const one = state.classes[of];
    if (!one) continue;
    const [x, y] = onScreen(row + 0.5, column + 0.5);
    paint.beginPath();
    paint.arc(x, y, radius, 0, 7);
    paint.fillStyle = one.color;
    paint.fill();
    paint.lineWidth = 1.5;
    paint.strokeStyle = "#fff";
    paint.stroke();
  }
  const at = target();
  if (at && !polygon) {
    const [x, y] = onScreen(at.row, at.column), side = Math.max(view.zoom, 2);
    for (const [color, wide] of [["#000", 5], ["#ffea00", 2.5]]) {
      paint.strokeStyle = color;
      paint.lineWidth = wide;
      paint.strokeRect(x, y, side, side);
      paint.beginPath();
      paint.arc(x + side / 2, y + side / 2, side / 2 + 12, 0, 7);
      paint.stroke();
    }
  }
  if (polygon && polygon.length) {
    paint.beginPath();
    polygon.forEach(([row, column]) => paint.lineTo(...onScreen(row, column)));
    if (closed) paint.closePath();
    for (const [color, wide] of [["#000", 4], ["#ffea00", 2]]) {
      paint.strokeStyle = color;
      paint.lineWidth = wide;
      paint.stroke();
    }
  }
}

// The spectrum

let pending = null, spectrumOf = "";
function wantSpectrum(at, text) {
  const key = `${at.row} ${at.column} ${state.n_labels}`;
  if (key === spectrumOf) return;
  spectrumOf = key;
  clearTimeout(pending);
  pending = setTimeout(async () => {
    try {
      const found = await ask(`spectrum?row=${at.row}&column=${at.column}`);
      if (spectrumOf !== key || !found) return;
      spectrum = found;
      $("spectrum-of").textContent = `Spectrum of the ${text} (row ${at.row}, column ${at.column}, ` +
        "black), and means of the classes";
      drawSpectrum();
    } catch (error) { spectrumOf = ""; }
  }, 120);
}

function drawSpectrum() {
  const place = $("spectrum"), dense = window.devicePixelRatio || 1;
  const width = place.clientWidth, height = place.clientHeight, pen = place.getContext("2d");
  place.width = width * dense;
  place.height = height * dense;
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  if (!spectrum) return;
  const lines = state.classes.filter((one) => spectrum.classes[one.name])
    .map((one) => [spectrum.classes[one.name], one.color, 1.5]);
  if (spectrum.values) lines.push([spectrum.values, "#000", 2.5]);
  const all = lines.flatMap(([values]) => values).filter(Number.isFinite);
  if (!all.length) return;
  const low = Math.min(...all), high = Math.max(...all), count = lines[0][0].length;
  const x = (i) => 6 + (width - 12) * (count > 1 ? i / (count - 1) : 0.5);
  const y = (value) => height - 22 - (height - 32) * (high > low ? (value - low) / (high - low) : 0.5);
  pen.strokeStyle = "#d5d9e0";
  pen.strokeRect(0.5, 4.5, width - 1, height - 22);
  for (const [values, color, wide] of lines) {
    pen.beginPath();
    values.forEach((value, i) => Number.isFinite(value) && pen.lineTo(x(i), y(value)));
    pen.strokeStyle = color;
    pen.lineWidth = wide;
    pen.stroke();
  }
  pen.fillStyle = "#59636f";
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "bottom";
  pen.fillText(state.band_names[0], 2, height);
  pen.textAlign = "right";
  pen.fillText(state.band_names[count - 1], width - 2, height);
}

// Hands

let held = null;
canvas.addEventListener("pointerdown", (event) => {
  if (!state) return;
  canvas.setPointerCapture(event.pointerId);
  held = { x: event.clientX, y: event.clientY, view: { ...view }, moved: false };
});
canvas.addEventListener("pointermove", (event) => {
  if (!state) return;
  const [row, column] = pixelAt(event).map(Math.floor);
  const inside = row >= 0 && column >= 0 && row < state.shape[0] && column < state.shape[1];
  $("where").textContent = inside ? `row ${row}, column ${column}` : "";
  if (!held) {
    if (inside && event.pointerType === "mouse") wantSpectrum({ row, column }, "pixel under the cursor");
    return;
  }
  const dx = event.clientX - held.x, dy = event.clientY - held.y;
  if (Math.hypot(dx, dy) > 4) held.moved = true;
  if (held.moved) {
    isWhole = false;
    view.x = held.view.x - dx / view.zoom;
    view.y = held.view.y - dy / view.zoom;
    draw();
  }
});
canvas.addEventListener("pointerup", (event) => {
  if (held && !held.moved) {
    const at = pixelAt(event);
    if (polygon && !closed) polygon.push(at);
    else if (!polygon) choose(...at.map(Math.floor));
    draw();
  }
  held = null;
});
canvas.addEventListener("pointercancel", () => { held = null; });
canvas.addEventListener("pointerleave", () => { if (state && target() && !held) showTarget(); });
canvas.addEventListener("dblclick", () => { if (polygon) closePolygon(); });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  if (state) zoomBy(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });

$("skip").addEventListener("click", () => state.question && act({ do: "skip", ...state.question }));
$("another").addEventListener("click", () => state.question && act({ do: "another", ...state.question }));
$("undo").addEventListener("click", () => act({ do: "undo" }));
$("refit").addEventListener("click", () => act({ do: "refit" }));
$("save").addEventListener("click", () => act({ do: "save" }));
$("closer").addEventListener("click", () => zoomBy(1.6));
$("farther").addEventListener("click", () => zoomBy(1 / 1.6));
$("whole").addEventListener("click", () => { whole(); draw(); });
$("near").addEventListener("click", toTarget);
$("polygon").addEventListener("click", startPolygon);
for (const id of ["opacity", "uncertainty"]) $(id).addEventListener("input", draw);
for (const id of ["red", "green", "blue", "stretch"]) {
  $(id).addEventListener("change", () => act({
    do: "look", bands: ["red", "green", "blue"].map((one) => Number($(one).value)),
    stretch: $("stretch").value,
  }));
}
$("new-class").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await act({ do: "add", class: $("class-name").value })) $("class-name").value = "";
});

let opacityBefore = 100;
function toggleMap() {
  const slider = $("opacity"), now = Number(slider.value);
  slider.value = now ? 0 : opacityBefore;
  if (now) opacityBefore = now;
  draw();
}

function toTarget() {
  const at = target();
  if (!at) return;
  view = { x: at.column + 0.5, y: at.row + 0.5, zoom: Math.max(view.zoom, 8) };
  isWhole = false;
  draw();
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input[type=text], input:not([type]), select, input[type=range]");
  if (!state || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key];
  if (arrow && event.target === canvas) {
    event.preventDefault();
    if (event.shiftKey) {
      view.y += arrow[0] * 60 / view.zoom;
      view.x += arrow[1] * 60 / view.zoom;
      return draw();
    }
    const at = target() || { row: Math.floor(view.y), column: Math.floor(view.x) };
    choose(at.row + arrow[0], at.column + arrow[1]);
    return bring(target());
  }
  if (event.key >= "1" && event.key <= "9") {
    const one = state.classes[Number(event.key) - 1];
    if (one) label(one.name);
    return;
  }
  const keys = {
    s: () => $("skip").click(), a: () => $("another").click(), u: () => $("undo").click(),
    r: () => $("refit").click(), m: toggleMap, p: startPolygon, z: toTarget, Escape: release,
    "+": () => zoomBy(1.6), "=": () => zoomBy(1.6), "-": () => zoomBy(1 / 1.6),
    0: () => { whole(); draw(); },
  };
  if (event.key === "Enter" && polygon && event.target === canvas) return closePolygon();
  if (keys[event.key]) keys[event.key]();
});
new ResizeObserver(() => {
  if (state && isWhole) whole();
  draw();
  drawSpectrum();
}).observe(canvas);
listen();
