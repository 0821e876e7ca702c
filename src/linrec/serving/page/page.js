"use strict";
// Everything that came from the server is written as text, never as markup.

const ASKED = 10; // recommendations
const SHOWN = 100; // events of a history
const WAIT = 150; // milliseconds after a key before a search is sent
const TOKEN = "linrec-token";

const $ = (id) => document.getElementById(id);
const state = {
  mode: "user", // or "history"
  user: null,
  fresh: false, // nobody knows this user yet
  made: [], // the made-up history
  past: [], // the history that is shown
  items: [], // the recommendations that are shown
  source: null, // where they came from
  chosen: null, // the one that is explained
  turn: 0, // of the newest request
  seen: null, // "hide" or "keep", once chosen here
};

class ServerError extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

async function ask(method, path, body, signal) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  const begin = performance.now();
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer. Is it still running?", 0);
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok || content === null) {
    throw new ServerError((content && content.error) || `The server answered ${answer.status}.`, answer.status);
  }
  return { content, ms: performance.now() - begin };
}

function make(tag, properties = {}, ...children) {
  const { label, ...others } = properties;
  const element = Object.assign(document.createElement(tag), others);
  if (label) element.setAttribute("aria-label", label);
  element.append(...children);
  return element;
}

const show = (id, text) => {
  $(id).hidden = !text;
  $(id).textContent = text || "";
};
const titled = (item) => item.title || item.item;
const signed = (number) => (number < 0 ? "−" : "+") + Math.abs(number).toFixed(2);
const took = (ms) => `answered in ${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
const whom = () => (state.mode === "user" ? { user: state.user } : { history: state.made.map((i) => i.item) });
/** When the recommendations are for; the server takes now if nothing is said. */
const asOf = () => {
  const kind = $("at-kind").value;
  const seconds = Date.parse($("at-time").value) / 1000;
  if (kind === "unknown") return { at: "unknown" };
  return kind === "time" && Number.isFinite(seconds) ? { at: seconds } : {};
};
/** Nothing is said until somebody turns the switch, so that the run decides. */
const seen = () => (state.seen === null ? {} : { seen: state.seen });
/** Times are seconds since 1970; what no calendar has stays a number. */
const dated = (seconds) => {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return String(seconds);
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
};
const nobody = () => state.mode === "user" && state.user === null;

// ---- errors and the token

function fail(error) {
  if (error.name === "AbortError") return;
  $("error").hidden = false;
  $("error-text").textContent = error.message;
  if (error.status === 401) openToken("This server asks for a token. It is kept until this tab is closed.");
}

function openToken(why) {
  if (why) $("token-why").textContent = why;
  $("token-form").hidden = false;
  $("token-button").setAttribute("aria-expanded", "true");
  $("token").focus();
}

function closeToken() {
  $("token-form").hidden = true;
  $("token-button").setAttribute("aria-expanded", "false");
}

// ---- a field that finds as one types (the ARIA combobox pattern)

function combobox(name, find, choose) {
  const input = $(`${name}-search`);
  const list = $(`${name}-options`);
  let options = [];
  let active = -1;
  let timer;
  let running;

  const close = () => {
    clearTimeout(timer);
    if (running) running.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  };
  const point = (place) => {
    active = place;
    [...list.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === place)));
    if (place < 0) return;
    input.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  };
  const take = (option) => {
    close();
    choose(option, input);
  };
  const row = (option, at) => {
    const element = make("li", { id: `${name}-option-${at}` }, make("span", {}, option.text));
    if (option.hint) element.append(" ", make("span", { className: "id" }, option.hint));
    element.setAttribute("role", "option");
    element.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
    element.addEventListener("click", () => take(option));
    return element;
  };
  const open = () => {
    const nothing = make("li", {}, "Nothing found");
    nothing.setAttribute("role", "option");
    nothing.setAttribute("aria-disabled", "true");
    list.replaceChildren(...(options.length ? options.map(row) : [nothing]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    point(-1);
  };
  const search = async () => {
    if (running) running.abort();
    running = new AbortController();
    try {
      options = await find(input.value.trim(), running.signal);
      if (document.activeElement === input) open();
    } catch (error) {
      fail(error);
    }
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(search, WAIT);
  };

  input.addEventListener("input", later);
  input.addEventListener("focus", later);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move && list.hidden) {
      search();
    } else if (move && options.length) {
      point((active + move + options.length) % options.length);
    } else if (event.key === "Enter" && !list.hidden && options.length) {
      take(options[Math.max(active, 0)]);
    } else if (event.key === "Escape") {
      close();
    } else {
      return;
    }
    event.preventDefault();
  });
}

async function findUsers(text, signal) {
  const { content } = await ask("GET", `v1/users?limit=8&search=${encodeURIComponent(text)}`, undefined, signal);
  const found = content.users.map((user) => ({ user, text: user }));
  if (text && !content.users.includes(text)) found.push({ user: text, text, hint: "someone new", fresh: true });
  return found;
}

async function findItems(text, signal) {
  const { content } = await ask("GET", `v1/items?limit=8&search=${encodeURIComponent(text)}`, undefined, signal);
  return content.items.map((item) => ({ item, text: titled(item), hint: item.item }));
}

// ---- what happens

function choose(user, fresh = false) {
  state.user = user;
  state.fresh = fresh;
  $("user-search").value = user;
  history.replaceState(null, "", `#user=${encodeURIComponent(user)}`);
  forget();
  refresh();
}

