// The little of a document that the page's modules ask for: elements that remember what they were given. Nothing parses HTML
// here, so a text that became an element did so because the page made one.

class Node {
  constructor() { this.children = []; this.attributes = {}; this.dataset = {}; this.listeners = {}; }
  appendChild(child) { this.children.push(child); return child; }
  replaceChildren() { this.children = []; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, work) { this.listeners[name] = work; }
  get textContent() { return this.children.map((child) => child.textContent).join(""); }
}

class Text extends Node {
  constructor(text) { super(); this.text = text; }
  get textContent() { return this.text; }
}

class Element extends Node {
  constructor(tag) { super(); this.tag = tag; }
}

export const kept = new Map();
globalThis.Node = Node;
globalThis.document = {
  documentElement: {},
  createElement: (tag) => new Element(tag),
  createTextNode: (text) => new Text(text),
};
globalThis.localStorage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value) };

/** Return all elements below one, and itself. */
export function all(element) {
  return [element, ...element.children.flatMap(all)].filter((each) => each instanceof Element);
}

export const page = (name) => new URL(`../../../xmlcall/ui/static/${name}`, import.meta.url);
