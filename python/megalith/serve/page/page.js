// What the server does, as it does it. Figures of now come from `stats`, those of the last ten minutes from `history`, texts
// from the API that all clients use. All paths are relative: the page may stand below a path of a proxy.
"use strict";

const at = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const colours = 8; // of states in page.css
const looks = []; // the last two seconds', for rates of now
const texts = new Map(); // of this page's own requests, by number
const keyName = `megalith-key ${location.pathname}`; // of this server: a proxy may have several
let key = sessionStorage.getItem(keyName);
let facts = null; // the last look
let failure = null;

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(tag, attributes, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const whole = (value) => Math.round(value).toLocaleString("en");

function rounded(value) {
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)}M`;
  return value >= 100 || value === 0 ? whole(value) : value.toPrecision(value >= 10 ? 3 : 2);
}

const tick = (value) => (value >= 1e6 ? rounded(value) : (+value.toPrecision(3)).toLocaleString("en"));

const percent = (part) => `${part >= 0.0995 || part === 0 ? Math.round(100 * part) : (100 * part).toFixed(1)} %`;

// Three digits of a time in seconds.
function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 100) return `${Math.floor(Math.round(seconds) / 60)} min ${Math.round(seconds) % 60} s`;
  seconds = Number(seconds.toPrecision(3)); // first: 999.6 ms are a second
  const [value, unit] = seconds < 1e-3 ? [seconds * 1e6, "µs"] : seconds < 1 ? [seconds * 1e3, "ms"] : [seconds, "s"];
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(value === 0 ? 0 : 2)} ${unit}`;
}

class NoAnswer extends Error {} // nobody is there
class NoKey extends Error {} // a key is wanted
class NoFigures extends Error {} // somebody is there, and gives something else

async function call(path, body, signal) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers, signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new NoAnswer("the server does not answer");
  }
}

// JSON of the server, which may take so many seconds.
async function read(path, seconds) {
  if (key && !/^[\x21-\x7e]+$/.test(key)) throw new NoKey(); // no header can have it
  const answer = await call(path, null, AbortSignal.timeout(1000 * seconds));
  if (answer.status === 401) throw new NoKey();
  let value;
  try {
    value = await answer.json();
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw new NoAnswer("the answer was cut off");
  }
  if (!answer.ok) throw new NoFigures(`status ${answer.status}${value && value.error ? `, ${value.error.message}` : ""}`);
  if (!value) throw new NoFigures("what answers is another program");
  return value;
}

// ---- Colours ----

let style = null; // read once for each scheme

function colourOf(name) {
  style ||= getComputedStyle(document.documentElement);
  return style.getPropertyValue(name).trim();
}

// Black or white, whichever is read better on it.
function inkOn(colour) {
  const part = (from) => {
    const value = parseInt(colour.slice(from, from + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.179 ? "#000000" : "#ffffff";
}

// Of a state: its place among those with a slot, as the pipeline's file declares them, is its colour.
const places = new Map();

function readStates(states) {
  const known = states.filter((state) => state.slot).map((state) => state.name);
  // The shortest beginnings that tell them apart, of two letters at least where there is room.
  const short = (name) => {
    for (let size = 2; size < 4; ++size)
      if (known.every((other) => other === name || other.slice(0, size) !== name.slice(0, size))) return name.slice(0, size);
    return name.slice(0, 2);
  };
  known.forEach((name, place) => places.set(name, { place, name, short: short(name), colour: `--s${place % colours}`, isStriped: place >= colours }));
  at("legend").replaceChildren(...known.map((name) => {
    const item = make("li"), of = places.get(name);
    item.style.setProperty("--mark", `var(${of.colour})`);
    item.append(`${name} `, make("b", "", "0"));
    return item;
  }), make("li", "free"));
  at("legend").lastChild.append("free ", make("b", "", "0"));
}

const isState = (name) => places.get(name) || { place: -1, name, short: name.slice(0, 2), colour: "--queued" };

// ---- What was ----

const past = { samples: [], next: 0, started: null, latencies: {}, sizes: {}, requests: [], time: 0, wall: 0, span: 600 };
let ahead = 0; // milliseconds by which the server's clock is ahead of this machine's; the page has the server's
let range = 600, isChosen = false;
let cursor = null; // the time that charts are asked about

const clock = (time, seconds = true) =>
  new Date(1000 * (time + past.wall)).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined });

async function lookBack() {
  const told = await read(`history?after=${past.next}`, 30);
  ahead = 1000 * told.wall - Date.now();
  if (told.started !== past.started) {
    const isOther = past.started !== null;
    Object.assign(past, { samples: [], started: told.started, requests: [] });
    past.next = 0;
    if (isOther) return lookBack(); // another server; it was asked for what came behind the old one's
  }
  const names = told.columns;
  for (const values of told.samples) past.samples.push(Object.fromEntries(values.map((value, index) => [names[index], value])));
  while (past.samples.length && past.samples[0].time <= told.time - told.span) past.samples.shift();
  const ended = told.requests.filter((each) => each.ended !== null), numbers = new Set(ended.map((each) => each.number));
  const before = past.requests.filter((each) => each.ended !== null && !numbers.has(each.number));
  past.requests = [...told.requests.filter((each) => each.ended === null), ...[...ended, ...before].slice(0, told.keeps)];
  Object.assign(past, { next: told.next, latencies: told.latencies, sizes: told.sizes, time: told.time, wall: told.wall - told.time, span: told.span });
  showPast();
}

const end = () => (past.samples.length ? past.samples.at(-1).time : 0);

// ---- Charts ----

const charts = [];
const left = 44, right = 8, above = 5, bottom = 16;

// A round number that is not below.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 2.5, 5, 10].find((step) => step * power >= value * (1 - 1e-9));
}

