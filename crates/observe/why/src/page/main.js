// The state of the page, and what changes it.
const state = { cursor: -1, selected: -1 };
const field = (id) => document.getElementById(id);
let dirty = false, frame = 0;

function request() {
  if (!frame) frame = requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  if (dirty) {
    dirty = false;
    drawLatency(view, state);
    drawFlow(view, state);
  }
  if (lanesDirty) drawLanes();
}

function redraw() {
  dirty = true;
  request();
}

const view = (() => {
  let lo = COUNT ? starts[0] : 0, hi = lo + 1;
  for (let i = 0; i < COUNT; i++) hi = Math.max(hi, starts[i] + latencies[i]);
  for (const [at] of data.overview.bins) {
    lo = Math.min(lo, at);
    hi = Math.max(hi, at + data.overview.width_ns);
  }
  const margin = (hi - lo) * 0.01;
  return new View(lo - margin, hi + margin, () => {
    showView();
    redraw();
  });
})();

function showView() {
  const round = (ns) => String(Number((ns / 1e9).toFixed(6)));
  for (const [id, ns] of [['from', view.lo], ['to', view.hi]]) {
    if (document.activeElement !== field(id)) field(id).value = round(ns);
  }
  countShown();
}

function countShown() {
  let shown = 0, late = 0;
  const to = firstFrom(view.hi);
  for (let i = firstFrom(view.lo - LONGEST); i < to; i++) {
    if (!matches[i] || starts[i] + latencies[i] < view.lo) continue;
    shown++;
    late += isLate[i];
  }
  field('status').textContent = `${shown} of ${COUNT} executions are shown, ${late} of them late.`;
}

function filtered() {
  applyFilter();
  countShown();
  if (state.selected >= 0) {
    fillTable(state.selected);
    lanesDirty = true;
  }
  redraw();
}

// Moves the view so that an execution is in it.
function reveal(i) {
  const size = view.hi - view.lo, end = starts[i] + latencies[i];
  if (starts[i] < view.lo || end > view.hi) {
    const middle = (starts[i] + end) / 2, wanted = Math.max(size, latencies[i] * 1.5);
    view.set(middle - wanted / 2, middle + wanted / 2);
  }
}

function point(i) {
  state.cursor = i;
  if (i >= 0) {
    reveal(i);
    field('status').textContent = `${title(i)}. Enter opens it.`;
  }
  redraw();
}

function select(i, keepsFragment) {
  state.selected = state.cursor = i;
  if (i >= 0) reveal(i);
  showDetail(i);
  if (!keepsFragment) {
    const to = i < 0 ? '#' : fragment(i);
    try {
      history.replaceState(null, '', to);
    } catch {
      location.hash = to;
    }
  }
  redraw();
}

// The next execution that the filter shows, or the same one.
function next(from, by, wanted) {
  let i = from;
  if (i < 0) i = by > 0 ? firstFrom(view.lo) - 1 : firstFrom(view.hi);
  for (i += by; i >= 0 && i < COUNT; i += by) if (matches[i] && (!wanted || wanted(i))) return i;
  return from;
}

// The longest execution that is shorter than this one.
function nextLongest(of) {
  let best = -1;
  const shorter = (a, b) => latencies[a] < latencies[b] || (latencies[a] === latencies[b] && a > b);
  for (let i = 0; i < COUNT; i++) {
    if (matches[i] && (of < 0 || shorter(i, of)) && (best < 0 || shorter(best, i))) best = i;
  }
  return best < 0 ? of : best;
}

function key(event) {
  const late = (i) => isLate[i];
  if (event.key === 'ArrowRight') point(next(state.cursor, 1));
  else if (event.key === 'ArrowLeft') point(next(state.cursor, -1));
  else if (event.key === 'ArrowDown') point(next(state.cursor, 1, late));
  else if (event.key === 'ArrowUp') point(next(state.cursor, -1, late));
  else if (event.key === 'Home') point(next(-1, 1));
  else if (event.key === 'End') point(next(COUNT, -1));
  else if (event.key === 'Enter' && state.cursor >= 0) {
    select(state.cursor);
    field('detail').scrollIntoView({ block: 'nearest' });
  } else if (event.key === 'Escape') select(-1);
  else return false;
  return true;
}

// Opens the execution of a fragment `#t=SECONDS`: the one that starts there, else the longest that runs then.
function follow(hash) {
  const found = /^#t=(\d{1,9})(?:\.(\d{1,9}))?s?$/.exec(hash);
  if (!found || COUNT === 0) return false;
  const ns = Number(found[1]) * 1e9 + Number((found[2] || '').padEnd(9, '0'));
  return open(ns);
}

