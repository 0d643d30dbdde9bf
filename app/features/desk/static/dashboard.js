/* Local times, live parts, copy buttons, choosing many, filters, and sliders. Everything works without it. */
"use strict";
(() => {
  const said = document.getElementById("texts").dataset;
  const ours = document.documentElement.lang;
  const locale = navigator.languages.find((one) => one.split("-")[0] === ours) ?? ours; // as the reader's country writes it, in the page's language
  const formats = {
    minute: new Intl.DateTimeFormat(locale, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" }),
    day: new Intl.DateTimeFormat(locale, { dateStyle: "medium" }),
  };

  function localise(root) {
    for (const time of root.querySelectorAll("time[data-local]")) {
      const text = formats[time.dataset.local].format(new Date(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
    for (const time of root.querySelectorAll("time[data-hover]")) { // a date of the law: it stays as it is written
      time.title = said.saysOwnClock.replace("{time}", formats.minute.format(new Date(time.dateTime)));
    }
  }

  /* --- live parts: asked for again while somebody looks, and nobody is typing in them --- */

  const due = new WeakMap();

  function refresh() {
    hurry();
    if (document.visibilityState !== "visible" || isLoggingIn()) return;
    for (const part of document.querySelectorAll("[data-live]")) {
      const now = performance.now();
      if (!due.has(part)) due.set(part, now + 1000 * part.dataset.live);
      if (now < due.get(part) || part.querySelector("details[open] form, :is(input, textarea, select):focus, input[name=chosen]:checked")) continue;
      due.set(part, now + 1000 * part.dataset.live);
      htmx.trigger(part, "live");
    }
  }

  function connected(isSo) {
    document.getElementById("connection").hidden = isSo;
  }

  /* Milliseconds without an answer after which the page reports a lost connection; the browser still waits. */
  const PATIENCE = 5000;
  const LONGEST = 60000; // for which a form waits, which is sent when the gateway answers
  const asked = new Map();

  function hurry() {
    for (const since of asked.values()) if (performance.now() - since > PATIENCE) connected(false);
  }

  function unheard() {
    connected(false);
    document.getElementById("connection").scrollIntoView({ block: "center" });
  }

  /* Whoever pressed a button sees, and hears, that its answer is being worked on. */
  function busy(form, isSo) {
    if (!form?.matches?.("form[hx-target]:not([hx-trigger])")) return;
    form.ariaBusy = String(isSo);
    const place = document.querySelector(form.getAttribute("hx-target"));
    place?.querySelector("[data-busy]")?.remove();
    if (!isSo || !place) return;
    const text = document.createElement("p");
    text.dataset.busy = "";
    text.className = "quiet";
    text.textContent = said.saysWorking;
    place.replaceChildren(text);
  }

  document.addEventListener("htmx:config:request", (event) => {
    const token = document.querySelector("meta[name=form-token]");
    if (token) event.detail.ctx.request.headers["X-CSRF-Token"] = token.content;
    asked.set(event.detail.ctx, performance.now());
    busy(event.detail.ctx.sourceElement, true);
  });
  document.addEventListener("htmx:finally:request", (event) => {
    asked.delete(event.detail.ctx);
    busy(event.detail.ctx.sourceElement, false);
  });
  document.addEventListener("htmx:before:swap", (event) => {
    /* Times are localised before they are compared with what is there: nothing flickers. */
    const part = event.detail.tasks?.[0]?.fragment;
    if (part?.querySelectorAll) localise(part);
  });
  document.addEventListener("htmx:after:swap", () => localise(document));
  document.addEventListener("htmx:after:request", (event) => {
    const status = event.detail.ctx.response?.status ?? 0;
    connected(status < 500);
    if (status === 401) logIn();
  });
  document.addEventListener("htmx:error", (event) => {
    if (!event.detail.ctx?.response) connected(false);
  });

  /* --- a session that has ended: begun again in place, so that nothing is lost that somebody wrote --- */

  const dialog = document.getElementById("log-in");
  let loggedIn = null; // called when somebody is

  function isLoggingIn() {
    return dialog?.open ?? false;
  }

  const asFragment = { "HX-Request": "true" };

  async function showLogin(answer) {
    dialog.querySelector("[data-form]").innerHTML = await answer.text();
    if (!dialog.open) dialog.showModal();
    dialog.querySelector("[autofocus]").focus();
  }

  /* Resolves once the same caller has logged in; for another caller the page is reloaded. */
  async function logIn() {
    if (!isLoggingIn()) await showLogin(await fetch(dialog.dataset.path, { headers: asFragment }));
    return new Promise((resolve) => { const before = loggedIn; loggedIn = () => { before?.(); resolve(); }; });
  }

  async function sendLogin(form) {
    const answer = await fetch(form.action, { method: "POST", headers: asFragment, body: new URLSearchParams(new FormData(form)) });
    if (answer.status === 204) goOn(answer);
    else await showLogin(answer);
  }

  /* The session that the answer is of, with the page as it is. */
  function goOn(answer) {
    if (answer.headers.get("Caller-Id") !== document.querySelector("meta[name=caller-id]").content) { location.reload(); return; }
    const token = answer.headers.get("Form-Token");
    document.querySelector("meta[name=form-token]").content = token;
    for (const field of document.querySelectorAll("input[name=csrf]")) field.value = token;
    dialog.querySelector("[data-form]").replaceChildren();
    dialog.close();
    loggedIn?.();
    loggedIn = null;
  }

  dialog?.addEventListener("cancel", (event) => event.preventDefault());

  /* A page tells the other tabs that somebody is logged in: one of them may wait for that. */
  const tabs = new BroadcastChannel("lethe");
  tabs.addEventListener("message", async () => {
    if (!isLoggingIn()) return;
    const answer = await fetch(dialog.dataset.session, { headers: asFragment }).catch(() => null);
    if (answer?.status === 204 && isLoggingIn()) goOn(answer);
  });
  if (dialog) tabs.postMessage("logged in");

  /* A form is sent when the gateway is there and the session goes on: what is written in it would be lost otherwise. */
  const sending = new WeakSet();

  async function whenHeard(form, button) {
    const late = setTimeout(unheard, PATIENCE);
    try {
      const answer = await fetch(dialog.dataset.session, { headers: asFragment, signal: AbortSignal.timeout(LONGEST) });
      clearTimeout(late);
      connected(answer.status < 500);
      if (answer.status >= 500) return;
      if (answer.status === 401) await logIn();
    } catch {
      unheard();
      return;
    } finally {
      clearTimeout(late);
      form.inert = false;
    }
    sending.add(form);
    form.requestSubmit(button);
    sending.delete(form);
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!dialog || form.method !== "post" || sending.has(form)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (dialog.contains(form)) sendLogin(form).catch(() => connected(false));
    else if (!form.inert && form.ariaBusy !== "true") { form.inert = true; whenHeard(form, event.submitter); }
  }, true);

  /* Dialogs are opened and closed by the browser itself; here for those that do not know how yet. */
  if (!("command" in HTMLButtonElement.prototype)) {
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[commandfor]");
      const found = button && document.getElementById(button.getAttribute("commandfor"));
      if (found) button.getAttribute("command") === "close" ? found.close() : found.showModal();
    });
  }

  /* --- copying, and choosing many --- */

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    const [text, name] = [button.textContent, button.ariaLabel];
    button.textContent = said.saysCopied;
    button.ariaLabel = null;
    setTimeout(() => { button.textContent = text; button.ariaLabel = name; }, 1500);
  });

  function counted() {
    for (const bar of document.querySelectorAll("[data-chosen]")) {
      const chosen = document.querySelectorAll(`${bar.dataset.chosen}:checked`).length;
      bar.hidden = chosen === 0;
      const text = bar.querySelector("[data-count]");
      if (text) text.textContent = chosen === 1 ? said.saysChosenOne : said.saysChosen.replace("{number}", chosen);
    }
  }

  document.addEventListener("change", (event) => {
    const all = event.target.closest("[data-all]");
    if (all) for (const box of document.querySelectorAll(all.dataset.all)) box.checked = all.checked;
    const form = event.target.closest("form[data-now]");
    if (form && keyed) form.querySelector("[data-shows]").hidden = false;
    else if (form) form.requestSubmit();
    counted();
  });

  /* --- filters: what is chosen by pointer is shown at once; arrows and digits pass by what is not meant, so that Enter or the button shows it --- */

  let keyed = false; // whether keys were the last that changed anything

  document.addEventListener("pointerdown", () => { keyed = false; }, true);
  document.addEventListener("keydown", (event) => {
    const form = event.target.closest?.("form[data-now]");
    if (event.key === "Tab" || !form) return;
    keyed = true;
    if (event.key === "Enter" && event.target.matches("select")) { event.preventDefault(); form.requestSubmit(); }
  }, true);

  /* --- sliders: each drives the field beside it, by powers of ten --- */

  function slid(slider) {
    const field = document.getElementById(slider.dataset.drives);
    slider.hidden = false;
    const follow = () => {
      slider.value = Math.log10(Math.max(Number(field.value), 1e-9));
      slider.setAttribute("aria-valuetext", field.value);
    };
    slider.addEventListener("input", () => {
      const value = 10 ** Number(slider.value);
      field.value = field.step === "1" ? Math.round(value) : Number(value.toPrecision(2));
      slider.setAttribute("aria-valuetext", field.value);
    });
    field.addEventListener("input", follow);
    follow();
  }

  localise(document);
  counted();
  for (const button of document.querySelectorAll("[data-shows]")) button.hidden = true;
  document.querySelectorAll("[data-drives]").forEach(slid);
  setInterval(refresh, 250);
})();
