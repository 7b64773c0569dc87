// One execution: lanes of its callbacks, of CPUs and of the culprits, and its stretches as a table.
const lanesCanvas = document.getElementById('lanes');
const lanesView = new View(0, 1, () => { lanesDirty = true; request(); });
const CULPRITS_MAX = 6;
const CPUS_MAX = 8;
const ROWS_MAX = 5000;
const LANE = 26;
let lanesDirty = false;
let lanes = [];
let shownExecution = -1;

function push(lists, key, bar) {
  if (!lists.has(key)) lists.set(key, []);
  lists.get(key).push(bar);
}

// The lanes: a list of labels with their bars, each from, to, stretch and kind. The lane of a CPU has the time for
// which a thread of the chain ran on it, or waited for it.
function lanesOf(i) {
  const places = new Map(), cpus = new Map(), culprits = new Map();
  let at = 0;
  for (let s = firstStretch[i]; s < firstStretch[i + 1]; s++) {
    const cause = data.causes[stretchCause[s]], bar = { from: at, to: at + stretchNs[s], stretch: s, kind: cause[KIND] };
    push(places, cause[PLACE], bar);
    if (cause[CPU] >= 0) push(cpus, cause[CPU], bar);
    if (cause[BY] >= 0) push(culprits, cause[BY], { ...bar, kind: cause[DURING_KIND] >= 0 ? cause[DURING_KIND] : 0 });
    at = bar.to;
  }
  const sum = (bars) => bars.reduce((ns, bar) => ns + bar.to - bar.from, 0);
  const found = [...culprits].map(([name, bars]) => ({ label: names[name], bars, ns: sum(bars), culprit: true }));
  found.sort((a, b) => b.ns - a.ns);
  const own = [...places].map(([place, bars]) => ({ label: names[data.places[place]], bars, culprit: false }));
  const shared = [...cpus].sort((a, b) => a[0] - b[0]).map(([cpu, bars]) => ({ label: `CPU ${cpu}`, bars, culprit: false }));
  return [...own, ...shared.slice(0, CPUS_MAX), ...found.slice(0, CULPRITS_MAX)];
}

function drawLanes() {
  lanesDirty = false;
  if (shownExecution < 0) return;
  const bottom = 8 + lanes.length * LANE, [pen] = begin(lanesCanvas, bottom + AXIS);
  const [left, right] = areaOf(lanesCanvas), scale = (right - left) / (lanesView.hi - lanesView.lo);
  const x = (t) => left + (t - lanesView.lo) * scale;
  timeAxis(pen, lanesView, left, right, 8, bottom, (t) => duration(t));
  const filtered = isFiltered();
  let first = true;
  lanes.forEach((lane, n) => {
    const top = 8 + n * LANE;
    if (lane.culprit) {
      pen.fillStyle = theme.panel;
      pen.fillRect(0, top, left, LANE - 2);
    }
    pen.font = `${lane.culprit && first ? 'bold ' : ''}12px sans-serif`;
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    pen.fillStyle = lane.culprit ? theme.late : theme.ink;
    pen.fillText(`${fitted(pen, lane.label, left - (lane.culprit ? 34 : 16))}${lane.culprit ? ' ◂' : ''}`, left - 8, top + LANE / 2);
    first = first && !lane.culprit;
    pen.fillStyle = theme.line;
    pen.fillRect(0, top + LANE - 1, right, 1);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, right - left, bottom);
    pen.clip();
    let last = -Infinity;
    for (const bar of lane.bars) {
      const a = Math.max(x(bar.from), left - 2), b = Math.min(x(bar.to), right + 2);
      if (b < left || a > right || (b <= last && b - a < 1)) continue;
      const width = Math.max(1, b - a);
      last = a + width;
      pen.globalAlpha = filtered && !causeMatches[stretchCause[bar.stretch]] ? 0.22 : 1;
      pen.fillStyle = width >= 4 ? theme.patterns[bar.kind] : theme.colours[bar.kind];
      pen.fillRect(a, top + 4, width, LANE - 9);
      pen.globalAlpha = 1;
      if (width >= 14) letter(pen, bar.kind, a + width / 2, top + LANE / 2 - 0.5);
    }
    pen.restore();
  });
}

// What a stretch is, in words, with what its culprit did.
function said(cause) {
  const during = cause[DURING] >= 0 ? `\nwhich ${names[cause[DURING]]}` : '';
  return `${names[cause[TEXT]]}${during}`;
}

