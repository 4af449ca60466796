// Sends the forms of the page, and shows answers as they come.
"use strict";

/** The maximum number of characters of an answer that the page keeps. */
const SHOWN_MAX = 1 << 20;

/** Returns the arguments of a form as JSON. Text in JSON is sent as it is, so numbers lose no digits. */
function argumentsOf(form) {
  const members = [];
  for (const field of form.querySelectorAll("[name]")) {
    if (field.value === "" && "optional" in field.dataset) continue;
    let value = field.value;
    if (field.dataset.kind === "text") {
      value = JSON.stringify(value);
    } else {
      try {
        JSON.parse(value);
      } catch (error) {
        field.focus();
        throw new Error(`${field.name}: ${error.message}`);
      }
    }
    members.push(`${JSON.stringify(field.name)}:${value}`);
  }
  return `{${members.join(",")}}`;
}

/** Appends text to the log of a form. */
function show(log, text) {
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  log.append(text);
  if (log.textContent.length > SHOWN_MAX) log.textContent = log.textContent.slice(-SHOWN_MAX / 2);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

/** Makes the call of a form. */
async function call(form) {
  const [send, stop] = form.querySelectorAll("button");
  const [status, log] = [form.querySelector("[role=status]"), form.querySelector("[role=log]")];
  const abort = new AbortController();
  stop.onclick = () => abort.abort();
  log.textContent = "";
  status.className = "";
  try {
    const body = argumentsOf(form);
    status.textContent = "Calling ...";
    send.setAttribute("aria-disabled", "true");
    stop.disabled = false;
    const headers = { "Content-Type": "application/json" };
    const request = { method: "POST", headers, body, signal: abort.signal };
    const response = await fetch(form.dataset.path, request);
    const executed = response.headers.get("Peregrine-Executed");
    if (!response.ok) status.className = "failure";
    status.textContent = `${response.status} ${response.statusText}`;
    if (executed !== null) status.textContent += `, executed: ${executed}`;
    log.hidden = false;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      show(log, value);
    }
  } catch (error) {
    status.className = "failure";
    status.textContent = error.name === "AbortError" ? "Stopped" : error.message;
  } finally {
    if (document.activeElement === stop) send.focus();
    stop.disabled = true;
    send.removeAttribute("aria-disabled");
  }
}

for (const form of document.forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.querySelector("button").getAttribute("aria-disabled") !== "true") call(form);
  });
}