// Lines over time. A line has a name, and what it reads of a sample; null is a gap.
class Chart {
  constructor(id, lines, options = {}) {
    this.lines = lines;
    this.options = { say: tick, ...options };
    this.panel = at(id);
    this.title = this.panel.querySelector("h2").textContent;
    this.svg = draw("svg", { tabindex: "0", role: "img" });
    this.foot = make("ul", "foot");
    this.panel.append(this.svg, this.foot);
    this.showKeys();
    this.most = 0;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => leave());
    this.svg.addEventListener("blur", () => leave());
    this.svg.addEventListener("keydown", (event) => this.step(event));
    charts.push(this);
  }

  showKeys() {
    this.keys = this.lines.map((line, index) => {
      const item = make("li"), mark = draw("svg", { viewBox: "0 0 16 8", "aria-hidden": "true" }), value = make("b");
      draw("path", { d: "M0 4H16", class: `line k${index}` }, mark);
      // One of several can be left out, so that the others have the scale.
      const holder = this.lines.length > 1 ? make("button") : item;
      holder.append(mark, make("span", "", line.name), value);
      if (holder === item) return { item, value };
      item.append(holder);
      holder.type = "button";
      holder.title = "show or hide";
      holder.setAttribute("aria-pressed", "true");
      holder.addEventListener("click", () => {
        line.isHidden = !line.isHidden;
        holder.setAttribute("aria-pressed", String(!line.isHidden));
        this.show();
      });
      return { item, value };
    });
    if (!this.options.hasNoKeys) this.foot.replaceChildren(...this.keys.map((each) => each.item));
  }

  get times() {
    return [end() - range, end()];
  }

  x(time) {
    const [from, to] = this.times;
    return left + ((time - from) / (to - from)) * (this.width - left - right);
  }

  y(value) {
    const height = this.height - above - bottom;
    const { log } = this.options;
    const part = log ? Math.log(value / this.least) / Math.log(this.most / this.least) : value / this.most;
    return above + height * (1 - Math.max(0, Math.min(1, part)));
  }

  // Scales end at round numbers, so that they seldom change.
  scale(samples) {
    const { log, most } = this.options;
    const all = this.lines.filter((line) => !line.isHidden).flatMap((line) => samples.map(line.read)).filter((value) => value !== null && value !== undefined && (!log || value > 0));
    this.hasValues = all.length > 0;
    if (log) {
      this.most = this.hasValues ? roundUp(Math.max(...all) * 1.02) : 1;
      this.least = this.hasValues ? Math.min(1 / roundUp(1 / Math.min(...all)), this.most / 10) : 1e-3;
      return [...Array(15).keys()].map((power) => 10 ** (power - 9)).flatMap((value) => (this.most / this.least > 120 ? [value] : [value, value * 3]))
        .filter((value) => value >= this.least * 0.999 && value <= this.most * 1.001).slice(-4);
    }
    if (most) this.most = most();
    else if (this.options.stacked) this.most = roundUp(Math.max(1, ...samples.map((sample) => this.lines.reduce((sum, line) => sum + (line.read(sample) || 0), 0))));
    else this.most = roundUp(Math.max(this.options.least || 1, ...all));
    return this.options.say === whole && this.most % 2 ? [0, this.most] : [0, this.most / 2, this.most];
  }

  show() {
    this.width = this.svg.clientWidth;
    this.height = this.svg.clientHeight;
    if (!this.width) return;
    const [from, to] = this.times;
    const samples = past.samples.filter((sample) => sample.time >= from - 1);
    const parts = [];
    const add = (tag, attributes, text) => {
      const element = draw(tag, attributes);
      if (text !== undefined) element.textContent = text;
      parts.push(element);
      return element;
    };
    const ticks = this.scale(samples);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    for (const tick of ticks) {
      const y = Math.round(this.y(tick)) + 0.5;
      add("path", { class: "grid", d: `M${left} ${y}H${this.width - right}` });
      add("text", { x: left - 5, y: y + 3.5, "text-anchor": "end" }, this.options.say(tick));
    }
    const step = [20, 60, 120, 300].find((each) => (each / range) * (this.width - left - right) > (range < 120 ? 56 : 38)) || 300, shift = past.wall % step;
    const apart = (step / range) * (this.width - left - right), room = range < 120 ? 80 : 52; // of two labels
    for (let time = Math.ceil((from + shift) / step) * step - shift; time <= to; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      if (x < left) continue;
      add("path", { class: "grid", d: `M${x} ${above}V${this.height - bottom}` });
      const isClose = x < left + 16 ? "start" : x > this.width - 24 ? "end" : "middle";
      if (isClose === "start" && apart < room) continue;
      add("text", { x: isClose === "end" ? this.width : x, y: this.height - 4, "text-anchor": isClose }, clock(time, range < 120));
    }
    let below = samples.map(() => 0);
    this.lines.forEach((line, index) => {
      if (line.isHidden) return;
      const values = samples.map(line.read);
      let stroke = "", run = [];
      const areas = [];
      const close = () => {
        if (run.length && (this.options.stacked || index === 0) && !this.options.log)
          areas.push(`M${run.map(([x, y]) => `${x} ${y}`).join("L")}L${run.slice().reverse().map(([x, , base]) => `${x} ${base}`).join("L")}Z`);
        run = [];
      };
      samples.forEach((sample, place) => {
        if (values[place] === null || values[place] === undefined) return close();
        if (run.length && sample.time - samples[place - 1].time > 5) close();
        const x = Math.max(left, this.x(sample.time)).toFixed(1), value = values[place] + (this.options.stacked ? below[place] : 0);
        const y = this.y(value).toFixed(1);
        stroke += `${run.length ? "L" : "M"}${x} ${y}`;
        if (!run.length) stroke += `L${x} ${y}`; // one alone is a dot
        run.push([x, y, this.y(this.options.stacked ? below[place] : 0).toFixed(1)]);
      });
      close();
      if (this.options.stacked) below = below.map((base, place) => base + (values[place] || 0));
      for (const d of areas) {
        const area = add("path", { class: line.colour ? "area" : `area k${index}`, d });
        if (line.colour) area.style.fill = `var(${line.colour})`;
      }
      if (!line.colour && stroke) add("path", { class: `line k${index}`, d: stroke });
    });
    if (!this.hasValues && !this.lines.some((line) => line.isHidden))
      add("text", { class: "none", x: (left + this.width) / 2, y: (this.height - bottom) / 2 + 4 }, samples.length ? this.options.none || "no request in this time" : "no sample yet");
    this.svg.replaceChildren(...parts);
    this.showCursor();
    const told = this.lines.map((line, index) => (samples.length ? `${line.name} ${this.told(index, samples.at(-1))}` : line.name)).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}: ${told}. Arrow keys go through time.`);
  }

  told(index, sample) {
    const value = this.lines[index].read(sample);
    return value === null || value === undefined ? "–" : (this.options.tell || this.options.say)(value);
  }

  // Values at the cursor, else those of now.
  showCursor() {
    const sample = cursor === null ? past.samples.at(-1) : nearest(cursor);
    for (const old of this.svg.querySelectorAll(".cursor")) old.remove();
    if (!sample) return;
    const { keys } = this.options;
    const all = keys ? keys(this.lines.map((line) => line.read(sample))) : this.lines.map((_, index) => this.told(index, sample));
    this.keys.forEach(({ value }, index) => put(value, all[index]));
    if (cursor === null) return;
    const x = Math.round(this.x(sample.time)) + 0.5;
    if (x >= left) draw("path", { class: "cursor", d: `M${x} ${above}V${this.height - bottom}` }, this.svg);
  }

  point(event) {
    const box = this.svg.getBoundingClientRect(), [from, to] = this.times;
    cursor = Math.min(to, from + (Math.max(0, event.clientX - box.left - left) / (box.width - left - right)) * (to - from));
    this.ask();
  }

  step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e6, End: 1e6 }[event.key];
    if (event.key === "Escape") return leave();
    if (!step || !past.samples.length) return;
    event.preventDefault();
    const shown = past.samples.filter((sample) => sample.time >= this.times[0]);
    const place = cursor === null ? shown.length - 1 : shown.indexOf(nearest(cursor)) + step;
    cursor = shown[Math.max(0, Math.min(shown.length - 1, place))].time;
    this.ask();
    speak();
  }

  ask() {
    const sample = nearest(cursor);
    if (!sample) return;
    for (const chart of charts) chart.showCursor();
    strips(); // they have the same time
    const box = this.svg.getBoundingClientRect();
    const lines = this.lines.map((line, index) => [line.name, this.told(index, sample)]);
    tip([[this.title, clock(sample.time)], ...lines], box.left + this.x(sample.time), box.top + 4);
  }
}

function nearest(time) {
  const { samples } = past;
  let low = 0, high = samples.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (samples[middle].time < time) low = middle + 1;
    else high = middle;
  }
  if (low > 0 && time - samples[low - 1].time < samples[low].time - time) --low;
  return samples[low];
}

function leave() {
  cursor = null;
  at("tip").hidden = true;
  for (const chart of charts) chart.showCursor();
  strips();
}

// Lines of name and value beside a place of the window.
function tip(lines, x, y, text) {
  const box = at("tip");
  box.replaceChildren(...lines.map(([name, value], index) => {
    const line = make("p");
    line.append(make(index ? "span" : "b", "", name), make("span", "", value));
    return line;
  }));
  if (text) box.append(make("span", "text", text));
  box.hidden = false;
  const toLeft = x + 14 + box.offsetWidth > innerWidth;
  box.style.left = `${Math.max(4, toLeft ? x - 12 - box.offsetWidth : x + 12)}px`;
  box.style.top = `${Math.max(4, Math.min(innerHeight - box.offsetHeight - 4, y))}px`;
}

// Who goes by keys hears what the tip says.
const speak = () => put(at("told"), at("tip").hidden ? "" : [...at("tip").querySelectorAll("p")].map((line) => [...line.children].map((part) => part.textContent).join(" ")).join(", "));

// Bars of the last ten minutes.
class Bars {
  constructor(id, axis, read) {
    this.panel = at(id);
    this.read = read;
    this.title = this.panel.querySelector("h2").textContent;
    this.svg = draw("svg", { tabindex: "0", role: "img" });
    this.foot = make("ul", "foot");
    this.note = make("li", "", axis);
    this.foot.append(this.note);
    this.panel.append(this.svg, this.foot);
    this.chosen = -1;
    const choose = (event) => {
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      this.ask(Math.floor(((x - left) / (this.width - left - right)) * this.values.length));
    };
    this.svg.addEventListener("pointermove", choose);
    this.svg.addEventListener("pointerdown", choose);
    for (const name of ["pointerleave", "blur"]) this.svg.addEventListener(name, () => this.ask(-1));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e6, End: 1e6 }[event.key];
      if (event.key === "Escape") this.ask(-1);
      if (!step) return;
      event.preventDefault();
      this.ask(Math.max(0, Math.min(this.values.length - 1, this.chosen + step)));
      speak();
    });
  }

  show() {
    this.width = this.svg.clientWidth;
    if (!this.width) return;
    const height = this.svg.clientHeight, bars = this.values = this.read(), low = height - bottom;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.replaceChildren();
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(low - part * (low - above)) + 0.5;
      draw("path", { class: "grid", d: `M${left} ${y}H${this.width - right}` }, this.svg);
      draw("text", { x: left - 5, y: y + 3.5, "text-anchor": "end" }, this.svg).textContent = percent(part);
    }
    const wide = (this.width - left - right) / Math.max(4, bars.length), every = Math.ceil(16 / wide);
    bars.forEach((bar, index) => {
      const size = Math.max(bar.part > 0 ? 1 : 0, bar.part * (low - above)), gap = Math.min(6, wide * 0.2);
      draw("rect", { class: index === this.chosen ? "bar over" : "bar", x: left + index * wide + gap / 2, y: low - size, width: wide - gap, height: size, rx: Math.min(2, size / 2) }, this.svg);
      if (index % every === 0) draw("text", { x: left + (index + 0.5) * wide, y: height - 4, "text-anchor": "middle" }, this.svg).textContent = bar.name;
    });
    this.span = wide;
    if (!bars.length) draw("text", { class: "none", x: (left + this.width) / 2, y: (height - bottom) / 2 + 4 }, this.svg).textContent = "no draft in ten minutes";
    this.svg.setAttribute("aria-label", `${this.title}, of the last ten minutes: ${bars.map((bar) => `${bar.name}: ${percent(bar.part)}`).join(", ") || "none"}`);
  }

  ask(index) {
    const bar = this.values && this.values[index];
    this.chosen = bar ? index : -1;
    at("tip").hidden = true;
    this.show();
    if (!bar) return;
    const box = this.svg.getBoundingClientRect();
    tip([[this.title, "last 10 min"], ...bar.lines], box.left + left + (index + 0.5) * this.span, box.top + 4);
  }
}

const per = (name) => (sample) => (sample.seconds > 0 && sample[name] !== null ? sample[name] / sample.seconds : null);
const percentiles = (name) => ["p50", "p95", "p99"].map((label, index) => ({ name: label, read: (sample) => sample[name][index] }));
let bars = [];

function makeCharts(now) {
  new Chart("panel-speed", [{ name: "generated", read: per("generated_tokens") }, { name: "of prompts", read: per("prompt_tokens") }], { tell: rounded });
  new Chart("panel-requests", [{ name: "running", read: (sample) => sample.running }, { name: "waiting", read: (sample) => sample.waiting }], { say: whole, least: 2 });
  new Chart("panel-first", percentiles("first_token"), { log: true, say: short, tell: span, keys: inOneUnit });
  new Chart("panel-next", percentiles("next_token"), { log: true, say: short, tell: span, keys: inOneUnit });
  new Chart("panel-kv", now.pools.map((pool, index) => ({ name: pool.model, read: (sample) => sample.pools[index] / Math.max(1, pool.pages) })), { say: percent, most: () => 1 });
  const states = now.states.map((state, index) => ({ ...state, index })).filter((state) => state.slot);
  new Chart("panel-states", states.map((state) => ({ name: state.name, colour: isState(state.name).colour, read: (sample) => sample.states[state.index] })), {
    say: whole, stacked: true, most: () => Math.max(1, now.slots.length), hasNoKeys: true,
  });
  at("panel-states").querySelector(".foot").append(make("li", "", "each second's; colours as below"));
  new Chart("panel-passes", [{ name: "tokens", read: (sample) => (sample.passes > 0 ? sample.generated_tokens / sample.passes : null) }], { tell: (value) => value.toFixed(2) });
  const drafts = "tokens_proposed" in now.metrics;
  for (const panel of document.querySelectorAll(".drafts")) panel.hidden = !drafts;
  at("charts").classList.toggle("plain", !drafts);
  if (!drafts) return;
  new Chart("panel-acceptance", [{ name: "of drafted tokens", read: (sample) => (sample.tokens_proposed > 0 ? sample.tokens_accepted / sample.tokens_proposed : null) }], { say: percent, most: () => 1, none: "no draft in this time" });
  const past30 = (name) => (name === 31 ? "31+" : String(name));
  const total = (counts) => counts.reduce((sum, count) => sum + count, 0);
  bars = [
    new Bars("panel-positions", "position in the draft; last 10 min", () => {
      const drafted = past.sizes.tokens_proposed || [], right = past.sizes.tokens_accepted || [];
      const out = [];
      for (let position = 1; position < drafted.length; ++position) {
        const of = total(drafted.slice(position)), taken = Math.min(of, total(right.slice(position)));
        if (!of) break;
        out.push({ name: past30(position), part: taken / of, lines: [[`token ${past30(position)} of the draft`, percent(taken / of)], ["accepted", `${whole(taken)} of ${whole(of)}`]] });
      }
      return out;
    }),
    new Bars("panel-sizes", "tokens of a block; last 10 min", () => {
      const counts = past.sizes.tokens_committed || [], all = total(counts.slice(1));
      const last = counts.findLastIndex((count) => count > 0);
      return counts.slice(1, last + 1).map((count, index) => ({
        name: past30(index + 1), part: count / all,
        lines: [[index ? `${past30(index + 1)} tokens` : "1 token", percent(count / all)], ["blocks", `${whole(count)} of ${whole(all)}`]],
      }));
    }),
  ];
}

// On an axis there is less room.
function short(seconds) {
  return seconds >= 1 ? `${+seconds.toPrecision(2)} s` : seconds >= 1e-3 ? `${+(1e3 * seconds).toPrecision(2)} ms` : `${+(1e6 * seconds).toPrecision(2)} µs`;
}

// As long as nobody has chosen: as much as there is.
function chooseRange() {
  const age = past.samples.length ? end() - past.samples[0].time : 0, buttons = [...at("range").children];
  const button = buttons.find((each) => Number(each.value) > age) || buttons.at(-1);
  range = Number(button.value);
  for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
}

// Where there is little room the last one has the unit of all.
function inOneUnit(times) {
  const most = Math.max(...times);
  if (times.includes(null)) return times.map(() => "–");
  const [scale, unit] = most < 1e-3 ? [1e6, "µs"] : most < 1 ? [1e3, "ms"] : [1, "s"];
  return times.map((time, index) => {
    const value = time * scale;
    return `${value >= 10 ? value.toFixed(0) : value === 0 ? 0 : value.toPrecision(2)}${index === times.length - 1 ? ` ${unit}` : ""}`;
  });
}

function showPast() {
  if (!isChosen) chooseRange();
  for (const chart of charts) chart.show();
  for (const each of bars) each.show();
  for (const [id, name] of [["first", "first_token"], ["next", "next_token"]]) {
    const { count, p50, p95, p99 } = past.latencies[name];
    const line = at(id);
    line.replaceChildren(count ? span(p50) : "–", " ", make("small", "", "p50"));
    line.lines = [[line.previousElementSibling.textContent, "last 10 min"], ["p50", span(p50)], ["p95", span(p95)], ["p99", span(p99)], ["times", whole(count)]];
    line.setAttribute("aria-label", line.lines.map((each) => each.join(" ")).join(", "));
  }
  const mean = (counts) => counts.reduce((sum, count, size) => sum + count * size, 0) / counts.slice(1).reduce((sum, count) => sum + count, 0);
  if (past.sizes.tokens_committed) {
    const value = mean(past.sizes.tokens_committed);
    at("size").replaceChildren(value ? value.toFixed(2) : "–", " ", make("small", "", "mean"));
  }
  if (bars.length) {
    const first = bars[0].values && bars[0].values[0];
    at("position").replaceChildren(first ? percent(first.part) : "–", " ", make("small", "", "first"));
  }
  strips();
  showRequests();
}

// All percentiles of the last ten minutes, of who points at the first one.
for (const line of [at("first"), at("next")]) {
  const ask = () => {
    const box = line.getBoundingClientRect();
    if (line.lines) tip(line.lines, box.left, box.bottom + 2);
  };
  for (const name of ["pointerenter", "focus"]) line.addEventListener(name, ask);
  for (const name of ["pointerleave", "blur"]) line.addEventListener(name, () => { at("tip").hidden = true; });
}

// ---- Figures of now ----

function showFigures(now) {
  looks.push(now);
  while (looks.length > 2 && now.time - looks[0].time > 2.1) looks.shift();
  const then = looks[0], seconds = Math.max(1e-3, now.time - then.time);
  const rise = (read) => (looks.length > 1 ? read(now) - read(then) : 0);

  put(at("speed"), rounded(rise((each) => each.generated_tokens) / seconds));
  at("speed").title = `${whole(now.generated_tokens)} since the start`;
  put(at("running"), whole(now.running));
  put(at("waiting"), whole(now.waiting));
  const counts = (name) => (each) => each.metrics[name] || 0;
  const drafted = rise(counts("tokens_proposed")), accepted = rise(counts("tokens_accepted"));
  put(at("acceptance"), drafted > 0 ? percent(accepted / drafted) : "–");
  const passes = rise((each) => each.passes);
  put(at("per-pass"), passes > 0 ? (rise((each) => each.generated_tokens) / passes).toFixed(2) : "–");
  const fullest = now.pools.reduce((most, pool) => (pool.used * most.pages > most.used * pool.pages ? pool : most), now.pools[0]);
  if (fullest) at("kv").replaceChildren(`${whole(fullest.used)} `, make("small", "", `of ${whole(fullest.pages)}`));
  const busy = now.slots.filter((slot) => slot.request !== null).length;
  at("busy").replaceChildren(`${whole(busy)} `, make("small", "", `of ${whole(now.slots.length)} busy`));
}

// ---- Slots ----

const few = 16, many = 80; // slots that are rows, and from which on they are cells
let kind = "";

function makeSlots(now) {
  kind = now.slots.length <= few ? "rows" : now.slots.length < many ? "tiles" : "cells";
  at("slots").className = kind;
  put(at("scale"), kind === "rows" ? "strips: state each second, height: tokens a tick" : "");
  at("slots").replaceChildren(...now.slots.map((_, index) => {
    const item = make("li");
    item.tabIndex = index ? -1 : 0;
    if (kind === "rows") {
      item.append(make("span", "number", String(index)), make("span", "request"), make("span", "mark"), make("canvas"), make("span", "tokens"));
      const text = make("span", "text");
      text.append(make("bdi"));
      item.append(text);
    } else if (kind === "tiles") {
      const progress = make("span", "progress");
      progress.append(make("i"));
      item.append(make("span", "number", String(index)), make("span", "request"), make("span", "mark"), progress);
    }
    return item;
  }));
}

const textOf = (slot) => (slot.request === null ? "" : slot.text || texts.get(slot.request) || "");
let budgets = new Map(); // by request

function showSlots(now) {
  if (at("slots").children.length !== now.slots.length) makeSlots(now);
  const counts = new Map();
  let anyText = false;
  now.slots.forEach((slot, index) => {
    const item = at("slots").children[index], isFree = slot.request === null;
    const state = isFree ? null : isState(slot.state), mark = isFree ? "" : `var(${state.colour})`;
    counts.set(isFree ? null : slot.state, (counts.get(isFree ? null : slot.state) || 0) + 1);
    const said = `Slot ${index}, ${isFree ? "free" : `${slot.state}, request #${slot.request}`}`;
    if (item.getAttribute("aria-label") !== said) item.setAttribute("aria-label", said);
    if (item.classList.contains("free") !== isFree) item.classList.toggle("free", isFree);
    if (item.style.getPropertyValue("--mark") !== mark) item.style.setProperty("--mark", mark);
    item.classList.toggle("striped", !isFree && state.isStriped === true && kind === "cells");
    if (kind === "cells") {
      put(item, isFree ? "" : state.short);
      const ink = isFree ? "" : inkOn(colourOf(state.colour));
      if (item.style.getPropertyValue("--on") !== ink) item.style.setProperty("--on", ink);
      return;
    }
    const [, request, name, third, tokens, text] = item.children;
    put(request, isFree ? "" : `#${slot.request}`);
    put(name, isFree ? "free" : slot.state);
    if (kind === "tiles") {
      const budget = budgets.get(slot.request);
      third.firstChild.style.transform = `scaleX(${isFree || !budget ? 0 : Math.min(1, slot.generated / budget)})`;
      return;
    }
    put(tokens, isFree ? "" : `${whole(slot.prompt_tokens)} + ${whole(slot.generated)} tokens`);
    const shown = textOf(slot).slice(-160).replace(/\s+/g, " ").trim();
    anyText ||= shown !== "";
    put(text.firstChild, shown);
  });
  if (kind === "rows" && (anyText || now.shows_text)) at("slots").classList.add("texts"); // and it stays, so that nothing jumps
  for (const item of at("legend").children) {
    const name = item.className === "free" ? null : item.firstChild.data.trim();
    put(item.lastChild, whole(counts.get(name) || 0));
  }
  if (asked !== null) askSlot(asked);
}