function forget() {
  state.items = [];
  state.chosen = null;
}

async function append(item) {
  if (nobody()) {
    $("user-search").focus();
    return;
  }
  try {
    if (state.mode === "user") {
      // an id of its own: sent twice, the event counts once
      const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
      await ask("POST", "v1/events", { user: state.user, events: [{ item: item.item, id }] });
      state.fresh = false;
    } else {
      state.made.push({ item: item.item, title: item.title });
    }
    await refresh();
    $("said").textContent = `Added ${titled(item)}. ${$("said").textContent}`;
  } catch (error) {
    fail(error);
  }
}

async function past() {
  if (state.mode === "history") return { history: state.made, events: state.made.length };
  if (state.fresh) return { history: [], events: 0 };
  try {
    const path = `v1/users/${encodeURIComponent(state.user)}?limit=${SHOWN}`;
    return (await ask("GET", path)).content;
  } catch (error) {
    if (error.status === 404) return { history: [], events: 0 };
    throw error;
  }
}

async function refresh() {
  const turn = ++state.turn;
  $("error").hidden = true;
  if (nobody()) {
    drawHistory({ history: [], events: 0 });
    drawNext(null);
    return;
  }
  try {
    const [before, next] = await Promise.all([
      past(),
      ask("POST", "v1/recommendations", { ...whom(), ...asOf(), ...seen(), k: ASKED }),
    ]);
    if (turn !== state.turn) return; // a newer request was made
    drawHistory(before);
    drawNext(next);
    await explain();
  } catch (error) {
    if (turn === state.turn) fail(error);
  }
}

async function explain() {
  const turn = state.turn;
  const item = state.items.find((one) => one.item === state.chosen);
  $("why").hidden = !item;
  drawEffects([]);
  if (!item) return;
  $("why-heading").textContent = `Why ${titled(item)}?`;
  if (state.source === "cold-start") {
    drawStrip([], "Nothing is known yet, so these are the items most people had.");
    return;
  }
  const { content, ms } = await ask("POST", "v1/explanations", { ...whom(), ...asOf(), item: item.item });
  if (turn !== state.turn || item.item !== state.chosen) return;
  $("why-latency").textContent = took(ms);
  drawStrip(content.events, "");
  drawEffects(content.events);
}

async function select(item) {
  state.chosen = item;
  for (const row of $("next").children) mark(row, row.dataset.item === item);
  await explain().catch(fail);
}

// ---- drawing

function drawHistory({ history, events }) {
  state.past = history.slice(-SHOWN);
  const rows = state.past.map((event, place) => {
    const row = make("li", {}, make("span", { className: "name" }, titled(event)), make("span", { className: "effect" }));
    if (event.time !== undefined) row.append(make("time", { className: "when" }, dated(event.time)));
    if (state.mode === "history") {
      const remove = make("button", { type: "button", className: "quiet", label: `Remove ${titled(event)}` }, "✕");
      remove.addEventListener("click", () => {
        state.made.splice(history.length - state.past.length + place, 1);
        refresh();
      });
      row.append(remove);
    }
    return row;
  });
  $("history").replaceChildren(...rows.reverse()); // the newest on top
  $("history").hidden = !rows.length;
  $("clear").hidden = state.mode !== "history" || !rows.length;
  $("history-heading").textContent = events ? `History · ${events.toLocaleString("en")} events` : "History";
  const empty = {
    user: state.user === null ? "Nobody is chosen yet." : "Nothing is known of this user yet.",
    history: "Empty so far: add an item above, or from the list.",
  }[state.mode];
  show("history-empty", rows.length ? "" : empty);
  const older = events - rows.length;
  show("history-more", older > 0 ? `and ${older.toLocaleString("en")} older` : "");
}

