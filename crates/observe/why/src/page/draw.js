// Colours and patterns of kinds. A kind has a colour, a pattern and a letter, so it can be told without colours.
const PATTERNS = {
  runs: [], library: [[2, 6, 2, 6], [6, 2, 6, 2]], preempted: [[0, 8, 8, 0]], queued: [[0, 0, 8, 8]],
  sleeps: [[0, 4, 8, 4]], executor: [[4, 0, 4, 8]], transport: [[0, 8, 8, 0], [0, 0, 8, 8]],
  inputs: [[0, 2, 8, 2], [0, 6, 8, 6]], timer: [[2, 0, 2, 8], [6, 0, 6, 8]], stolen: [[0, 4, 8, 4], [4, 0, 4, 8]],
  held: [[0, 2, 8, 2], [0, 4, 8, 4], [0, 6, 8, 6]],
  throttled: [[0, 1, 8, 1], [4, 1, 4, 8]], unknown: [[0, 4, 4, 0], [4, 8, 8, 4]],
};
let theme = {};

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  theme = Object.fromEntries(['page', 'ink', 'soft', 'line', 'grid', 'panel', 'accent', 'late', 'point', 'mark'].map((n) => [n, of(n)]));
  theme.colours = data.kinds.map((kind) => of(`k-${kind.key}`));
  theme.patterns = data.kinds.map((kind, k) => {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const pen = tile.getContext('2d');
    pen.fillStyle = theme.colours[k];
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = theme.page;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1.4;
    pen.beginPath();
    for (const [x0, y0, x1, y1] of PATTERNS[kind.key] || []) {
      pen.moveTo(x0, y0);
      pen.lineTo(x1, y1);
    }
    pen.stroke();
    return pen.createPattern(tile, 'repeat');
  });
}

// The pattern of a kind with its letter, as a small picture for legends and tables.
function swatch(kind) {
  const canvas = document.createElement('canvas');
  const scale = window.devicePixelRatio || 1;
  canvas.width = canvas.height = 16 * scale;
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  pen.fillStyle = theme.patterns[kind];
  pen.fillRect(0, 0, 16, 16);
  letter(pen, kind, 8, 8);
  canvas.setAttribute('aria-hidden', 'true');
  return canvas;
}

function letter(pen, kind, x, y) {
  pen.font = 'bold 10px sans-serif';
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  pen.lineWidth = 3;
  pen.strokeStyle = theme.page;
  pen.strokeText(data.kinds[kind].letter, x, y + 0.5);
  pen.fillStyle = theme.ink;
  pen.fillText(data.kinds[kind].letter, x, y + 0.5);
}

// Prepares a canvas of its width and this height for drawing, and returns its pen and width.
function begin(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = Math.max(200, canvas.clientWidth);
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.globalAlpha = 1;
  pen.fillStyle = theme.page;
  pen.fillRect(0, 0, width, height);
  return [pen, width];
}

// A step of an axis with about `count` steps in `range`: 1, 2 or 5 times a power of ten.
function step(range, count) {
  const raw = range / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].find((m) => m * power >= raw) * power;
}

function timeAxis(pen, view, left, right, top, bottom, label) {
  const size = step(view.hi - view.lo, (right - left) / 110);
  pen.font = '11px sans-serif';
  pen.textAlign = 'center';
  pen.textBaseline = 'top';
  for (let t = Math.ceil(view.lo / size) * size; t <= view.hi; t += size) {
    const x = left + ((t - view.lo) / (view.hi - view.lo)) * (right - left);
    pen.fillStyle = theme.grid;
    pen.fillRect(Math.round(x), top, 1, bottom - top);
    pen.fillStyle = theme.soft;
    const text = label(t, size), half = pen.measureText(text).width / 2;
    if (x + half < right + 8) pen.fillText(text, x, bottom + 4);
  }
}

function seconds(ns, size) {
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(size / 1e9) + 1e-9)));
  return `${(ns / 1e9).toFixed(digits)} s`;
}

function fitted(pen, text, width) {
  let limit = Math.max(4, Math.floor(width / 5.2));
  let shown = shorten(text, limit);
  while (limit > 4 && pen.measureText(shown).width > width) shown = shorten(text, --limit);
  return shown;
}

// Draws stretches of one share from `x(time)`, merged to at least a pixel. `alpha(s)` dims stretches.
function drawStretches(pen, from, to, begin, x, y, height, clip, alpha) {
  let at = begin, kind = -1, left = 0, dim = 1;
  const sums = new Map();
  const flush = (right) => {
    if (right > clip[0] && left < clip[1]) {
      let best = 0;
      for (const [k, ns] of sums) if (ns > best) [kind, best] = [k, ns];
      const a = Math.max(left, clip[0]), b = Math.min(right, clip[1]), width = Math.max(1, b - a);
      pen.globalAlpha = dim;
      pen.fillStyle = width >= 4 && height >= 5 ? theme.patterns[kind] : theme.colours[kind];
      pen.fillRect(a, y, width, height);
      pen.globalAlpha = 1;
      if (width >= 14 && height >= 11) letter(pen, kind, (a + b) / 2, y + height / 2);
    }
    sums.clear();
  };
  for (let s = from; s < to; s++) {
    const k = data.causes[stretchCause[s]][KIND], opacity = alpha(s);
    const here = x(at);
    if (sums.size > 0 && (here - left >= 1) && (!sums.has(k) || opacity !== dim)) flush(here);
    if (sums.size === 0) [left, dim] = [here, opacity];
    // Within a pixel, the stretches that the filter found cover the others.
    if (opacity > dim) {
      sums.clear();
      dim = opacity;
    }
    if (opacity === dim) sums.set(k, (sums.get(k) || 0) + stretchNs[s]);
    at += stretchNs[s];
  }
  if (sums.size > 0) flush(x(at));
}
