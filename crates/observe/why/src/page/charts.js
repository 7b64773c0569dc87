// The part of time that charts show, and the ways to move it.
class View {
  constructor(lo, hi, changed) {
    Object.assign(this, { lo, hi, min: lo, max: hi, changed });
  }

  set(lo, hi) {
    const least = Math.max(1, (this.max - this.min) * 1e-9), all = this.max - this.min;
    if (!Number.isFinite(lo) || !Number.isFinite(hi)) return;
    const size = Math.min(all, Math.max(Math.max(1000, least), hi - lo));
    this.lo = Math.min(Math.max(lo, this.min), this.max - size);
    this.hi = this.lo + size;
    this.changed();
  }

  zoom(factor, around) {
    const size = (this.hi - this.lo) * factor, share = (around - this.lo) / (this.hi - this.lo);
    this.set(around - size * share, around + size * (1 - share));
  }

  pan(share) {
    const by = (this.hi - this.lo) * share;
    this.set(this.lo + by, this.hi + by);
  }

  all() {
    this.set(this.min, this.max);
  }

  // Handles a key; reports whether it was one of its own.
  key(event) {
    const middle = (this.lo + this.hi) / 2;
    if (event.key === '+' || event.key === '=') this.zoom(0.6, middle);
    else if (event.key === '-' || event.key === '_') this.zoom(1 / 0.6, middle);
    else if (event.key === '0') this.all();
    else if (event.shiftKey && event.key === 'ArrowLeft') this.pan(-0.2);
    else if (event.shiftKey && event.key === 'ArrowRight') this.pan(0.2);
    else return false;
    return true;
  }
}

// Zooms by the wheel and pans by dragging. `area()` returns the left and the right end of the time axis in pixels.
function attach(canvas, view, area, hooks) {
  let drag = null;
  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const time = (x) => {
    const [left, right] = area();
    return view.lo + ((x - left) / (right - left)) * (view.hi - view.lo);
  };
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) view.pan(Math.sign(sideways) * 0.08);
    else view.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), time(where(event)[0]));
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    drag = { x: where(event)[0], lo: view.lo, hi: view.hi, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = where(event);
    if (!drag) {
      tip(hooks.hover(x, y, time(x)), event);
      return;
    }
    drag.moved = drag.moved || Math.abs(x - drag.x) > 4;
    if (drag.moved) {
      const [left, right] = area(), by = ((drag.x - x) / (right - left)) * (drag.hi - drag.lo);
      tip('', event);
      view.set(drag.lo + by, drag.hi + by);
    }
  });
  canvas.addEventListener('pointerup', (event) => {
    const [x, y] = where(event);
    if (drag && !drag.moved) hooks.click(x, y, time(x));
    drag = null;
  });
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('pointerleave', (event) => tip('', event));
  canvas.addEventListener('dblclick', () => view.all());
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (view.key(event) || hooks.key(event)) event.preventDefault();
  });
}

function tip(text, event) {
  const box = document.getElementById('tip');
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const room = window.innerWidth - box.offsetWidth - 16;
  box.style.left = `${Math.max(8, Math.min(event.clientX + 14, room))}px`;
  const below = event.clientY + 18;
  box.style.top = `${below + box.offsetHeight > window.innerHeight ? Math.max(4, event.clientY - box.offsetHeight - 10) : below}px`;
}

const latencyCanvas = document.getElementById('latency');
const flowCanvas = document.getElementById('flow');
const LATENCY_HEIGHT = 210;
const AXIS = 24;
const [LATENCY_TOP, FLOW_TOP] = [14, 16];

function gutter(width) {
  return Math.max(90, Math.min(300, Math.round(width * 0.2)));
}

function areaOf(canvas) {
  const width = Math.max(200, canvas.clientWidth);
  return [gutter(width), width - 14];
}

function rowHeight() {
  return Math.max(22, Math.min(56, LEVELS * 14 + 8));
}

function flowHeight() {
  return FLOW_TOP + data.places.length * (rowHeight() + 6) + AXIS;
}

function yOfLatency(ns) {
  const top = Math.max(data.longest_ns, LONGEST, 1) * 1.06;
  return LATENCY_HEIGHT - AXIS - (ns / top) * (LATENCY_HEIGHT - AXIS - LATENCY_TOP);
}

