/* Local times, live parts, copy buttons, choosing many, sliders, and curves. Everything works without it, but for the curves. */
"use strict";
(() => {
  const formats = {
    minute: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }),
    day: new Intl.DateTimeFormat(undefined, { dateStyle: "medium" }),
  };

  function localise(root) {
    for (const time of root.querySelectorAll("time[data-local]")) {
      const text = formats[time.dataset.local].format(new Date(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
    for (const time of root.querySelectorAll("time[data-hover]")) { // a date of the law: it stays as it is written
      time.title = `${formats.minute.format(new Date(time.dateTime))} on your clock`;
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
      if (now < due.get(part) || part.querySelector("details[open] form, :is(input, textarea, select):focus")) continue;
      due.set(part, now + 1000 * part.dataset.live);
      htmx.trigger(part, "live");
    }
  }

  function connected(isSo) {
    document.getElementById("connection").hidden = isSo;
  }

  /* Who waits for an answer for so long is told, though the browser still waits for it. */
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
    text.textContent = "Working …";
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
  document.addEventListener("htmx:after:swap", () => { localise(document); draw(document); });
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
    dialog.querySelector("input[type=password]").focus();
  }

  /* Resolves once somebody has logged in with the same key; with another the page is loaded anew. */
  async function logIn() {
    if (!isLoggingIn()) await showLogin(await fetch(dialog.dataset.path, { headers: asFragment }));
    return new Promise((resolve) => { const before = loggedIn; loggedIn = () => { before?.(); resolve(); }; });
  }

  async function sendLogin(form) {
    const answer = await fetch(form.action, { method: "POST", headers: asFragment, body: new URLSearchParams(new FormData(form)) });
    if (answer.status !== 204) { await showLogin(answer); return; }
    if (answer.headers.get("Key-Id") !== document.querySelector("meta[name=key-id]").content) { location.reload(); return; }
    const token = answer.headers.get("Form-Token");
    document.querySelector("meta[name=form-token]").content = token;
    for (const field of document.querySelectorAll("input[name=csrf]")) field.value = token;
    dialog.querySelector("[data-form]").replaceChildren();
    dialog.close();
    loggedIn?.();
    loggedIn = null;
  }

  dialog?.addEventListener("cancel", (event) => event.preventDefault());

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
    button.textContent = "Copied";
    button.ariaLabel = null;
    setTimeout(() => { button.textContent = text; button.ariaLabel = name; }, 1500);
  });

  function counted() {
    for (const bar of document.querySelectorAll("[data-chosen]")) {
      const chosen = document.querySelectorAll(`${bar.dataset.chosen}:checked`).length;
      bar.hidden = chosen === 0;
      const text = bar.querySelector("[data-count]");
      if (text) text.textContent = chosen === 1 ? "1 request chosen" : `${chosen} requests chosen`;
    }
  }

  document.addEventListener("change", (event) => {
    const all = event.target.closest("[data-all]");
    if (all) for (const box of document.querySelectorAll(all.dataset.all)) box.checked = all.checked;
    const form = event.target.closest("form[data-now]");
    if (form) form.requestSubmit();
    counted();
  });

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

  /* --- files: sent with a bar that shows how far they are --- */

  function told(form, problem) {
    const place = document.querySelector("[data-fault]");
    place.replaceChildren(problem);
    place.scrollIntoView({ block: "center" });
    form.querySelector("[data-sending]").hidden = true;
    for (const button of form.querySelectorAll("button")) button.disabled = false;
  }

  function complaint(text) {
    const notice = document.createElement("div");
    notice.className = "notice bad";
    notice.setAttribute("role", "alert");
    notice.textContent = text;
    return notice;
  }

  function answered(form, call) {
    const page = new DOMParser().parseFromString(call.responseText, "text/html");
    const fault = page.querySelector("[data-fault] .notice") ?? page.querySelector(".gate .lead");
    if (call.status < 300) location.assign(call.responseURL);
    else told(form, fault ? document.importNode(fault, true) : complaint(
      call.status === 413 ? "The file is larger than this server accepts. Nothing was stored." : `The upload failed (${call.status}). Nothing was stored.`));
  }

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-upload]");
    if (!form) return;
    event.preventDefault();
    const content = new FormData(form);
    if ([...content.values()].some((value) => value.size > Number(form.dataset.upload))) {
      told(form, complaint("The file is larger than this server accepts. Nothing was sent."));
      return;
    }
    const [sending, bar, text] = ["[data-sending]", "[data-sending] progress", "[data-sending] p"].map((what) => form.querySelector(what));
    document.querySelector("[data-fault]").replaceChildren();
    for (const button of form.querySelectorAll("button")) button.disabled = true;
    sending.hidden = false;
    bar.value = 0;
    text.textContent = "Sending …";
    const call = new XMLHttpRequest();
    call.upload.addEventListener("progress", (sent) => { bar.value = sent.loaded / sent.total; });
    call.upload.addEventListener("load", () => { bar.removeAttribute("value"); text.textContent = "Sent. The rows are being read and encoded …"; });
    call.addEventListener("load", () => answered(form, call));
    call.addEventListener("error", () => told(form, complaint("The gateway does not answer, or ended the upload. Look at the list of datasets before you send it again.")));
    call.open("POST", form.action);
    call.setRequestHeader("X-CSRF-Token", content.get("csrf"));
    call.send(content);
  });

  /* --- curves --- */

  /* On paper a plot is light, and as wide as any paper has room for: its page is laid out when it has been drawn. */
  const PAPER = 640;
  let onPaper = false;

  function widthOf(place) {
    return onPaper ? PAPER : place.clientWidth || 600;
  }

  /* A canvas knows no variables: an element says what they are in the reader's scheme. */
  function colours() {
    const probe = document.body.appendChild(document.createElement("i"));
    if (onPaper) probe.style.colorScheme = "light";
    const colour = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    const found = { lines: [1, 2, 3, 4, 5].map((n) => colour(`--line-${n}`)), text: colour("--quiet"), grid: colour("--hair"), batch: colour("--bad") };
    probe.remove();
    return found;
  }

  const significant = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 });
  const plots = new Set();

  /* Whole powers of ten around the numbers and around the level they are held against. */
  function powers(asked, low, high) {
    const level = asked.level?.y;
    const found = [low, high, level].filter((value) => value > 0 && Number.isFinite(value));
    if (found.length === 0) return [0.1, 10];
    const ends = [10 ** Math.floor(Math.log10(Math.min(...found))), 10 ** Math.ceil(Math.log10(Math.max(...found)))];
    return ends[0] < ends[1] ? ends : [ends[0] / 10, ends[1] * 10];
  }

  /* Names along an axis instead of numbers, as many as there is room for. */
  function namedTicks(asked) {
    if (!asked.ticks) return {};
    const chosen = (plot) => {
      const room = plot.bbox.width / devicePixelRatio / Math.max(1, asked.ticks.length);
      return asked.ticks.filter((_tick, index) => index % Math.max(1, Math.ceil(130 / Math.max(1, room))) === 0);
    };
    return { splits: (plot) => chosen(plot).map(([at]) => at), values: (plot) => chosen(plot).map(([, text]) => text), grid: { show: false } };
  }

  /* Vertical lines where something happened (solid: people were forgotten, dotted: a version came out), and the level. */
  function marked(plot, asked, paint) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.lineWidth = devicePixelRatio;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    let end = -Infinity;
    for (const { x, kind, text } of asked.marks ?? []) {
      const at = plot.valToPos(x, "x", true);
      const isBatch = kind === "batch";
      ctx.strokeStyle = ctx.fillStyle = isBatch ? paint.batch : paint.text;
      ctx.setLineDash(isBatch ? [] : [2 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      const width = ctx.measureText(text).width;
      const left = isBatch ? at + 4 * devicePixelRatio : at - width - 4 * devicePixelRatio;
      if (left < end) continue;
      end = left + width;
      ctx.fillText(text, left, bbox.top - 8 * devicePixelRatio);
    }
    if (asked.level) {
      const at = plot.valToPos(asked.level.y, "y", true);
      ctx.strokeStyle = ctx.fillStyle = paint.text;
      ctx.setLineDash([8 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, at);
      ctx.lineTo(bbox.left + bbox.width, at);
      ctx.stroke();
      ctx.fillText(asked.level.text, bbox.left + 6 * devicePixelRatio, at - 5 * devicePixelRatio);
    }
    ctx.restore();
  }

  function draw(root) {
    if (typeof uPlot === "undefined") return;
    for (const place of root.querySelectorAll("[data-plot]")) {
      if (place.plotted === place.dataset.plot) continue;
      place.plotted = place.dataset.plot;
      place.replaceChildren();
      const asked = JSON.parse(place.dataset.plot);
      const paint = colours();
      const shown = (_plot, value) => (value == null ? "–" : significant.format(value));
      const named = (_plot, value, _series, at) => asked.names?.[at] ?? shown(_plot, value);
      const axis = (label) => ({ label: label || undefined, stroke: paint.text, grid: { stroke: paint.grid, width: 1 }, ticks: { stroke: paint.grid, width: 1 } });
      /* The page may have a legend of its own, with words: one is enough, and shows the numbers under the pointer. */
      const key = document.querySelector(`[data-key="${place.dataset.name}"]`);
      const pointed = (plot) => {
        for (const value of key?.querySelectorAll("[data-series]") ?? []) {
          const at = plot.cursor.idx;
          value.textContent = at == null ? "" : shown(plot, plot.data[value.dataset.series][at]);
        }
      };
      const options = {
        legend: { show: !key },
        width: widthOf(place),
        height: asked.height,
        padding: asked.marks ? [26, 12, 0, 0] : undefined,
        scales: { x: { time: false, distr: asked.logx ? 3 : 1 }, y: asked.log ? { distr: 3, range: (_plot, low, high) => powers(asked, low, high) } : {} },
        axes: [{ ...axis(asked.x), ...namedTicks(asked) }, { ...axis(asked.y), size: 64, values: (_plot, ticks) => ticks.map((tick) => (tick == null ? "" : significant.format(tick))) }],
        series: asked.columns.map((label, index) => index === 0
          ? { label, value: named }
          : { label, stroke: paint.lines[(index - 1) % paint.lines.length], width: 2, dash: index > 1 ? [6, 2 + 2 * index] : undefined, spanGaps: !asked.gaps, points: { show: asked.rows.length < 40 }, value: shown }),
        hooks: { drawAxes: [(plot) => marked(plot, asked, paint)], setCursor: [pointed] },
      };
      const data = asked.columns.map((_, column) => asked.rows.map((row) => row[column]));
      const plot = new uPlot(options, data, place);
      plots.add({ plot, place, height: asked.height });
    }
  }

  function redraw() {
    for (const one of plots) {
      if (!one.place.isConnected) plots.delete(one);
      else one.plot.setSize({ width: widthOf(one.place), height: one.height });
    }
  }

  function repaint() {
    for (const one of plots) { one.plot.destroy(); one.place.plotted = null; }
    plots.clear();
    draw(document);
  }

  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  window.addEventListener("beforeprint", () => { onPaper = true; repaint(); });
  window.addEventListener("afterprint", () => { onPaper = false; repaint(); });

  localise(document);
  draw(document);
  counted();
  document.querySelectorAll("[data-drives]").forEach(slid);
  setInterval(refresh, 250);
})();