function open(ns) {
  let best = -1, nearest = 0;
  const off = (i) => Math.max(starts[i] - ns, ns - starts[i] - latencies[i], 0);
  for (let i = 0; i < COUNT; i++) {
    if (starts[i] === ns && (best < 0 || starts[best] !== ns || latencies[i] > latencies[best])) best = i;
    else if (off(i) === 0 && (best < 0 || (starts[best] !== ns && latencies[i] > latencies[best]))) best = i;
    if (off(i) < off(nearest)) nearest = i;
  }
  const i = best < 0 ? nearest : best, around = Math.max(latencies[i] * 3, 1e6);
  view.set(starts[i] - around * 0.35, starts[i] + around);
  select(i, true);
  return true;
}

function fillKinds() {
  const used = new Set(data.causes.map((cause) => cause[KIND]));
  for (const cause of data.causes) if (cause[DURING_KIND] >= 0) used.add(cause[DURING_KIND]);
  const buttons = data.kinds.map((kind, k) => {
    if (!used.has(k)) return null;
    const button = document.createElement('button');
    button.type = 'button';
    button.dataset.kind = kind.key;
    button.setAttribute('aria-pressed', String(filter.kinds.has(k)));
    button.append(swatch(k), kind.text);
    button.addEventListener('click', () => {
      if (!filter.kinds.delete(k)) filter.kinds.add(k);
      button.setAttribute('aria-pressed', String(filter.kinds.has(k)));
      filtered();
    });
    return button;
  });
  field('kinds').replaceChildren(field('kinds').firstElementChild, ...buttons.filter(Boolean));
}

function wire() {
  const pick = (at) => ({
    click: (x, y) => {
      const i = at(view, x, y);
      if (i >= 0) select(i);
    },
    hover: (x, y) => {
      const i = at(view, x, y);
      return i >= 0 ? title(i) : '';
    },
    key,
  });
  attach(latencyCanvas, view, () => areaOf(latencyCanvas), pick(atLatency));
  attach(flowCanvas, view, () => areaOf(flowCanvas), pick(atFlow));
  attach(lanesCanvas, lanesView, () => areaOf(lanesCanvas), {
    click: () => {}, hover: (x, y, t) => atLanes(y, t), key: (event) => (event.key === 'Escape' ? key(event) : false),
  });
  field('text').addEventListener('input', () => {
    filter.text = field('text').value.trim().toLowerCase();
    filtered();
  });
  field('least').addEventListener('input', () => {
    filter.leastNs = Math.max(0, Number(field('least').value) || 0) * 1e6;
    filtered();
  });
  field('only-late').addEventListener('change', () => {
    filter.onlyLate = field('only-late').checked;
    filtered();
  });
  const bounds = () => {
    const [lo, hi] = [field('from').valueAsNumber * 1e9, field('to').valueAsNumber * 1e9];
    if (hi > lo) view.set(lo, hi);
  };
  for (const id of ['from', 'to']) {
    field(id).addEventListener('change', bounds);
    field(id).addEventListener('blur', showView);
  }
  field('filter').addEventListener('submit', (event) => event.preventDefault());
  field('show-all').addEventListener('click', () => {
    field('filter').reset();
    Object.assign(filter, { kinds: new Set(), text: '', leastNs: 0, onlyLate: false });
    fillKinds();
    view.all();
    filtered();
  });
  field('each').addEventListener('change', () => state.selected >= 0 && fillTable(state.selected));
  field('before').addEventListener('click', () => select(next(state.selected, -1)));
  field('after').addEventListener('click', () => select(next(state.selected, 1)));
  field('worse').addEventListener('click', () => select(nextLongest(state.selected)));
  field('close').addEventListener('click', () => select(-1));
  window.addEventListener('hashchange', () => follow(location.hash));
  window.addEventListener('resize', () => {
    lanesDirty = true;
    redraw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    readTheme();
    fillKinds();
    if (state.selected >= 0) fillTable(state.selected);
    lanesDirty = true;
    redraw();
  });
}

field('app').hidden = COUNT === 0;
field('tables').open = COUNT === 0;
if (COUNT > 0) {
  readTheme();
  fillKinds();
  wire();
  showView();
  if (!follow(location.hash)) {
    if (data.at_ns !== null) open(data.at_ns);
    else select(nextLongest(-1), true);
  }
  draw();
}
document.documentElement.dataset.ready = String(Math.round(performance.now()));