function triangle(pen, x, y, size) {
  pen.beginPath();
  pen.moveTo(x, y - size);
  pen.lineTo(x + size * 0.9, y + size * 0.7);
  pen.lineTo(x - size * 0.9, y + size * 0.7);
  pen.fill();
}

function drawLatency(view, state) {
  const [pen, width] = begin(latencyCanvas, LATENCY_HEIGHT);
  const [left, right] = areaOf(latencyCanvas), bottom = LATENCY_HEIGHT - AXIS;
  const x = (t) => left + ((t - view.lo) / (view.hi - view.lo)) * (right - left);
  timeAxis(pen, view, left, right, LATENCY_TOP, bottom, seconds);
  pen.font = '11px sans-serif';
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  const size = step(Math.max(data.longest_ns, 1) * 1.06, 4);
  for (let ns = 0; yOfLatency(ns) > LATENCY_TOP; ns += size) {
    pen.fillStyle = theme.grid;
    pen.fillRect(left, Math.round(yOfLatency(ns)), right - left, 1);
    pen.fillStyle = theme.soft;
    pen.fillText(duration(ns), left - 8, yOfLatency(ns));
  }
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, right - left + 1, LATENCY_HEIGHT);
  pen.clip();
  // Executions without stretches show as the range from the shortest to the longest.
  pen.fillStyle = theme.grid;
  for (const [at, , least, most] of data.left_out > 0 ? data.overview.bins : []) {
    const a = x(at), b = Math.max(a + 2, x(at + data.overview.width_ns));
    if (b < left || a > right) continue;
    pen.fillRect(a, yOfLatency(most) - 1, b - a, yOfLatency(least) - yOfLatency(most) + 2);
  }
  pen.strokeStyle = theme.late;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  pen.moveTo(left, Math.round(yOfLatency(data.limit_ns)) + 0.5);
  pen.lineTo(right, Math.round(yOfLatency(data.limit_ns)) + 0.5);
  pen.stroke();
  pen.setLineDash([]);
  const to = firstFrom(view.hi);
  for (const late of [0, 1]) {
    for (let i = firstFrom(view.lo); i < to; i++) {
      if (isLate[i] !== late || (filter.onlyLate && !late)) continue;
      pen.globalAlpha = matches[i] ? 1 : 0.18;
      const px = x(starts[i]), py = yOfLatency(latencies[i]);
      pen.fillStyle = late ? theme.late : theme.point;
      if (!late) {
        pen.fillRect(px - 1.5, py - 1.5, 3, 3);
        continue;
      }
      triangle(pen, px, py, 5);
    }
  }
  pen.globalAlpha = 1;
  for (const [i, colour] of [[state.cursor, theme.soft], [state.selected, theme.accent]]) {
    if (i < 0) continue;
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x(starts[i]), yOfLatency(latencies[i]), 8, 0, 2 * Math.PI);
    pen.stroke();
  }
  pen.restore();
  pen.fillStyle = theme.late;
  pen.font = '11px sans-serif';
  pen.textAlign = 'right';
  pen.textBaseline = 'bottom';
  pen.fillText('▲ late', width - 18, LATENCY_TOP + 2);
}

