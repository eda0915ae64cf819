/* Texts as a person has to see them, and offsets as the server counts them.

   The server counts characters (Unicode code points), JavaScript counts UTF-16 units: a character beyond U+FFFF has two. `unitsOf`
   finds those once and then needs a binary search an offset. What has no glyph of its own, or reorders what stands around it, is
   shown by a mark: nothing may hide in a reply. */

const PAIR = /[\ud800-\udbff][\udc00-\udfff]/g;
// Control characters but tab and line feed; soft hyphen; marks that reorder text or take no room (UAX 9); half characters.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

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

/** Return a text in which everything can be seen. */
export function visible(text) {
  return text.replace(UNSEEN, mark);
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
