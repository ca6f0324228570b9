// Draws the record of a block. Whatever comes from the student goes in as text, never as markup.
function tilelabTrace(root, data) {
  "use strict";
  const NOTHING = 0xffffffff;
  const GAP = 4; // pixels around a picture, for the outlines of what is touched
  const words = data.words;
  let current = 0;

  function make(tag, name, parent, text) {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function fill(text, values) {
    return text.replace(/\{(\w+)\}/g, (whole, key) => (key in values ? String(values[key]) : whole));
  }

  function decode(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return { values: new Float32Array(bytes.buffer), bits: new Uint32Array(bytes.buffer) };
  }

  function number(value) {
    if (Number.isNaN(value)) return "NaN";
    if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
    return String(Number(value.toPrecision(4)));
  }

  // The theme, from the colour of the text.
  function isDark() {
    const parts = (getComputedStyle(root).color.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
    return parts[0] + parts[1] + parts[2] > 382;
  }

  function palette() {
    const style = getComputedStyle(root);
    const dark = isDark();
    return {
      dark: dark,
      read: style.getPropertyValue("--tlt-read").trim(),
      write: style.getPropertyValue("--tlt-write").trim(),
      middle: dark ? [44, 44, 48] : [246, 246, 244],
      low: dark ? [92, 160, 235] : [33, 102, 172],
      high: dark ? [240, 150, 90] : [178, 75, 20],
      empty: dark ? "#1b1b1d" : "#ffffff",
      hatch: dark ? "#4a4a4e" : "#cfcfcf",
      frame: dark ? "#8a8a8e" : "#8a8a8a",
      text: dark ? "#f0f0f0" : "#1a1a1a",
      contrast: dark ? "#101010" : "#ffffff",
      odd: dark ? "#ff5fd2" : "#b0008a",
    };
  }

  function colour(value, range, colours) {
    const reach = Math.max(Math.abs(range[0]), Math.abs(range[1])) || 1;
    const part = Math.max(-1, Math.min(1, value / reach));
    const end = part < 0 ? colours.low : colours.high;
    const strength = Math.pow(Math.abs(part), 0.8);
    const mixed = colours.middle.map((base, i) => Math.round(base + (end[i] - base) * strength));
    return { css: "rgb(" + mixed.join(",") + ")", strong: strength > 0.55 };
  }

  // Infinities have the colours of the ends, and are hatched; NaN has one of its own.
  function shadeOf(value, range, colours) {
    if (Number.isNaN(value)) return { css: colours.odd, strong: true };
    if (Number.isFinite(value)) return colour(value, range, colours);
    return { css: "rgb(" + (value < 0 ? colours.low : colours.high).join(",") + ")", strong: true };
  }

  function strangers(picture) {
    if (picture.cells === null) return "";
    const cells = decode(picture.cells);
    const found = new Set();
    cells.values.forEach((value, i) => {
      if (cells.bits[i] !== NOTHING && !Number.isFinite(value)) found.add(number(value));
    });
    return found.size ? fill(words.has, { values: Array.from(found).sort().join(", ") }) : "";
  }

  function prepare(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = width + "px";
    canvas.style.height = "auto";
    canvas.style.aspectRatio = width + " / " + height;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    return context;
  }

  function hatch(context, x, y, width, height, css, step) {
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.strokeStyle = css;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = -height; at < width; at += step) {
      context.moveTo(x + at, y + height);
      context.lineTo(x + at + height, y);
    }
    context.stroke();
    context.restore();
  }

  function outline(context, kind, x, y, width, height, colours) {
    context.save();
    if (kind === "read") {
      context.strokeStyle = colours.read;
      context.lineWidth = 2;
      context.setLineDash([5, 3]);
      context.strokeRect(x + 1, y + 1, Math.max(width - 2, 1), Math.max(height - 2, 1)); // inside: both may be seen
    } else {
      context.strokeStyle = colours.write;
      context.lineWidth = 3;
      context.strokeRect(x - 2, y - 2, width + 4, height + 4);
    }
    context.restore();
  }

  // The whole of a global buffer, with the boxes that are touched now, and earlier.

  function drawWhole(canvas, number, colours) {
    const buffer = data.buffers[number];
    const [rows, columns] = buffer.size;
    const most = Math.max(...data.buffers.filter((b) => b.global).map((b) => Math.max(...b.size)));
    const unit = 200 / most;
    const width = Math.max(columns * unit, 26);
    const height = Math.max(rows * unit, 26);
    const context = prepare(canvas, width + 2 * GAP, height + 2 * GAP);
    context.fillStyle = colours.empty;
    context.fillRect(GAP, GAP, width, height);
    const place = (box) => {
      const x = GAP + (box[1][0] / columns) * width;
      const y = GAP + (box[0][0] / rows) * height;
      return [x, y, Math.max(((box[1][1] - box[1][0]) / columns) * width, 3),
        Math.max(((box[0][1] - box[0][0]) / rows) * height, 3)];
    };
    const touches = (step) => step.touches.filter((touch) => touch.buffer === number);
    for (let i = 0; i < current; i++) {
      for (const touch of touches(data.steps[i])) {
        context.fillStyle = colours.hatch;
        context.globalAlpha = 0.6;
        context.fillRect(...place(touch.box));
        context.globalAlpha = 1;
      }
    }
    context.strokeStyle = colours.frame;
    context.lineWidth = 1;
    context.strokeRect(GAP - 0.5, GAP - 0.5, width + 1, height + 1);
    for (const touch of touches(data.steps[current])) {
      const box = place(touch.box);
      if (touch.kind === "read") {
        hatch(context, ...box, colours.read, 5);
      } else {
        context.fillStyle = colours.write;
        context.globalAlpha = 0.45;
        context.fillRect(...box);
        context.globalAlpha = 1;
      }
      outline(context, touch.kind, ...box, colours);
    }
  }

  // A tile, or a region: its values as colours, and as numbers where they fit.

  function drawValues(canvas, picture, range, touches, colours) {
    const [rows, columns] = picture.size;
    const small = rows <= 16 && columns <= 12;
    const cellWidth = small ? 46 : Math.max(3, Math.min(14, Math.floor(210 / Math.max(rows, columns))));
    const cellHeight = small ? 20 : rows === 1 ? 24 : cellWidth;
    const width = columns * cellWidth;
    const height = rows * cellHeight;
    const context = prepare(canvas, width + 2 * GAP, height + 2 * GAP);
    const cells = picture.cells === null ? null : decode(picture.cells);
    context.font = "11px " + (getComputedStyle(root).getPropertyValue("--jp-code-font-family") || "monospace");
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colours.empty;
    context.fillRect(GAP, GAP, width, height);
    hatch(context, GAP, GAP, width, height, colours.hatch, 6);
    for (let i = 0; cells && i < cells.values.length; i++) {
      if (cells.bits[i] === NOTHING) continue;
      const x = GAP + (i % columns) * cellWidth;
      const y = GAP + Math.floor(i / columns) * cellHeight;
      const value = cells.values[i];
      const shade = shadeOf(value, range, colours);
      context.fillStyle = shade.css;
      context.fillRect(x, y, cellWidth, cellHeight);
      if (!Number.isFinite(value) && !Number.isNaN(value)) {
        hatch(context, x, y, cellWidth, cellHeight, colours.contrast, 4);
      }
      if (small) {
        context.fillStyle = shade.strong ? colours.contrast : colours.text;
        context.fillText(number(value), x + cellWidth / 2, y + cellHeight / 2 + 0.5, cellWidth - 4);
      }
    }
    context.strokeStyle = colours.frame;
    context.lineWidth = 1;
    context.strokeRect(GAP - 0.5, GAP - 0.5, width + 1, height + 1);
    for (const touch of touches) {
      const box = touch.box.map((side, axis) => {
        const every = picture.every[axis];
        const low = Math.floor(side[0] / every);
        return [low, Math.max(Math.min(Math.ceil(side[1] / every), picture.size[axis]), low + 1)];
      });
      const y = GAP + box[0][0] * cellHeight;
      const x = GAP + box[1][0] * cellWidth;
      outline(context, touch.kind, x, y, (box[1][1] - box[1][0]) * cellWidth, (box[0][1] - box[0][0]) * cellHeight,
        colours);
    }
    canvas.tilelabCell = (event) => {
      const shown = canvas.getBoundingClientRect();
      const scale = (width + 2 * GAP) / shown.width;
      const column = Math.floor(((event.clientX - shown.left) * scale - GAP) / cellWidth);
      const row = Math.floor(((event.clientY - shown.top) * scale - GAP) / cellHeight);
      if (row < 0 || column < 0 || row >= rows || column >= columns) return null;
      let rest = row * picture.every[0];
      const index = [column * picture.every[1]];
      for (let axis = picture.shape.length - 2; axis >= 0; axis--) {
        index.unshift(rest % picture.shape[axis]);
        rest = Math.floor(rest / picture.shape[axis]);
      }
      const at = row * columns + column;
      const known = cells !== null && cells.bits[at] !== NOTHING;
      return {
        index: index.map((here, axis) => here + picture.start[axis]),
        value: known ? number(cells.values[at]) : null,
      };
    };
  }

  function emptyTile(buffer) {
    const every = buffer.size.map((size) => Math.ceil(size / 48));
    return {
      cells: null,
      size: buffer.size.map((size, axis) => Math.ceil(size / every[axis])),
      every: every,
      shape: buffer.shape,
      start: buffer.shape.map(() => 0),
    };
  }

  // The tile as the last write up to this step left it.
  function tileAt(number) {
    for (let i = current; i >= 0; i--) {
      for (const touch of data.steps[i].touches) {
        if (touch.buffer === number && touch.kind === "written" && touch.picture) return touch.picture;
      }
    }
    return emptyTile(data.buffers[number]);
  }

  // The page

  root.textContent = "";
  root.setAttribute("data-lm-suppress-shortcuts", "true"); // in JupyterLab, arrow keys here are the slider's
  make("strong", "", make("div", "", root), data.title);
  if (data.faults.length) {
    const box = make("div", "tlt-faults", root);
    make("strong", "", box, words.faults);
    for (const fault of data.faults) make("div", "", box, fault);
  }
  const controls = make("div", "tlt-controls", root);
  const back = make("button", "", controls, "◀");
  const slider = make("input", "", controls);
  const forward = make("button", "", controls, "▶");
  const count = make("span", "tlt-count", controls);
  back.title = words.previous;
  back.setAttribute("aria-label", words.previous);
  forward.title = words.next;
  forward.setAttribute("aria-label", words.next);
  slider.type = "range";
  slider.min = "1";
  slider.max = String(Math.max(data.steps.length, 1));
  slider.setAttribute("aria-label", words.slider);
  const what = make("div", "tlt-what", root);
  what.setAttribute("aria-live", "polite");
  const code = make("div", "tlt-statement", what);
  const variables = make("div", "tlt-vars", what);
  const body = make("div", "", root);
  const lines = [];
  if (data.source.length) {
    const source = make("div", "tlt-source", body);
    const indents = data.source.filter((l) => l.text.trim()).map((l) => l.text.length - l.text.trimStart().length);
    const indent = Math.min(...indents);
    for (const line of data.source) {
      const row = make("div", "", source);
      make("span", "tlt-number", row, String(line.number));
      make("span", "", row, line.text.slice(indent) || " ");
      lines.push(row);
    }
  }
  const panels = make("div", "tlt-panels", body);

  function panel(number, row) {
    const buffer = data.buffers[number];
    const box = make("div", "tlt-panel", row);
    make("div", "tlt-name", box, buffer.name);
    make("div", "tlt-about", box, buffer.about);
    return {
      number: number,
      whole: buffer.global ? make("canvas", "", box) : null,
      mark: make("div", "tlt-mark", box),
      values: make("canvas", "", box),
      hover: make("div", "tlt-hover", box),
    };
  }

  const all = [];
  for (const isGlobal of [true, false]) {
    const numbers = data.buffers.map((b, i) => i).filter((i) => data.buffers[i].global === isGlobal);
    if (!numbers.length) continue;
    const group = make("div", "tlt-group", panels, isGlobal ? words.global : words.tiles);
    if (isGlobal) make("span", "tlt-about", group, " (" + words.earlier + ")");
    const row = make("div", "tlt-row", panels);
    for (const number of numbers) all.push(panel(number, row));
  }
  for (const item of all) {
    const say = (event) => {
      const cell = item.values.tilelabCell ? item.values.tilelabCell(event) : null;
      item.hover.textContent = cell === null ? item.resting || "" : data.buffers[item.number].name + "["
        + cell.index.join(", ") + "] " + (cell.value === null ? "– " + words.unwritten : "= " + cell.value);
    };
    item.values.addEventListener("mousemove", say);
    item.values.addEventListener("mouseleave", () => { item.hover.textContent = item.resting || ""; });
  }
  for (const note of data.notes) make("div", "tlt-notes", root, note);

  function show() {
    const step = data.steps[current];
    const colours = palette();
    count.textContent = fill(words.step, { number: current + 1, all: data.steps.length });
    slider.value = String(current + 1);
    back.disabled = current === 0;
    forward.disabled = current === data.steps.length - 1;
    code.textContent = step.text;
    variables.textContent = [step.place, step.variables].filter((text) => text).join(" · ");
    lines.forEach((row, i) => row.classList.toggle("tlt-here", i === step.line));
    if (step.line >= 0) {
      const source = lines[step.line].parentNode;
      const offset = lines[step.line].offsetTop - source.offsetTop;
      if (offset < source.scrollTop || offset > source.scrollTop + source.clientHeight - 40) {
        source.scrollTop = offset - source.clientHeight / 2;
      }
    }
    for (const item of all) {
      const touches = step.touches.filter((touch) => touch.buffer === item.number);
      item.mark.textContent = "";
      for (const touch of touches) {
        make("span", "tlt-is-" + touch.kind, item.mark, words[touch.kind] + ": " + touch.place);
      }
      let picture = null;
      if (item.whole) {
        drawWhole(item.whole, item.number, colours);
        const shown = touches.filter((touch) => touch.picture);
        picture = shown.length ? shown[shown.length - 1].picture : null;
      } else {
        picture = tileAt(item.number);
      }
      item.values.style.display = picture ? "block" : "none";
      item.resting = "";
      if (picture) {
        drawValues(item.values, picture, data.buffers[item.number].range, item.whole ? [] : touches, colours);
        const range = data.buffers[item.number].range;
        const parts = [];
        if (range[0] !== range[1]) parts.push(fill(words.range, { low: number(range[0]), high: number(range[1]) }));
        if (Math.max(...picture.every) > 1) {
          parts.push(fill(words.every, { rows: picture.every[0], columns: picture.every[1] }));
        }
        const strange = strangers(picture);
        if (strange) parts.splice(1, 0, strange);
        item.resting = parts.join("\n");
      } else {
        item.values.tilelabCell = null;
      }
      item.hover.textContent = item.resting;
      item.hover.style.display = picture ? "block" : "none";
    }
  }

  function go(to) {
    current = Math.max(0, Math.min(data.steps.length - 1, to));
    show();
  }

  if (!data.steps.length) {
    controls.remove();
    body.remove();
    what.textContent = words.nothing;
    return;
  }
  slider.addEventListener("input", () => go(Number(slider.value) - 1));
  // JupyterLab keeps a slider from moving by itself when it takes a key for one of its own.
  const keys = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
  slider.addEventListener("keydown", (event) => {
    const far = { Home: 0, End: data.steps.length - 1 }[event.key];
    if (far === undefined && !(event.key in keys)) return;
    event.preventDefault();
    event.stopPropagation();
    go(far === undefined ? current + keys[event.key] : far);
  });
  back.addEventListener("click", () => go(current - 1));
  forward.addEventListener("click", () => go(current + 1));
  const theme = new MutationObserver(() => show());
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  show();
}
