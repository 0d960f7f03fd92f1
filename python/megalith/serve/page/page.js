// What the server does, as it does it. Figures come from /stats, texts from the API that all clients use.
"use strict";

const every = 200; // ms between looks
const kept = 150; // looks that lines and strips show
const at = (id) => document.getElementById(id);
const series = { speed: [], running: [], acceptance: [], "per-pass": [] };
const looks = []; // the last second's, for rates
const states = []; // in the order in which they were seen; the place is the colour
const strips = []; // by slot: colour of its state, and tokens a tick, at each look
let before = null; // the last look
const texts = new Map(); // of this page's own requests, by number
let key = sessionStorage.getItem("megalith-key");
let facts = null;

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function rounded(value) {
  return value >= 100 || value === 0 ? Math.round(value).toLocaleString("en") : value.toPrecision(value >= 10 ? 3 : 2);
}

function call(path, body, signal) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (!body) return fetch(path, { headers, signal });
  headers["Content-Type"] = "application/json";
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

// ---- Figures ----

function colour(state) {
  if (!states.includes(state)) {
    const item = make("li", "", state);
    item.style.setProperty("--mark", `var(--s${states.length % 8})`);
    at("legend").append(item);
    states.push(state);
  }
  return `--s${states.indexOf(state) % 8}`;
}

function draw(name, value, top) {
  const values = series[name];
  values.push(value);
  if (values.length > kept) values.shift();
  const line = at(`${name}-line`);
  if (!line.firstChild) {
    line.setAttribute("viewBox", `0 0 ${kept - 1} 100`);
    line.setAttribute("preserveAspectRatio", "none");
    for (const kind of ["fill", "stroke"]) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", kind);
      line.append(path);
    }
  }
  const most = top || Math.max(1e-9, ...values.filter((each) => each !== null));
  let stroke = "", fill = "", begin = null;
  const close = (x) => { if (begin !== null) fill += `L${x} 100L${begin} 100Z`; begin = null; };
  values.forEach((each, index) => {
    const x = kept - values.length + index;
    if (each === null) return close(x - 1);
    const y = (97 - 92 * Math.min(1, each / most)).toFixed(1);
    stroke += `${begin === null ? "M" : "L"}${x} ${y}`;
    fill += `${begin === null ? "M" : "L"}${x} ${y}`;
    if (begin === null) begin = x;
  });
  close(kept - 1);
  line.children[0].setAttribute("d", fill);
  line.children[1].setAttribute("d", stroke);
}

function showFigures(now) {
  looks.push(now);
  while (looks.length > 2 && now.time - looks[0].time > 1.1) looks.shift();
  const then = looks[0], seconds = Math.max(1e-3, now.time - then.time);
  const rise = (read) => (looks.length > 1 ? read(now) - read(then) : 0);
  const rate = (read) => rise(read) / seconds;

  const speed = rate((each) => each.generated_tokens);
  put(at("speed"), rounded(speed));
  draw("speed", speed);
  put(at("total"), `${now.generated_tokens.toLocaleString("en")} since the start`);

  put(at("running"), String(now.running));
  put(at("waiting"), String(now.waiting));
  draw("running", now.running + now.waiting);
  const ended = Object.entries(now.finished).filter(([, count]) => count).map(([name, count]) => `${count.toLocaleString("en")} ${name}`);
  put(at("ended"), ended.length ? `ended: ${ended.join(", ")}` : "none has ended");

  const counts = (name) => (each) => each.metrics[name] || 0;
  const drafted = rise(counts("tokens_proposed")), accepted = rise(counts("tokens_accepted"));
  at("drafts").hidden = !("tokens_proposed" in now.metrics);
  put(at("acceptance"), drafted > 0 ? `${Math.round((100 * accepted) / drafted)} %` : "–");
  draw("acceptance", drafted > 0 ? accepted / drafted : null, 1);
  put(at("drafted"), `${Math.round(accepted / seconds)} of ${Math.round(drafted / seconds)} a second`);

  const passes = rise((each) => each.passes);
  const perPass = passes > 0 ? rise((each) => each.generated_tokens) / passes : null;
  put(at("per-pass"), perPass === null ? "–" : perPass.toFixed(2));
  draw("per-pass", perPass);
  put(at("passes"), `${Math.round(passes / seconds)} passes a second`);

  const pools = at("pools");
  now.pools.forEach((pool, index) => {
    if (!pools.children[index]) {
      const one = make("div", "pool"), line = make("p"), bar = make("div", "bar");
      line.append(make("span"), make("span"));
      bar.append(make("div"));
      one.append(line, bar);
      pools.append(one);
    }
    const [line, bar] = pools.children[index].children;
    put(line.children[0], pool.model);
    put(line.children[1], `${pool.used.toLocaleString("en")} of ${pool.pages.toLocaleString("en")}`);
    bar.firstChild.style.width = `${(100 * pool.used) / Math.max(1, pool.pages)}%`;
  });
}

