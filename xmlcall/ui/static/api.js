/* What the page asks its server, and what the server tells it.

   A stream comes again by itself (EventSource); after the server was started anew its `instance` is another one, and whoever shows
   turns has to ask for them again. */

import { has, t } from "./i18n.js";

const ROOT = "/ui/api/";

/** A refusal by the server: in the chosen language if its code has words there, else in the server's own. */
export class Refused extends Error {
  constructor(status, data) {
    const key = `refused.${data?.error?.code}`;
    super(has(key) ? t(key) : data?.error?.message ?? `HTTP ${status}`);
    this.status = status;
    this.data = data;
  }
}

async function asked(path, options) {
  const answer = await fetch(ROOT + path, { credentials: "same-origin", cache: "no-store", ...options });
  const text = await answer.text();
  const isJson = (answer.headers.get("content-type") ?? "").startsWith("application/json");
  const data = isJson && text ? JSON.parse(text) : text;
  if (!answer.ok) throw new Refused(answer.status, data);
  return data;
}

/** Ask for something. @param {string} path under `/ui/api/` @param {object} [query] texts and numbers; empty ones are left out */
export function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = new URLSearchParams(given).toString();
  return asked(search ? `${path}?${search}` : path, {});
}

/** Send a JSON object. @param {AbortSignal} [signal] ends the request */
export function post(path, body = {}, signal = undefined) {
  return asked(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
}

/** Listen to a stream of events.
 *  @param {string} path under `/ui/api/`
 *  @param {Object<string, function(any)>} handlers by the names of events; `lost` and `found` tell of the connection
 *  @returns {function()} ends it */
export function stream(path, handlers) {
  let source = null;
  let isOver = false;
  let timer = 0;
  const connect = () => {
    source = new EventSource(ROOT + path);
    source.onopen = () => handlers.found?.();
    source.onerror = () => {
      handlers.lost?.();
      if (source.readyState === EventSource.CLOSED && !isOver) timer = setTimeout(connect, 2000);
    };
    for (const [name, handle] of Object.entries(handlers)) {
      if (name !== "lost" && name !== "found") source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  };
  connect();
  return () => {
    isOver = true;
    clearTimeout(timer);
    source.close();
  };
}

/** Send a JSON object, and read events in the answer until it ends; for requests that an EventSource cannot make. */
export async function postStream(path, body, handle, signal) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal };
  const answer = await fetch(ROOT + path, { credentials: "same-origin", ...options });
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (kept + value).split("\n\n");
    kept = parts.pop();
    for (const part of parts) tell(part, handle);
  }
}

function tell(part, handle) {
  let name = "";
  let data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (name) handle(name, JSON.parse(data));
}