// Each second's state of a slot, over the time that charts show.
function strips() {
  if (kind !== "rows" || !past.samples.length) return;
  const names = facts.states.map((state) => state.name), from = end() - range;
  const samples = past.samples.filter((sample) => sample.time >= from && sample.slots);
  const tokens = (sample, index) => (sample.ticks > 0 ? sample.slots[index][1] / sample.ticks : 0);
  const most = Math.max(2, ...samples.flatMap((sample) => sample.slots.map((_, index) => tokens(sample, index))));
  const ratio = devicePixelRatio || 1, height = Math.round(20 * ratio);
  const chosen = cursor === null ? null : nearest(cursor);
  [...at("slots").children].forEach((item, index) => {
    const canvas = item.querySelector("canvas"), wide = Math.round(canvas.clientWidth * ratio), pen = canvas.getContext("2d");
    if (!wide) return;
    if (canvas.width !== wide || canvas.height !== height) Object.assign(canvas, { width: wide, height });
    pen.clearRect(0, 0, wide, height);
    for (const sample of samples) {
      const place = sample.slots[index][0];
      if (place < 0) continue;
      const begin = Math.round((wide * Math.max(0, sample.time - sample.seconds - from)) / range), stop = Math.round((wide * (sample.time - from)) / range);
      const size = Math.round(height * (0.25 + 0.75 * Math.min(1, tokens(sample, index) / most)));
      pen.fillStyle = colourOf(isState(names[place]).colour);
      pen.fillRect(begin, height - size, Math.max(1, stop - begin), size);
    }
    if (!chosen) return;
    pen.fillStyle = colourOf("--text");
    pen.fillRect(Math.round((wide * (chosen.time - from)) / range), 0, Math.max(1, Math.round(ratio)), height);
  });
  put(at("scale"), `strips: state each second; height: tokens a tick, up to ${rounded(most)}`);
}