function drawNext(next) {
  const list = $("next");
  const before = new Map([...list.children].map((row, place) => [row.dataset.item, { row, place, top: row.offsetTop }]));
  state.items = next ? next.content.items : [];
  state.source = next && next.content.source;
  if (!state.items.some((item) => item.item === state.chosen)) state.chosen = state.items.length ? state.items[0].item : null;
  const shares = sharesOf(state.items, state.source);
  const rows = state.items.map((item, place) => {
    const known = before.get(item.item);
    const row = known ? known.row : nextRow(item);
    fill(row, item, place, shares[place], before.size ? (known ? known.place - place : null) : 0);
    return row;
  });
  list.replaceChildren(...rows);
  list.hidden = !rows.length;
  if (!next) $("why").hidden = true;
  animate(rows, before);
  tell(next);
}

function nextRow(item) {
  const pick = make("button", { type: "button", className: "pick" },
    make("span", { className: "name" }), make("span", { className: "bar" }, make("i")), make("span", { className: "score" }));
  const add = make("button", { type: "button", className: "add", label: `Add ${titled(item)} to the history` }, "Add");
  const row = make("li", {}, make("span", { className: "place" }), pick, add);
  row.dataset.item = item.item;
  pick.addEventListener("click", () => select(item.item));
  add.addEventListener("click", () => append(item));
  return row;
}

function fill(row, item, place, share, moved) {
  const [number, pick] = row.children;
  number.replaceChildren(String(place + 1));
  if (moved !== 0) {
    const text = moved === null ? "new" : moved > 0 ? `▲${moved}` : `▼${-moved}`;
    const badge = make("span", { className: moved < 0 ? "moved down" : "moved" }, text);
    badge.setAttribute("aria-hidden", "true");
    number.append(badge);
  }
  pick.querySelector(".name").textContent = titled(item);
  pick.querySelector(".score").textContent = Math.abs(item.score) < 1000 ? item.score.toFixed(2) : Math.round(item.score).toLocaleString("en");
  pick.querySelector("i").style.setProperty("--share", share);
  pick.setAttribute("aria-label", `${place + 1}. ${titled(item)}, score ${item.score.toFixed(2)}. Explain.`);
  mark(row, item.item === state.chosen);
}

function mark(row, chosen) {
  row.classList.toggle("selected", chosen);
  row.querySelector(".pick").setAttribute("aria-pressed", String(chosen));
}

/** How likely each is compared with the first: exp of a difference of scores, or a ratio of counts. */
function sharesOf(items, source) {
  const best = items.length ? items[0].score : 0;
  return items.map(({ score }) => (source === "cold-start" ? score / (best || 1) : Math.exp(score - best)));
}

function animate(rows, before) {
  if (!before.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of rows) {
    const known = before.get(row.dataset.item);
    const from = known ? { transform: `translateY(${known.top - row.offsetTop}px)` } : { opacity: 0, transform: "translateX(1.5rem)" };
    row.animate([from, { opacity: 1, transform: "none" }], { duration: 500, easing: "cubic-bezier(.2,.8,.2,1)" });
  }
}

function tell(next) {
  const popular = state.source === "cold-start";
  show("next-empty", next ? (state.items.length ? "" : "Nothing is left to recommend.") : "Choose a user, or make up a history.");
  show("notes", next && next.content.notes.join(" "));
  show("source", next && (popular ? "most popular" : "from the model"));
  $("source").classList.toggle("popular", popular);
  $("latency").textContent = next ? took(next.ms) : "";
  show("scale", state.items.length ? (popular ? "Scores are numbers of events." : "Bars: how likely, compared with the first.") : "");
  $("said").textContent = next ? `${state.items.length} recommendations, ${popular ? "the most popular items" : "from the model"}.` : "";
}

