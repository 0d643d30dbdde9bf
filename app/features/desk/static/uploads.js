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

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-upload]");
    if (!form) return;
    event.preventDefault();
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