let asked = null; // the slot of which a tip tells

function slotLines(index) {
  const slot = facts.slots[index];
  if (slot.request === null) return [[`Slot ${index}`, "free"]];
  const record = past.requests.find((each) => each.number === slot.request);
  return [
    [`Slot ${index}`, `request #${slot.request}`], ["state", slot.state], ["prompt", `${whole(slot.prompt_tokens)} tokens`],
    ["generated", record ? `${whole(slot.generated)} of up to ${whole(record.budget)}` : whole(slot.generated)],
    ["in the KV pool", `${whole(slot.kv_tokens)} tokens`],
    ...(record && record.admitted !== null ? [["queued", span(record.admitted / 1000)]] : []),
    ...(record && record.first !== null ? [["first token after", span(record.first / 1000)]] : []),
  ];
}

function askSlot(index) {
  asked = index;
  const item = index === null ? null : at("slots").children[index];
  if (!item || !facts) return void (at("tip").hidden = true);
  const box = item.getBoundingClientRect();
  tip(slotLines(index), kind === "rows" ? box.left + 200 : box.right - 8, box.bottom + 2, kind === "rows" ? "" : textOf(facts.slots[index]).slice(-160));
}

at("slots").addEventListener("pointerover", (event) => {
  const item = event.target.closest("li");
  if (item) askSlot([...at("slots").children].indexOf(item));
});
at("slots").addEventListener("pointerleave", () => askSlot(null));
at("slots").addEventListener("focusin", (event) => {
  const items = [...at("slots").children];
  for (const item of items) item.tabIndex = item === event.target ? 0 : -1;
  if (!event.target.matches(":focus-visible")) return;
  askSlot(items.indexOf(event.target));
  speak();
});
at("slots").addEventListener("focusout", () => askSlot(null));
at("slots").addEventListener("keydown", (event) => {
  const items = [...at("slots").children], here = items.indexOf(document.activeElement);
  if (here < 0) return;
  const row = kind === "rows" ? 1 : getComputedStyle(at("slots")).gridTemplateColumns.split(" ").length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row, Home: -1e6, End: 1e6 }[event.key];
  if (event.key === "Escape") askSlot(null);
  if (event.key === "Enter" && facts.slots[here].request !== null) choose(facts.slots[here].request);
  if (!step) return;
  event.preventDefault();
  items[Math.max(0, Math.min(items.length - 1, here + step))].focus();
});
at("slots").addEventListener("click", (event) => {
  const index = [...at("slots").children].indexOf(event.target.closest("li"));
  if (index >= 0 && facts.slots[index].request !== null) choose(facts.slots[index].request);
});

