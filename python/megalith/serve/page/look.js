// Looks at the server again and again, and tells what keeps it from that.
"use strict";

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

at("key").addEventListener("submit", (event) => {
  event.preventDefault();
  key = at("key-text").value;
  sessionStorage.setItem(keyName, key);
});

loop();
