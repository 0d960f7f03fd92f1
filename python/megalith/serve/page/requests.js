// The list of requests, and the way of one of them.
"use strict";

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