// ---- Requests ----

const rows = new Map(); // by number
let filter = "all", opened = null, isHeld = false;
const phaseOf = (record) => (record.ended !== null ? "ended" : record.admitted === null ? "waiting" : "running");
const listed = 200;

// Milliseconds since it came, of an open one until the last look back.
const age = (record) => (record.ended !== null ? record.ended : Math.max(1, record.last || 0, 1000 * (past.time - record.arrived)));

function howOf(record) {
  if (record.ended === null) return record.admitted === null ? "waiting" : record.state;
  return record.finish === "error" && record.why ? { text: wordOf(record.why), isBad: true } : { text: record.finish === "abort" ? "taken back" : record.finish, isBad: record.finish === "error" };
}

function wordOf(why) {
  const fault = /faulted: (\w+)/.exec(why);
  return fault ? fault[1] : why.includes("not done within") ? "timeout" : why.includes("stopping") ? "server stopped" : "failed";
}

function showRequests() {
  const counts = { waiting: 0, running: 0, ended: 0 };
  budgets = new Map(past.requests.map((record) => [record.number, record.budget]));
  for (const record of past.requests) ++counts[phaseOf(record)];
  if (facts) Object.assign(counts, { waiting: Math.max(counts.waiting, facts.waiting), running: counts.running });
  for (const button of at("filter").children) if (button.lastElementChild) put(button.lastElementChild, whole(counts[button.value]));
  const wanted = past.requests.filter((record) => filter === "all" || phaseOf(record) === filter);
  const all = { running: 0, waiting: 1, ended: 2 };
  if (filter === "all") wanted.sort((one, other) => all[phaseOf(one)] - all[phaseOf(other)]);
  const shown = wanted.slice(0, listed);
  at("none").hidden = wanted.length > 0;
  document.querySelector("#list table").hidden = !wanted.length;
  if (!wanted.length && past.requests.length) put(at("none"), { waiting: "No request waits.", running: "No request runs.", ended: "No request has ended yet." }[filter] || "");
  const body = at("requests"), numbers = new Set(shown.map((record) => record.number));
  if (opened !== null && !wanted.some((record) => record.number === opened)) closeMore();
  if (!isHeld) {
    for (const [number, row] of rows) if (!numbers.has(number)) { row.item.remove(); rows.delete(number); }
    let before = null;
    for (const record of shown) {
      const row = rows.get(record.number) || makeRow(record.number);
      const place = before ? before.nextSibling : body.firstChild;
      if (place !== row.item) body.insertBefore(row.item, place);
      before = row.item;
      if (record.number === opened) {
        if (row.item.nextSibling !== more) row.item.after(more);
        before = more;
      }
    }
  }
  const known = new Map(past.requests.map((record) => [record.number, record]));
  for (const [number, row] of rows) if (known.has(number)) fill(row, known.get(number));
  if (opened !== null && known.has(opened)) showMore(known.get(opened));
  put(at("held"), isHeld ? "the order is held while you look" : wanted.length > listed ? `the first ${listed} of ${whole(wanted.length)}` : "");
}

