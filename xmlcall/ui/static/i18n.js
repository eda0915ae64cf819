/* The page's words in English and Chinese. A key without a text in the chosen language is shown in English. */

import { EN } from "./i18n_en.js";
import { ZH } from "./i18n_zh.js";

const WORDS = { en: EN, zh: ZH };
const KEPT = "xmlcall.language";

let chosen = localStorage.getItem(KEPT) ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");

/** Return the chosen language, `en` or `zh`. */
export const language = () => (chosen in WORDS ? chosen : "en");

/** Choose a language, and keep the choice in this browser. */
export function chooseLanguage(name) {
  chosen = name;
  localStorage.setItem(KEPT, name);
  document.documentElement.lang = name === "zh" ? "zh-Hans" : "en";
}

/** Return a text. @param {string} key of it @param {object} [values] that stand in `{name}`; `{name|word|words}` is `word` of one */
export function t(key, values = {}) {
  const text = WORDS[language()][key] ?? EN[key] ?? key;
  return text.replace(/\{(\w+)(?:\|(\w+)\|(\w+))?\}/g, (whole, name, one, several) => {
    if (!(name in values)) return whole;
    return one ? (String(values[name]) === "1" ? one : several) : String(values[name]);
  });
}

/** Say whether there is a text of this key. */
export const has = (key) => key in WORDS[language()] || key in EN;

/** Return in words how a model is asked. */
export const wayText = (way) => (has(`way.${way}`) ? t(`way.${way}`) : way);

/** Write a time in the chosen language, as the person's own region does it. @param {object} [parts] of Intl.DateTimeFormat */
export function timeText(time, parts = { dateStyle: "medium", timeStyle: "medium" }) {
  const region = (navigator.languages ?? []).find((each) => each.toLowerCase().startsWith(language()));
  return new Date(time).toLocaleString(region ?? language(), parts);
}

/** Write a number of seconds. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`;
}

/** Write a whole number. */
export const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString(language()));

/** Write a share as a percentage; `–` where it is not known. */
export const share = (part, whole) => (whole && part !== null && part !== undefined ? `${Math.round((100 * part) / whole)} %` : "–");
