/* The view of one turn, followed while it goes on. */

import { get, stream } from "./api.js";
import { listen, say } from "./app.js";
import { fill, h } from "./dom.js";
import { t } from "./i18n.js";
import { renderTurn } from "./turn.js";

export function mount(container, [id]) {
  const box = h("div", { className: "column" });
  fill(container, h("div", { className: "column" }, h("div", { className: "row" }, h("a", { href: "#/live" }, `← ${t("view.live")}`), h("h1", null, t("view.turn"))), box));
  let end = () => {};
  let view = null;

  function follow() {
    end();
    end = stream(`turns/${encodeURIComponent(id)}/events`, {
      turn(record) {
        if (view) view.update(record);
        else view = renderTurn(box, record, { canCopy: true, canTry: true });
      },
      delta: (delta) => view?.delta(delta),
      end() { end(); say(t("turn.over")); },
    });
  }

  get(`turns/${encodeURIComponent(id)}`).then(follow, (error) => fill(box, h("p", { className: "error", role: "alert" }, error.message)));
  const forget = listen((name) => name === "again" && follow());
  return { unmount() { end(); forget(); } };
}