function drawStrip(events, empty) {
  show("why-empty", empty);
  $("strip-frame").hidden = $("readout").hidden = !events.length;
  if (!events.length) $("why-latency").textContent = "";
  const values = events.map((event) => event.contribution);
  const high = Math.max(0, ...values);
  const span = high - Math.min(0, ...values) || 1;
  $("strip").style.setProperty("--zero", `${(100 * high) / span}%`);
  const bars = events.map((event, place) => {
    const value = event.contribution;
    const bar = make("i", { className: value < 0 ? "against" : "" });
    bar.style.setProperty("--top", (high - Math.max(value, 0)) / span);
    bar.style.setProperty("--tall", Math.abs(value) / span);
    const label = `${titled(event)}: ${signed(value)}`;
    const row = make("li", { tabIndex: place === events.length - 1 ? 0 : -1, label: label }, bar);
    for (const moment of ["mouseenter", "focus"]) row.addEventListener(moment, () => point(row, label, events.length - 1 - place));
    row.addEventListener("mouseleave", () => point(null));
    row.addEventListener("blur", () => point(null));
    return row;
  });
  $("strip").replaceChildren(...bars);
  point(null);
}

function point(bar, label, ago) {
  const rest = "Each bar is a past event: up, it raised the score; down, it lowered it.";
  $("readout").textContent = bar ? label : rest;
  for (const row of $("strip").children) row.classList.toggle("pointed", row === bar);
  [...$("history").children].forEach((row, place) => row.classList.toggle("pointed", bar !== null && place === ago));
}

/** The contributions beside the events of the history; both end with the newest. */
function drawEffects(events) {
  const rows = [...$("history").children];
  let at = events.length - 1;
  state.past.toReversed().forEach((event, place) => {
    const known = at >= 0 && events[at].item === event.item;
    const value = known ? events[at--].contribution : null;
    const effect = rows[place].querySelector(".effect");
    effect.textContent = known ? signed(value) : "";
    effect.classList.toggle("against", known && value < 0);
  });
}

// ---- keys and switches

$("strip").addEventListener("keydown", (event) => {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const next = move && [...$("strip").children][[...$("strip").children].indexOf(event.target) + move];
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  event.preventDefault();
});

$("next").addEventListener("keydown", (event) => {
  const move = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const row = move && event.target.closest("li")[move];
  if (!row) return;
  row.querySelector(event.target.classList.contains("add") ? ".add" : ".pick").focus();
  event.preventDefault();
});

for (const radio of document.querySelectorAll("[name=mode]")) {
  radio.addEventListener("change", () => setMode(radio.value));
}

function setMode(mode) {
  state.mode = mode;
  document.querySelector(`[name=mode][value=${mode}]`).checked = true;
  $("user-field").hidden = mode !== "user";
  show("item-why", mode === "user" ? "Is recorded as an event of this user." : "");
  forget();
  $("next").replaceChildren(); // another list, not the same one moved
  refresh();
}

$("clear").addEventListener("click", () => {
  state.made = [];
  forget();
  refresh();
  $("item-search").focus();
});
$("retry").addEventListener("click", refresh);
$("at-kind").addEventListener("change", () => {
  $("at-time").hidden = $("at-kind").value !== "time";
  if ($("at-time").hidden || $("at-time").value) refresh();
  else $("at-time").focus();
});
$("at-time").addEventListener("change", refresh);
$("seen").addEventListener("change", () => {
  state.seen = $("seen").value;
  refresh();
});
$("token-button").addEventListener("click", () => ($("token-form").hidden ? openToken() : closeToken()));
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = $("token").value.trim();
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
  $("token").value = "";
  closeToken();
  refresh();
});

combobox("user", findUsers, (option, input) => {
  choose(option.user, option.fresh);
  input.blur();
});
combobox("item", findItems, (option, input) => {
  input.value = "";
  append(option.item);
});

ask("GET", "healthz").then(({ content }) => {
  const about = content.model;
  if (!about) return;
  $("as-of").hidden = !about.reads_time;
  if (state.seen === null) $("seen").value = about.seen;
  const cost = about.streaming ? "each event costs the same, however long the history" : "each event re-reads the history";
  $("model").textContent = `${about.run} · ${about.items.toLocaleString("en")} items · ${cost}`;
}).catch(() => {});

const requested = new URLSearchParams(location.hash.slice(1)).get("user");
setMode("user");
if (requested) choose(requested);
