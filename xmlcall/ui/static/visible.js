/* Texts as a person has to see them, and offsets as the server counts them.

   The server counts characters (Unicode code points), JavaScript counts UTF-16 units: a character beyond U+FFFF has two. `unitsOf`
   finds those once and then needs a binary search an offset. What has no glyph of its own, or reorders what stands around it, is
   shown by a mark: nothing may hide in a reply. */

const PAIR = /[\ud800-\udbff][\udc00-\udfff]/g;
// What nobody sees, the same ranges as in xmlcall/text_forms.py: ignorable characters of Unicode, and letters with a blank glyph.
const INVISIBLE = String.raw`\u{ad}\u{34f}\u{61c}\u{115f}-\u{1160}\u{17b4}-\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{206f}\u{3164}\u{fe00}-\u{fe0f}\u{feff}\u{ffa0}\u{fff0}-\u{fff8}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}\u{2800}\u{fff9}-\u{fffb}\u{13441}-\u{13442}\u{16fe4}\u{1d159}`;
// Control characters but tab and line feed, ends of lines, half characters.
const UNSEEN = new RegExp(String.raw`[${INVISIBLE}\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\p{Surrogate}]`, "gu");
const PICTURE = /(\p{Emoji}[\ufe0e\ufe0f])/u;

/** Make a function from offsets in characters to offsets in UTF-16 units. @param {string} text that they are of */
export function unitsOf(text) {
  const pairs = [];
  PAIR.lastIndex = 0;
  for (let found = PAIR.exec(text); found; found = PAIR.exec(text)) pairs.push(found.index - pairs.length);
  if (!pairs.length) return (offset) => offset;
  return (offset) => offset + below(pairs, offset);
}

/** Count the numbers of an ascending list that are less than a limit. */
function below(list, limit) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return a text in which everything can be seen, as a person needs it who judges. */
export function visible(text) {
  return text.replace(UNSEEN, mark);
}

/** Return the same for a text that is only read: one selector after an emoji stays, so that the emoji is drawn. */
export function readable(text) {
  return text.split(PICTURE).map((piece, place) => (place % 2 ? piece : visible(piece))).join("");
}

/** Return a JSON text with escapes for what is not seen; it is read as the same value. */
export function escapedJson(text) {
  return text.replace(UNSEEN, (each) => each.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

function mark(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Return the beginning of a text, cut between two characters. @param {number} most UTF-16 units */
export function beginning(text, most) {
  if (text.length <= most) return text;
  const isInPair = /[\ud800-\udbff]/.test(text[most - 1]) && /[\udc00-\udfff]/.test(text[most]);
  return text.slice(0, isInPair ? most - 1 : most);
}
