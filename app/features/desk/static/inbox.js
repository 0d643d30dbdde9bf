/* The inbox: keys for rows and decisions, and a case beside the queue. Loaded after desk.js. Without it links lead to the same pages. */
"use strict";
(() => {
  const help = document.getElementById("shortcuts");
  if (!help) return; // nobody is logged in

  /* --- single keys: whoever speaks or types what should be no command turns them off (WCAG 2.1.4) --- */

  const OFF = "lethe.shortcuts.off";
  const box = help.querySelector("[data-shortcuts]");

  function remembered() {
    try { return localStorage.getItem(OFF) === null; } catch { return true; }
  }

  let isOn = remembered();

  function mark(root) {
    for (const one of root.querySelectorAll("[data-key]")) {
      if (isOn) one.setAttribute("aria-keyshortcuts", one.dataset.key.toUpperCase());
      else one.removeAttribute("aria-keyshortcuts");
    }
  }

  box.checked = isOn;
  box.addEventListener("change", () => {
    isOn = box.checked;
    try { isOn ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, ""); } catch { /* for this page, then */ }
    mark(document);
  });
  for (const button of document.querySelectorAll("[data-scripted]")) button.hidden = false;
  mark(document);

  function isTyping(target) {
    return target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], dialog") != null;
  }

  function find() {
    const menu = document.getElementById("menu");
    const field = document.querySelector(".finder input[type=search]");
    if (!field) return;
    if (!field.checkVisibility()) menu?.showPopover?.();
    field.focus();
    field.select();
  }

  function rows() {
    return [...document.querySelectorAll("[data-rows] tr")];
  }

  function present() {
    return document.activeElement?.closest?.("[data-rows] tr") ?? document.querySelector("[data-rows] tr.open");
  }

  function step(by) {
    const all = rows();
    const at = all.indexOf(present());
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
    next?.querySelector("th a")?.focus();
  }

  /* Chosen rows come first: a key goes to what decides about them, and decides nothing itself. */
  function decide(key) {
    const bar = document.querySelector("[data-chosen]:not([hidden])");
    const button = bar?.querySelector(`[data-chosen-key=${key}]`) ?? document.querySelector(`[data-key=${key}]`);
    if (!button) return;
    button.focus();
    if (bar && key === "a") return;
    if (!button.closest("details")?.open) button.click();
    button.closest("details")?.querySelector("select, textarea, input:not([type=hidden])")?.focus();
  }

  const actions = {
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      const tick = (present() ?? rows()[0])?.querySelector("input[type=checkbox]");
      if (tick) tick.click();
    },
    a: () => decide("a"),
    r: () => decide("r"),
    "/": find,
    "?": () => help.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key.toLowerCase() !== "k" || event.shiftKey || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      find();
      return;
    }
    const act = actions[event.key.length === 1 ? event.key.toLowerCase() : ""];
    if (!act || !isOn || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    act();
  });

  /* --- a case beside the queue, where there is room for both --- */

  const inbox = document.querySelector("[data-inbox]");
  const side = document.getElementById("case");
  const ROOM = matchMedia("(min-width: 80rem)");

  function open(link) {
    for (const row of rows()) row.classList.toggle("open", row.contains(link));
    for (const other of inbox.querySelectorAll("[data-beside][aria-current]")) other.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    inbox.classList.add("split");
    side.hidden = false;
    side.scrollTop = 0;
    history.replaceState(null, "", link.dataset.address);
    htmx.ajax("GET", link.dataset.beside, { target: "#case", swap: "innerHTML" });
  }

  inbox?.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-beside]");
    if (!link || !ROOM.matches || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(link);
  });
  document.addEventListener("htmx:after:swap", () => {
    mark(document);
    /* The queue is asked for again without knowing what is open beside it by now. */
    const id = new URLSearchParams(location.search).get("case");
    for (const link of inbox?.querySelectorAll("a[data-beside]") ?? []) {
      const isOpen = link.closest("tr").id === `row-${id}`;
      link.closest("tr").classList.toggle("open", isOpen);
      isOpen ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
    }
  });
})();