// ---- Slots ----

function makeSlot(index) {
  const item = make("li");
  item.append(make("span", "number", String(index)), make("span", "request"), make("span", "mark"), make("canvas"), make("span", "tokens"));
  const text = make("span", "text");
  text.append(make("bdi"));
  item.append(text);
  at("slots").append(item);
  strips[index] = new Array(kept).fill(null);
  return item;
}

function showSlots(now) {
  const style = getComputedStyle(document.documentElement);
  now.slots.forEach((slot, index) => {
    const item = at("slots").children[index] || makeSlot(index);
    const isFree = slot.request === null;
    item.classList.toggle("free", isFree);
    const part = (name) => item.querySelector(`.${name}`);
    put(part("request"), isFree ? "" : `#${slot.request}`);
    put(part("mark"), isFree ? "free" : slot.state);
    part("mark").style.setProperty("--mark", isFree ? "var(--empty)" : `var(${colour(slot.state)})`);
    put(part("tokens"), isFree ? "" : `${slot.prompt_tokens.toLocaleString("en")} + ${slot.generated.toLocaleString("en")} tokens`);
    const text = isFree ? "" : slot.text || texts.get(slot.request) || "";
    put(item.querySelector("bdi"), text.slice(-160).replace(/\s+/g, " ").trim());
    part("text").hidden = !text;
    const strip = strips[index];
    strip.push(isFree ? null : { colour: colour(slot.state), tokens: perTick(slot, index, now) });
    strip.shift();
  });
  const most = Math.max(2, ...strips.flat().map((each) => (each ? each.tokens : 0)));
  put(at("scale"), `height: tokens a tick, up to ${rounded(most)}`);
  strips.forEach((strip, index) => {
    const canvas = at("slots").children[index].querySelector("canvas"), pen = canvas.getContext("2d");
    canvas.width = kept * 4;
    canvas.height = 40;
    strip.forEach((each, place) => {
      if (!each) return;
      const height = 6 + Math.round((34 * each.tokens) / most);
      pen.fillStyle = style.getPropertyValue(each.colour);
      pen.fillRect(place * 4, 40 - height, 4, height);
    });
  });
}

// What a request has got in a tick since the last look: the block that was accepted, for one that drafts.
function perTick(slot, index, now) {
  const then = before && before.slots[index];
  const last = strips[index][kept - 1];
  if (!then || then.request !== slot.request) return 0;
  const ticks = now.ticks - before.ticks;
  return ticks > 0 ? (slot.generated - then.generated) / ticks : last ? last.tokens : 0;
}

// ---- The loop ----

function say(text, kind) {
  put(at("state"), text);
  at("state").className = kind || "";
}

async function look() {
  const answer = await call("/stats");
  at("key").hidden = answer.status !== 401;
  if (answer.status === 401) return say(key ? "the key is wrong" : "a key is needed", "bad");
  if (!answer.ok) return say(`no figures: ${answer.status}`, "bad");
  const now = await answer.json();
  if (!facts) {
    document.title = `${now.model} – Megalith`;
    at("what").textContent = `${now.model} with ${now.pipeline}, on ${now.device}`;
    at("temperature-label").hidden = !now.samples;
    at("chat-label").hidden = !now.has_chat;
    at("chat").checked = now.has_chat;
  }
  facts = now;
  showFigures(now);
  showSlots(now);
  before = now;
  say(now.drains ? "stopping" : now.running + now.waiting ? "at work" : "idle", now.drains ? "bad" : "good");
}

async function loop() {
  while (true) {
    if (!document.hidden) await look().catch(() => say("the server does not answer", "bad"));
    await new Promise((done) => setTimeout(done, every));
  }
}

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
    const answer = await call(isChat ? "/v1/chat/completions" : "/v1/completions", body, control.signal);
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
  sessionStorage.setItem("megalith-key", key);
});

loop();