function drawFlow(view, state) {
  const [pen] = begin(flowCanvas, flowHeight());
  const [left, right] = areaOf(flowCanvas), row = rowHeight(), bottom = flowHeight() - AXIS;
  const scale = (right - left) / (view.hi - view.lo), x = (t) => left + (t - view.lo) * scale;
  const height = Math.min(18, (row - 6) / LEVELS);
  const y = (place, level) => FLOW_TOP + place * (row + 6) + 3 + level * ((row - 6) / LEVELS);
  timeAxis(pen, view, left, right, FLOW_TOP, bottom, seconds);
  pen.font = '12px sans-serif';
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  data.places.forEach((name, place) => {
    const top = FLOW_TOP + place * (row + 6);
    pen.fillStyle = theme.line;
    pen.fillRect(0, top + row + 2, right, 1);
    pen.fillStyle = theme.ink;
    pen.fillText(fitted(pen, names[name], left - 16), left - 8, top + row / 2);
  });
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, right - left, bottom);
  pen.clip();
  const filtered = isFiltered(), drawn = new Map();
  const alpha = filtered ? (s) => (causeMatches[stretchCause[s]] ? 1 : 0.22) : () => 1;
  const execution = (i, always) => {
    const isWide = latencies[i] * scale > 16;
    for (let n = shares.first[i]; n < shares.first[i + 1]; n++) {
      const a = x(shares.begin[n]), b = x(shares.end[n]), place = shares.place[n], top = y(place, levels[i]);
      if (b < left || a > right) continue;
      if (n > shares.first[i]) {
        // The line of the execution, from the callback before.
        pen.fillStyle = isLate[i] ? theme.late : theme.soft;
        const from = y(shares.place[n - 1], levels[i]);
        if (isWide) pen.fillRect(a - 0.5, Math.min(from, top) + height / 2, 1, Math.abs(top - from));
      }
      if (b - a < 3) {
        // At this zoom an execution is a line. One line per pixel is enough.
        const key = place * LEVELS_MAX + levels[i], pixel = Math.floor(a);
        if (!always && drawn.get(key) === pixel) continue;
        drawn.set(key, pixel);
        pen.fillStyle = theme.colours[shares.kind[n]];
        pen.fillRect(a, top, Math.max(1, b - a), height);
        continue;
      }
      drawStretches(pen, shares.stretch[n], n + 1 === shares.first[i + 1] ? firstStretch[i + 1] : shares.stretch[n + 1],
        shares.begin[n], x, top, height, [left - 2, right + 2], alpha);
    }
  };
  const from = firstFrom(view.lo - LONGEST), to = firstFrom(view.hi);
  for (const late of [0, 1]) {
    for (let i = from; i < to; i++) {
      if (isLate[i] !== late || !matches[i]) continue;
      execution(i, late);
      if (!late) continue;
      pen.fillStyle = theme.late;
      triangle(pen, x(starts[i]), FLOW_TOP - 7, 4);
    }
  }
  for (const [i, colour] of [[state.cursor, theme.soft], [state.selected, theme.accent]]) {
    if (i < 0) continue;
    execution(i, true);
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    for (let n = shares.first[i]; n < shares.first[i + 1]; n++) {
      const a = Math.max(left - 4, x(shares.begin[n])), b = Math.min(right + 4, x(shares.end[n]));
      if (b < a) continue;
      pen.strokeRect(a - 1, y(shares.place[n], levels[i]) - 2, Math.max(2, b - a) + 2, height + 4);
    }
  }
  pen.restore();
}

// The execution at a place of the latency chart, or -1.
function atLatency(view, px, py) {
  const [left, right] = areaOf(latencyCanvas), scale = (right - left) / (view.hi - view.lo);
  const margin = 14 / scale, t = view.lo + (px - left) / scale, to = firstFrom(t + margin);
  let best = -1, least = 14 * 14;
  for (let i = firstFrom(t - margin); i < to; i++) {
    if (!matches[i]) continue;
    const dx = (starts[i] - t) * scale, dy = yOfLatency(latencies[i]) - py;
    const off = dx * dx + dy * dy - (isLate[i] ? 9 : 0);
    if (off < least) [best, least] = [i, off];
  }
  return best;
}

// The execution at a place of the message flow, or -1.
function atFlow(view, px, py) {
  const [left, right] = areaOf(flowCanvas), scale = (right - left) / (view.hi - view.lo), row = rowHeight();
  const t = view.lo + (px - left) / scale, place = Math.floor((py - FLOW_TOP) / (row + 6));
  const level = Math.floor((py - FLOW_TOP - place * (row + 6) - 3) / ((row - 6) / LEVELS));
  let best = -1, least = Infinity;
  const to = firstFrom(t + 6 / scale);
  for (let i = firstFrom(t - LONGEST - 6 / scale); i < to; i++) {
    if (!matches[i]) continue;
    for (let n = shares.first[i]; n < shares.first[i + 1]; n++) {
      if (shares.place[n] !== place) continue;
      const off = Math.max(shares.begin[n] - t, t - shares.end[n], 0) * scale;
      const cost = off + 3 * Math.abs(levels[i] - level) - (isLate[i] ? 0.5 : 0);
      if (off <= 6 && cost < least) [best, least] = [i, cost];
    }
  }
  return best;
}
