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
