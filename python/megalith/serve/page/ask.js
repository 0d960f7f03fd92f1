// Requests of this page.
"use strict";

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
