// The charts of this server, and the figures of now.
"use strict";

const per = (name) => (sample) => (sample.seconds > 0 && sample[name] !== null ? sample[name] / sample.seconds : null);
const percentiles = (name) => ["p50", "p95", "p99"].map((label, index) => ({ name: label, read: (sample) => sample[name][index] }));
let bars = [];

function makeCharts(now) {
  new Chart("panel-speed", [{ name: "generated", read: per("generated_tokens") }, { name: "of prompts", read: per("prompt_tokens") }], { tell: rounded });
  new Chart("panel-requests", [{ name: "running", read: (sample) => sample.running }, { name: "waiting", read: (sample) => sample.waiting }], { say: whole, least: 2 });
  new Chart("panel-first", percentiles("first_token"), { log: true, say: short, tell: span, keys: inOneUnit });
  new Chart("panel-next", percentiles("next_token"), { log: true, say: short, tell: span, keys: inOneUnit });
  const ofPool = (name, member) => (pool, index) => ({ name: name(pool.model), read: (sample) => sample[member][index] / Math.max(1, pool.pages) });
  const used = now.pools.map(ofPool((model) => model, "pools")), cached = now.pools.map(ofPool((model) => `${model}, cached`, "cached")).filter((_, index) => now.pools[index].cached !== null);
  new Chart("panel-kv", [...used, ...cached], { say: percent, most: () => 1 });
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
  if (fullest) at("kv").replaceChildren(`${whole(fullest.used)} `, make("small", "", `of ${whole(fullest.pages)}${fullest.cached !== null ? `, ${whole(fullest.cached)} cached` : ""}`));
  const busy = now.slots.filter((slot) => slot.request !== null).length;
  at("busy").replaceChildren(`${whole(busy)} `, make("small", "", `of ${whole(now.slots.length)} busy`));
}
