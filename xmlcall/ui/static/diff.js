/* What changes: lines with a sign before each, so that nobody has to tell colours apart. */

import { h } from "./dom.js";
import { visible } from "./visible.js";

const SIGNS = { same: " ", added: "+", removed: "-", gap: "⋯" };
const MOST = 400; // lines

/** Draw lines that stay, come and go. @param {Array<{kind: string, text: string}>} rows */
export function changes(rows) {
  const shown = rows.slice(0, MOST);
  return h("pre", { className: "diff", tabIndex: 0 },
    shown.map((row) => h("span", { className: `line ${row.kind}` }, `${SIGNS[row.kind] ?? " "} ${visible(row.text)}\n`)),
    rows.length > MOST ? `⋯ ${rows.length - MOST}` : null);
}

/** Draw how two texts differ, by whole lines: what they begin and end with alike, and between them the old and the new. */
export function difference(before, now) {
  const old = before.split("\n");
  const fresh = now.split("\n");
  let start = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < fresh.length - start && old[old.length - 1 - end] === fresh[fresh.length - 1 - end]) end += 1;
  const rows = [
    ...old.slice(Math.max(0, start - 2), start).map((text) => ({ kind: "same", text })),
    ...old.slice(start, old.length - end).map((text) => ({ kind: "removed", text })),
    ...fresh.slice(start, fresh.length - end).map((text) => ({ kind: "added", text })),
    ...fresh.slice(fresh.length - end, fresh.length - end + 2).map((text) => ({ kind: "same", text })),
  ];
  return changes(rows);
}
