// The slots, and what each of them does.
"use strict";

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
