// Lines and bars over time, and the tip beside the pointer.
"use strict";

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
