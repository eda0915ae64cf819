/* Elements made of values: no text ever becomes markup.

   Everything that the page shows of models, servers and clients is hostile. `h` sets text by `textContent` alone and attributes by
   a short list; nothing in this folder parses HTML (held by a test). */

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "tabIndex", "className", "open", "selected", "htmlFor"]);

/** Make an element.
 *  @param {string} tag name of the element
 *  @param {object|null} props properties; `on…` are listeners, `data` and `aria` objects of attributes, all else attributes
 *  @param {...(Node|string|number|null|false|Array)} children texts and elements; null, undefined and false are left out */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "data") for (const [key, each] of Object.entries(value)) element.dataset[key] = String(each);
  else if (name === "aria") for (const [key, each] of Object.entries(value)) element.setAttribute(`aria-${key}`, String(each));
  else if (PROPERTIES.has(name)) element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) element.appendChild(document.createTextNode(String(child)));
  }
}

/** Put other children in the place of those that an element has. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Put elements in the place of those that an element has; those that stay are not touched, so that they keep the focus. */
export function keep(element, children) {
  const wanted = children.filter(Boolean);
  for (const child of [...element.children]) if (!wanted.includes(child)) child.remove();
  wanted.forEach((child, place) => {
    if (element.children[place] !== child) element.insertBefore(child, element.children[place] ?? null);
  });
  return element;
}

/** Make a menu: a button that shows others. `closeMenus` closes it. */
export function menu(label, ...items) {
  return h("details", { className: "menu" }, h("summary", { "aria-label": label, title: label }, "⋯"), h("div", { className: "menu-items" }, items));
}

/** Close the open menus, but the one in which something was clicked that stays, such as a copy. */
export function closeMenus(clicked = null) {
  for (const each of document.querySelectorAll("details.menu[open]")) {
    const stays = clicked && each.contains(clicked) && !clicked.closest(".menu-items button:not(.copies)");
    if (!stays) each.open = false;
  }
}

/** Copy a text, and say so on the button that was pressed. */
export async function copy(text, button, done) {
  await navigator.clipboard.writeText(text);
  const before = button.textContent;
  button.textContent = done;
  setTimeout(() => { button.textContent = before; }, 1200);
}

/** Call a function when nothing has called for a while.
 *  @param {Function} work to be called with the last arguments
 *  @param {number} milliseconds of silence */
export function settled(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