function makeRow(number) {
  const item = make("tr"), cell = {};
  for (const name of ["number", "slot", "how", "prompt", "made", "queued", "first", "each", "total", "way"]) item.append((cell[name] = make("td", name)));
  const button = make("button", "", `#${number}`);
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `Request #${number}`);
  button.addEventListener("click", (event) => { event.stopPropagation(); choose(opened === number ? null : number); });
  item.addEventListener("click", () => choose(opened === number ? null : number));
  cell.number.append(button);
  cell.way.append(make("canvas"));
  const row = { item, cell, button, drawn: "" };
  rows.set(number, row);
  return row;
}

function fill(row, record) {
  const { cell } = row, how = howOf(record);
  put(cell.slot, record.slot === null ? "–" : String(record.slot));
  put(cell.how, how.text || how);
  cell.how.classList.toggle("bad", how.isBad === true);
  cell.how.title = record.why;
  put(cell.prompt, whole(record.prompt_tokens));
  put(cell.made, `${whole(record.tokens)} / ${whole(record.budget)}`);
  put(cell.queued, span((record.admitted === null ? age(record) : record.admitted) / 1000));
  put(cell.first, record.first === null ? "–" : span(record.first / 1000));
  put(cell.each, record.tokens > 1 ? span((record.last - record.first) / 1000 / (record.tokens - 1)) : "–");
  put(cell.total, span(age(record) / 1000));
  const canvas = cell.way.firstChild, ratio = devicePixelRatio || 1, wide = Math.round(canvas.clientWidth * ratio), height = Math.round(17 * ratio);
  const sign = `${wide} ${age(record)} ${record.tokens}`;
  if (!wide || row.drawn === sign) return;
  row.drawn = sign;
  Object.assign(canvas, { width: wide, height });
  const pen = canvas.getContext("2d"), last = age(record), x = (time) => Math.round((wide * time) / last);
  const box = (name, from, to, size) => {
    pen.fillStyle = colourOf(name);
    pen.fillRect(x(from), Math.round((height - size) / 2), Math.max(1, x(to) - x(from)), size);
  };
  const admitted = record.admitted === null ? last : record.admitted, first = record.first === null ? last : record.first;
  box("--queued", 0, admitted, Math.round(height / 5));
  if (record.admitted !== null) box("--prompt", admitted, first, Math.round(height / 2));
  if (record.first === null) return;
  box("--grid", first, last, Math.round(height / 5));
  const { blocks } = record;
  let most = 1;
  for (let place = 1; place < blocks.length; place += 2) most = Math.max(most, blocks[place]);
  pen.fillStyle = colourOf("--block");
  for (let place = 0; place < blocks.length; place += 2) {
    const size = Math.max(Math.round(height / 4), Math.round((height * blocks[place + 1]) / most));
    pen.fillRect(Math.min(wide - Math.ceil(ratio), x(blocks[place])), height - size, Math.max(1, Math.min(Math.round(2 * ratio), Math.floor((wide / blocks.length) * 1.2))), size);
  }
}

