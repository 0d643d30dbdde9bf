/* Words for times that are near, heads of tables that stay in sight, and a sign on what is being worked on. Loaded after dashboard.js, and missed by nothing that is not there. */
"use strict";
(() => {
  /* --- times: in words while they are near, exact on hover and on paper --- */

  const NEAR = 7 * 86400;
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const texts = document.getElementById("texts").dataset;
  const ours = document.documentElement.lang;
  const said = new Intl.RelativeTimeFormat(navigator.languages.find((one) => one.split("-")[0] === ours) ?? ours, { numeric: "auto" });

  function words(seconds) {
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
    return unit === "second" ? (seconds > 0 ? texts.saysSoon : texts.saysJustNow) : said.format(Math.trunc(seconds / size), unit);
  }

  /* Only where the time stands at the beginning: "until in two hours" is no English. */
  function isAlone(time) {
    const before = time.previousSibling;
    return time.parentNode.matches("td, dd, small") && (!before || (before.nodeType === Node.TEXT_NODE && !before.data.trim() && !before.previousSibling));
  }

  function nearby() {
    for (const time of document.querySelectorAll("time[data-local=minute]")) {
      const seconds = (new Date(time.dateTime) - Date.now()) / 1000;
      const exact = time.dataset.said === time.textContent ? time.dataset.exact : time.textContent;
      if (Math.abs(seconds) < NEAR && isAlone(time)) {
        const text = words(seconds);
        if (time.textContent !== text) time.textContent = text;
        time.dataset.said = text;
        time.dataset.exact = exact;
        time.dataset.utc ??= time.title;
        time.title = `${exact} (${time.dataset.utc})`;
      } else if (time.dataset.exact) {
        time.textContent = exact;
        delete time.dataset.exact;
      }
    }
  }

  /* --- heads of tables: they stick where the whole table is as wide as its place --- */

  function fitted() {
    for (const part of document.querySelectorAll(".table")) {
      const table = part.querySelector("table");
      part.classList.toggle("fits", table !== null && table.offsetWidth <= part.clientWidth && getComputedStyle(part).maxHeight === "none");
    }
  }

  /* --- forms: whoever pressed a button sees that it is being worked on, until the next page comes --- */

  document.addEventListener("submit", (event) => {
    const form = event.target;
    /* A download leaves the page as it is, and may be repeated. */
    if (event.defaultPrevented || form.method !== "post" || "downloads" in form.dataset) return;
    form.ariaBusy = "true";
  });
  window.addEventListener("pageshow", () => { // also one that the way back brought, as it was left
    for (const form of document.querySelectorAll("form[aria-busy=true]:not([hx-target])")) form.ariaBusy = "false";
  });

  function refresh() {
    nearby();
    fitted();
  }

  document.addEventListener("htmx:after:swap", refresh);
  window.addEventListener("resize", fitted);
  setInterval(nearby, 15000);
  refresh();
})();
