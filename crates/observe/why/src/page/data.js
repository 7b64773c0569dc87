// The executions, as typed arrays: those of 10,000 executions are drawn in each frame.
const data = JSON.parse(document.getElementById('data').textContent);
const COUNT = data.executions.length / 3;
const starts = new Float64Array(COUNT);
const latencies = new Float64Array(COUNT);
const isLate = new Uint8Array(COUNT);
const firstStretch = new Uint32Array(COUNT + 1);
const stretchCause = new Uint32Array(data.stretches.length / 2);
const stretchNs = new Float64Array(data.stretches.length / 2);
const [KIND, PLACE, TEXT, BY, DURING_KIND, DURING, CPU] = [0, 1, 2, 3, 4, 5, 6];

for (let i = 0; i < COUNT; i++) {
  starts[i] = data.executions[3 * i];
  latencies[i] = data.executions[3 * i + 1];
  isLate[i] = latencies[i] > data.limit_ns ? 1 : 0;
  firstStretch[i + 1] = firstStretch[i] + data.executions[3 * i + 2];
}
for (let s = 0; s < stretchCause.length; s++) {
  stretchCause[s] = data.stretches[2 * s];
  stretchNs[s] = data.stretches[2 * s + 1];
}
data.executions = data.stretches = null;

const UNITS = [[999.5, 1, 'ns'], [999.5e3, 1e3, 'us'], [999.5e6, 1e6, 'ms'], [1e12, 1e9, 's'], [Infinity, 60e9, 'min']];

function duration(ns) {
  const [, length, unit] = UNITS.find(([limit]) => Math.abs(ns) < limit) || UNITS[4];
  const value = ns / length, size = Math.abs(value);
  const digits = size < 0.9995 ? 3 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return `${size < 1e-9 ? 0 : Number(value.toFixed(digits))} ${unit}`;
}

function percent(share) {
  const p = share * 100;
  return `${p.toFixed(p >= 9.95 ? 0 : 1)} %`;
}

// Names come from the recorded system. Characters that turn the writing direction become escapes.
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

function shorten(text, limit) {
  const all = Array.from(text.length > 4 * limit + 64 ? text.slice(0, 2 * limit) + text.slice(-2 * limit) : text);
  if (all.length <= limit && text.length <= 4 * limit + 64) return text;
  const kept = Math.max(1, limit - 1), head = Math.floor(kept / 3);
  return `${all.slice(0, head).join('')}…${all.slice(all.length - (kept - head)).join('')}`;
}

const names = data.names.map((name) => shorten(visible(name), 300));
const searched = data.names.map((name) => name.toLowerCase());

function instant(sinceNs) {
  const ms = data.start_ms + sinceNs / 1e6;
  const date = new Date(ms);
  const ofDay = isNaN(date) ? '' : ` (${date.toISOString().slice(11, 23)} UTC)`;
  return `${(sinceNs / 1e9).toFixed(3)} s${ofDay}`;
}

function title(i) {
  return `${duration(latencies[i])} at ${instant(starts[i])}${isLate[i] ? ', late' : ''}`;
}

// Shares: the stretches of an execution that lie in the same place, one after the other.
const shares = (() => {
  let count = 0;
  for (let i = 0; i < COUNT; i++) {
    let last = -1;
    for (let s = firstStretch[i]; s < firstStretch[i + 1]; s++) {
      const place = data.causes[stretchCause[s]][PLACE];
      count += place !== last;
      last = place;
    }
  }
  const all = {
    first: new Uint32Array(COUNT + 1), stretch: new Uint32Array(count + 1), begin: new Float64Array(count),
    end: new Float64Array(count), place: new Uint16Array(count), kind: new Uint8Array(count),
  };
  const sums = new Float64Array(data.kinds.length);
  let n = 0;
  const close = (end) => {
    all.end[n - 1] = end;
    all.kind[n - 1] = sums.indexOf(Math.max(...sums));
    sums.fill(0);
  };
  for (let i = 0; i < COUNT; i++) {
    let at = starts[i], last = -1;
    for (let s = firstStretch[i]; s < firstStretch[i + 1]; s++) {
      const cause = data.causes[stretchCause[s]];
      if (cause[PLACE] !== last) {
        if (last >= 0) close(at);
        all.begin[n] = at;
        all.stretch[n] = s;
        all.place[n] = last = cause[PLACE];
        n++;
      }
      sums[cause[KIND]] += stretchNs[s];
      at += stretchNs[s];
    }
    if (last >= 0) close(at);
    all.first[i + 1] = n;
  }
  all.stretch[n] = stretchCause.length;
  return all;
})();

// Executions that run at the same time are drawn below one another within a row.
const LEVELS_MAX = 4;
const levels = new Uint8Array(COUNT);
const LEVELS = (() => {
  const free = [];
  for (let i = 0; i < COUNT; i++) {
    let level = free.findIndex((end) => end <= starts[i]);
    if (level < 0) level = free.length < LEVELS_MAX ? free.length : i % LEVELS_MAX;
    free[level] = Math.max(free[level] || 0, starts[i] + latencies[i]);
    levels[i] = level;
  }
  return Math.max(1, free.length);
})();
let LONGEST = 1;
for (const ns of latencies) LONGEST = Math.max(LONGEST, ns);

// The first execution that starts at or after a time.
function firstFrom(time) {
  let low = 0, high = COUNT;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

const filter = { kinds: new Set(), text: '', leastNs: 0, onlyLate: false };
const matches = new Uint8Array(COUNT).fill(1);
const causeMatches = new Uint8Array(data.causes.length).fill(1);

function isFiltered() {
  return filter.kinds.size > 0 || filter.text !== '' || filter.leastNs > 0;
}

function applyFilter() {
  const of = (name) => name >= 0 && searched[name].includes(filter.text);
  data.causes.forEach((cause, c) => {
    const kind = filter.kinds.size === 0 || filter.kinds.has(cause[KIND]);
    causeMatches[c] = kind && (filter.text === '' || of(cause[TEXT]) || of(cause[BY]) || of(cause[DURING]));
  });
  const filtered = isFiltered();
  for (let i = 0; i < COUNT; i++) {
    let sum = 0;
    if (filtered) {
      for (let s = firstStretch[i]; s < firstStretch[i + 1]; s++) {
        if (causeMatches[stretchCause[s]]) sum += stretchNs[s];
      }
    }
    const found = !filtered || (sum > 0 && sum >= filter.leastNs);
    matches[i] = found && (!filter.onlyLate || isLate[i]) ? 1 : 0;
  }
}