const more = make("tr", "more");
const moreCell = make("td"), moreChart = draw("svg", { role: "img" }), moreText = make("p", "small"), moreWhy = make("p", "why"), moreSaid = make("p", "text");
moreCell.append(moreText, moreChart, moreWhy, moreSaid);
more.append(moreCell);

function closeMore() {
  if (rows.has(opened)) rows.get(opened).button.setAttribute("aria-expanded", "false");
  opened = null;
  more.remove();
}

function choose(number) {
  closeMore();
  const record = past.requests.find((each) => each.number === number);
  if (!record) return;
  opened = number;
  if (filter !== "all" && phaseOf(record) !== filter) setFilter("all");
  if (!rows.has(number)) { isHeld = false; showRequests(); }
  const row = rows.get(number);
  if (!row) return closeMore();
  row.button.setAttribute("aria-expanded", "true");
  row.item.after(more);
  showMore(record);
  const list = at("list"), box = row.item.getBoundingClientRect(), frame = list.getBoundingClientRect();
  if (box.top < frame.top + 30 || box.bottom + 150 > frame.bottom) list.scrollTop += box.top - frame.top - 34;
}

// The way of one request, with its own axis.
function showMore(record) {
  moreCell.colSpan = [...document.querySelectorAll("#list th")].filter((each) => each.offsetWidth).length; // others would be made
  const last = age(record), wide = moreChart.clientWidth || 800, height = 96, low = height - bottom;
  const blocks = [], { per: together } = record;
  for (let place = 0; place < record.blocks.length; place += 2) blocks.push([record.blocks[place], record.blocks[place + 1]]);
  const most = Math.max(1, ...blocks.map(([, count]) => count)), x = (time) => left + (time / last) * (wide - left - right);
  const parts = [[`came at ${clock(record.arrived)}`], [`queued ${span((record.admitted === null ? last : record.admitted) / 1000)}`]];
  if (record.admitted !== null) parts.push([`prompt ${span(((record.first === null ? last : record.first) - record.admitted) / 1000)}`]);
  if (record.first !== null) parts.push([`${whole(record.tokens)} tokens in ${span(((record.last || record.first) - record.first) / 1000)}`]);
  if (together > 1) parts.push([`a bar is up to ${together} blocks`]);
  put(moreText, parts.join(" · "));
  moreChart.setAttribute("viewBox", `0 0 ${wide} ${height}`);
  moreChart.setAttribute("aria-label", moreText.textContent);
  moreChart.replaceChildren();
  const box = (name, from, to) => draw("rect", { class: name, x: x(from), y: above, width: Math.max(1, x(to) - x(from)), height: low - above }, moreChart);
  const label = (text, x, y, anchor) => { draw("text", { x, y, "text-anchor": anchor }, moreChart).textContent = text; };
  for (const [part, text] of [[0, "0"], [1, String(most)]]) {
    const y = Math.round(low - part * (low - above)) + 0.5;
    draw("path", { class: "grid", d: `M${left} ${y}H${wide - right}` }, moreChart);
    label(text, left - 5, y + 3.5, "end");
  }
  for (let part = 0; part <= 4; ++part) label(short((last * part) / 4000) === "0 µs" ? "0" : short((last * part) / 4000), x((last * part) / 4), height - 4, part === 0 ? "start" : part === 4 ? "end" : "middle");
  box("queued", 0, record.admitted === null ? last : record.admitted);
  if (record.admitted !== null) box("prompt", record.admitted, record.first === null ? last : record.first);
  const thick = Math.max(1, Math.min(5, (wide - left - right) / Math.max(24, 2 * blocks.length)));
  for (const [time, count] of blocks) {
    const bar = draw("rect", { class: "block", x: Math.min(x(time), wide - right - thick), y: low - (count / most) * (low - above), width: thick, height: (count / most) * (low - above) }, moreChart);
    draw("title", {}, bar).textContent = `${count} tokens after ${span(time / 1000)}`;
  }
  put(moreWhy, record.why);
  moreWhy.hidden = !record.why;
  const said = record.text || texts.get(record.number) || "";
  put(moreSaid, said);
  moreSaid.hidden = !said;
}

function setFilter(name) {
  filter = name;
  for (const button of at("filter").children) button.setAttribute("aria-pressed", String(button.value === name));
}

at("filter").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  setFilter(button.value);
  isHeld = false;
  showRequests();
});

const hold = (value) => { isHeld = value; };
at("requests").addEventListener("pointerenter", () => hold(true));
at("requests").addEventListener("pointerleave", () => { hold(at("requests").contains(document.activeElement) && document.activeElement.matches(":focus-visible")); });
at("requests").addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) hold(true); });
at("requests").addEventListener("focusout", () => hold(false));

at("range").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  isChosen = true;
  range = Number(button.value);
  for (const each of at("range").children) each.setAttribute("aria-pressed", String(each === button));
  if (facts) showPast();
});

// ---- The loop ----

function say(text, kind) {
  put(at("state"), text);
  at("state").className = kind || "";
}

function tell(text, kind) {
  at("notice").hidden = !text;
  at("notice").className = kind || "";
  put(at("notice"), text || "");
}

let patience = 5; // seconds for figures of now
let slowly = 1000; // ms between looks when nothing answers, or little may move
let lost = null; // since when nothing answers
let stopping = false;

// Of a server that differs in it, the page is made anew.
const kindOf = (now) => JSON.stringify([now.model, now.pipeline, now.device, now.version, now.states, now.slots.length, now.pools.map((pool) => [pool.model, pool.pages]), now.samples, now.has_chat]);

