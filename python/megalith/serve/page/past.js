// The last ten minutes, as the server tells them.
"use strict";

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
    if (isOther) return lookBack(); // another server; it was asked for what came after the old one's
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