function atLanes(y, t) {
  const lane = lanes[Math.floor((y - 8) / LANE)];
  const margin = (lanesView.hi - lanesView.lo) / 400;
  const bar = lane && lane.bars.find((b) => t >= b.from && t < b.to) ||
    lane && lane.bars.find((b) => t >= b.from - margin && t < b.to + margin);
  if (!bar) return '';
  const cause = data.causes[stretchCause[bar.stretch]];
  const cpu = cause[CPU] >= 0 ? `, CPU ${cause[CPU]}` : '';
  return `${names[data.places[cause[PLACE]]]}${cpu}\n${duration(bar.from)}: ${said(cause)}\n${duration(bar.to - bar.from)}`;
}

function cell(row, text, isNumber) {
  const td = document.createElement('td');
  td.textContent = text;
  if (isNumber) td.className = 'n';
  row.append(td);
  return td;
}

function line(body, kind, from, ns, all, text, style) {
  const row = document.createElement('tr');
  row.className = style;
  cell(row, duration(from), true);
  cell(row, duration(ns), true);
  cell(row, percent(ns / Math.max(1, all)), true);
  const td = cell(row, text, false);
  if (kind >= 0) td.prepend(swatch(kind), ' ');
  body.append(row);
}

// The stretches of a share, alone or summed up by cause.
function linesOf(from, to, begin, each) {
  const lines = new Map();
  let at = begin;
  for (let s = from; s < to; s++) {
    const cause = data.causes[stretchCause[s]], key = each ? s : cause[TEXT];
    if (!lines.has(key)) lines.set(key, { kind: cause[KIND], from: at, ns: 0, parts: 0, text: names[cause[TEXT]], which: new Map(), matches: false });
    const into = lines.get(key);
    into.ns += stretchNs[s];
    into.parts++;
    into.matches = into.matches || causeMatches[stretchCause[s]] === 1;
    if (cause[DURING] >= 0) {
      const which = into.which.get(cause[DURING]) || { from: at, ns: 0, parts: 0 };
      which.ns += stretchNs[s];
      which.parts++;
      into.which.set(cause[DURING], which);
    }
    at += stretchNs[s];
  }
  return lines.values();
}

function fillTable(i) {
  const body = document.querySelector('#stretches tbody'), each = document.getElementById('each').checked;
  const rows = document.createDocumentFragment(), all = latencies[i], filtered = isFiltered();
  let count = 0;
  for (let n = shares.first[i]; n < shares.first[i + 1] && count < ROWS_MAX; n++) {
    const begin = shares.begin[n] - starts[i], to = n + 1 === shares.first[i + 1] ? firstStretch[i + 1] : shares.stretch[n + 1];
    line(rows, -1, begin, shares.end[n] - shares.begin[n], all, names[data.places[shares.place[n]]], 'place');
    for (const one of linesOf(shares.stretch[n], to, begin, each)) {
      const parts = (l) => (l.parts > 1 ? ` (in ${l.parts} parts)` : ''), dim = filtered && !one.matches ? ' dim' : '';
      line(rows, one.kind, one.from, one.ns, all, one.text + parts(one), `cause${dim}`);
      for (const [name, which] of one.which) {
        line(rows, -1, which.from, which.ns, all, `which ${names[name]}${parts(which)}`, `which${dim}`);
      }
      if (++count >= ROWS_MAX) break;
    }
  }
  if (count >= ROWS_MAX) line(rows, -1, 0, 0, 1, `Only the first ${ROWS_MAX} lines are shown.`, 'which');
  body.replaceChildren(rows);
}

function showDetail(i) {
  const section = document.getElementById('detail');
  section.hidden = i < 0;
  const isNew = shownExecution !== i;
  shownExecution = i;
  if (i < 0) return;
  document.getElementById('detail-title').textContent = title(i);
  document.getElementById('link').href = fragment(i);
  fillTable(i);
  if (isNew) {
    lanes = lanesOf(i);
    lanesView.min = 0;
    lanesView.max = Math.max(1, latencies[i]);
    lanesView.all();
  }
  drawLanes();
}

function fragment(i) {
  const ns = Math.round(starts[i]), whole = Math.floor(ns / 1e9);
  return `#t=${whole}.${String(ns - whole * 1e9).padStart(9, '0')}`;
}