async function look() {
  const now = await read("stats", patience);
  const isFirst = !facts;
  if (!isFirst && kindOf(now) !== kindOf(facts)) return location.reload();
  if (isFirst) {
    document.title = `${now.model} – Megalith`;
    at("what").textContent = `${now.model} with ${now.pipeline}, on ${now.device}`;
    at("address").textContent = new URL("v1/completions", location).href;
    at("temperature-label").hidden = !now.samples;
    at("chat-label").hidden = !now.has_chat;
    at("chat").checked = now.has_chat;
    readStates(now.states);
    facts = now;
    makeCharts(now);
  }
  if (now.started !== facts.started) looks.length = 0; // it has begun anew, and so have its counts
  facts = now;
  showFigures(now);
  showSlots(now);
  fit();
  if (now.history !== past.next || past.started !== now.started) await lookBack();
  lost = null;
  at("key").hidden = true;
  document.querySelector("main").classList.remove("old");
  failure = now.failure;
  stopping = now.drains;
  if (failure) {
    tell(`The engine has failed: ${failure}. The server ends.`, "bad");
    return say("failed", "bad");
  }
  tell(stopping ? "The server is stopping: it takes no more requests, and ends those that are there." : "", "warn");
  if (stopping) return say("stopping", "warn");
  say(now.running + now.waiting ? "at work" : "idle", "good");
}

// What the list of requests has room for below all else.
function fit() {
  const over = `${Math.round(at("list").getBoundingClientRect().top + scrollY) + 22}px`;
  if (at("list").style.getPropertyValue("--above") !== over) at("list").style.setProperty("--above", over);
}

function isNot(error) {
  const isKnown = [NoAnswer, NoFigures, NoKey].some((kind) => error instanceof kind);
  if (!isKnown) return reportError(error);
  lost ||= new Date(Date.now() + ahead).toLocaleTimeString("en-GB");
  document.querySelector("main").classList.toggle("old", facts !== null);
  at("key").hidden = !(error instanceof NoKey);
  const shown = facts ? ` What is shown is of ${lost}.` : "";
  if (error instanceof NoKey) {
    tell(key ? `The key is wrong.${shown}` : "", "bad");
    return say(key ? "the key is wrong" : "a key is needed", "bad");
  }
  if (error instanceof NoFigures) {
    tell(`The server gives no figures: ${error.message}.${shown}`, "bad");
    return say("no figures", "bad");
  }
  say("the server does not answer", "bad");
  if (failure || stopping) return tell((failure ? `The engine has failed: ${failure}. The server has ended.` : "The server has stopped.") + shown, "bad");
  tell(`The server does not answer since ${lost}.${facts ? " What is shown is of then." : ""}`, "bad");
}

async function loop() {
  while (true) {
    if (!document.hidden) await look().catch(isNot);
    const pause = calm.matches || lost ? slowly : kind === "cells" ? 500 : 200; // ms between looks
    await new Promise((done) => setTimeout(done, pause));
  }
}

function redraw() {
  style = null;
  for (const row of rows.values()) row.drawn = "";
  if (!facts) return;
  fit();
  showSlots(facts);
  showPast();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);

// ---- Try it ----

// Objects of a stream of server-sent events.
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events)
      if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6));
  }
}

// A browser has six connections to a server, and the figures need one.
let free = 4;
const queue = [];

async function connection() {
  if (free > 0) --free;
  else await new Promise((done) => queue.push(done));
}

function giveBack() {
  if (queue.length) queue.shift()();
  else ++free;
}

// The text of one choice.
class Card {
  constructor(prompt, control) {
    this.card = make("div", "answer");
    this.text = make("pre");
    this.note = make("span", "note", "waiting");
    this.stop = make("button", "plain", "stop");
    this.stop.addEventListener("click", () => control.abort());
    const foot = make("p");
    foot.append(this.note, this.stop);
    this.text.append(make("b", "", prompt), make("span"));
    this.card.append(this.text, foot);
    at("answers").prepend(this.card);
    this.first = null;
    this.last = 0;
    this.finish = null;
  }

  add(piece, begin) {
    if (this.first === null) {
      this.first = performance.now();
      put(this.note, `first text after ${rounded(this.first - begin)} ms`);
    }
    const isAtEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 30;
    this.text.lastChild.textContent += piece;
    if (isAtEnd) this.text.scrollTop = this.text.scrollHeight;
    this.last = performance.now();
  }

  end(text, isBad) {
    put(this.note, text);
    this.card.classList.toggle("bad", Boolean(isBad));
    this.stop.remove();
  }
}

async function ask(prompt, isChat, settings) {
  const control = new AbortController();
  const cards = Array.from({ length: settings.copies }, () => new Card(isChat ? "" : prompt, control)).reverse();
  while (at("answers").children.length > 48) at("answers").lastChild.remove();
  let numbers = [], usage = null;
  await connection();
  const begin = performance.now();
  try {
    control.signal.throwIfAborted();
    const body = { model: facts.model, stream: true, stream_options: { include_usage: true }, max_tokens: settings.budget, n: settings.copies };
    if (facts.samples) body.temperature = settings.temperature;
    if (isChat) body.messages = [{ role: "user", content: prompt }];
    else body.prompt = prompt;
    const answer = await call(isChat ? "v1/chat/completions" : "v1/completions", body, control.signal);
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    numbers = answer.headers.get("X-Megalith-Requests").split(",").map(Number);
    for await (const event of eventsOf(answer)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      for (const choice of event.choices) {
        const card = cards[choice.index], piece = choice.delta ? choice.delta.content : choice.text;
        if (piece) {
          card.add(piece, begin);
          texts.set(numbers[choice.index], card.text.lastChild.textContent.slice(-160));
        }
        if (!choice.finish_reason) continue;
        card.finish = choice.finish_reason;
        if (cards.length > 1) card.end(`done, ${card.finish}`);
      }
    }
    if (cards.length === 1) {
      const tokens = usage ? usage.completion_tokens : 0, card = cards[0];
      const rate = tokens > 1 && card.last > card.first ? `, ${rounded(((tokens - 1) * 1000) / (card.last - card.first))} a second` : "";
      card.end(`${tokens} tokens${rate}, ${card.finish}`);
    }
  } catch (error) {
    const isBad = error.name !== "AbortError";
    for (const card of cards) if (!card.finish) card.end(isBad ? error.message : "stopped", isBad);
  }
  giveBack();
  numbers.forEach((number) => texts.delete(number));
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!facts) return;
  const number = (id) => Number(at(id).value);
  const settings = { budget: number("budget"), temperature: number("temperature"), copies: Math.max(1, number("copies")) };
  ask(at("prompt").value, at("chat").checked && facts.has_chat, settings);
});

at("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("ask").requestSubmit();
});

at("key").addEventListener("submit", (event) => {
  event.preventDefault();
  key = at("key-text").value;
  sessionStorage.setItem(keyName, key);
});

loop();
