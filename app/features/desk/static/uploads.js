/* Files are sent with a bar that shows how far they are. Without it a form sends them as any other. */
"use strict";
(() => {
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
      call.status === 413 ? form.dataset.tooLarge : form.dataset.failed.replace("{status}", call.status)));
  }

  /* The header of a CSV file: its first line, with quotes as RFC 4180 has them. Nothing else of the file is read. */
  async function header(file) {
    const text = (await file.slice(0, 65536).text()).replace(/^\uFEFF/, "");
    const names = [];
    let name = "", quoted = false;
    for (let at = 0; at < text.length; at += 1) {
      const sign = text[at];
      if (sign === '"') {
        if (quoted && text[at + 1] === '"') { name += sign; at += 1; } else quoted = !quoted;
      } else if (!quoted && sign === ",") { names.push(name); name = ""; }
      else if (!quoted && (sign === "\n" || sign === "\r")) break;
      else name += sign;
    }
    return [...names, name];
  }

  /* What a column is likely to be, by its name: as an earlier schema of the tenant states it, or by common names. */
  function likely(name, known) {
    if (known[name]?.[0]) return known[name];
    if (/^(who|(person|subject|customer|user|client|patient|member)([_ ]?(id|key|no|number))?|id|e-?mail)$/i.test(name)) return ["subject", ""];
    if (/^(y|label|target|class|outcome|churn(ed)?)$/i.test(name)) return ["label", ""];
    if (/(^|_)(date|day|birth|since|at)$/i.test(name)) return ["date", ""];
    return ["number", ""];
  }

  const examples = { number: "17..90", target: "0..100", counts: "0..100", date: "2020-01-01..2030-12-31", category: "free, plus", label: "no, yes" };

  function proposed(name, template) {
    const row = template.content.cloneNode(true);
    const facts = row.querySelector("input");
    const kind = row.querySelector("select");
    row.querySelector("code").textContent = name;
    [kind.value, facts.value] = likely(name, JSON.parse(template.dataset.known));
    kind.setAttribute("aria-label", template.dataset.kind.replace("{name}", name));
    facts.setAttribute("aria-label", template.dataset.facts.replace("{name}", name));
    const follow = () => {
      facts.placeholder = examples[kind.value] ?? "";
      facts.required = kind.value in examples;
      facts.readOnly = !facts.required;
    };
    kind.addEventListener("change", follow);
    follow();
    return row;
  }

  async function propose(form) {
    const [template, place] = ["column", "columns"].map((id) => document.getElementById(id));
    if (!template || !form.contains(place)) return;
    const [file] = form.elements.file.files;
    const isStated = !file?.name.toLowerCase().endsWith(".csv") || form.elements.schema.files.length > 0;
    const rows = isStated ? [] : (await header(file)).map((name) => proposed(name, template));
    place.querySelector("tbody").replaceChildren(...rows);
    place.hidden = rows.length === 0;
  }

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-upload]");
    if (form && event.target.type === "file") propose(form);
  });

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-upload]");
    if (!form) return;
    event.preventDefault();
    const stated = document.getElementById("columns");
    if (stated && form.contains(stated)) {
      const columns = [...stated.querySelectorAll("tbody tr")].map((row) => [row.querySelector("code").textContent, row.querySelector("select").value, row.querySelector("input").value]);
      form.elements.columns.value = JSON.stringify(columns);
    }
    const content = new FormData(form);
    if ([...content.values()].some((value) => value.size > Number(form.dataset.upload))) {
      told(form, complaint(form.dataset.tooLargeHere));
      return;
    }
    const [sending, bar, text] = ["[data-sending]", "[data-sending] progress", "[data-sending] p"].map((what) => form.querySelector(what));
    document.querySelector("[data-fault]").replaceChildren();
    for (const button of form.querySelectorAll("button")) button.disabled = true;
    sending.hidden = false;
    bar.value = 0;
    text.textContent = form.dataset.whileSent;
    const call = new XMLHttpRequest();
    call.upload.addEventListener("progress", (sent) => { bar.value = sent.loaded / sent.total; });
    call.upload.addEventListener("load", () => { bar.removeAttribute("value"); text.textContent = form.dataset.sent; });
    call.addEventListener("load", () => answered(form, call));
    call.addEventListener("error", () => told(form, complaint(form.dataset.unheard)));
    call.open("POST", form.action);
    call.setRequestHeader("X-CSRF-Token", content.get("csrf"));
    call.send(content);
  });
})();
