// Syntax colours of code blocks: one regular expression per language splits code into tokens.
//
// This is not a parser. It finds comments, strings, numbers, keywords and names, and leaves the text itself unchanged.

import { make } from './dom.js';
import { language } from './languages.js';

/** Characters of the longest code block that is coloured. */
const MAX_LENGTH = 20_000;

/** Kinds of tokens that languages.js describes, in the order in which they are tried. */
const KINDS = ['comment', 'property', 'string', 'keyword', 'meta', 'variable', 'added', 'removed'];
const NUMBER = String.raw`(?<number>(?<![\p{L}\d_])(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][-+]?\d+)?)\w*)`;
const WORD = String.raw`(?<word>[\p{L}_][\p{L}\d_]*)`;

const expressions = new Map();

function expression(rules) {
  if (!expressions.has(rules)) {
    const named = KINDS.filter((kind) => rules[kind]).map((kind) => `(?<${kind}>${rules[kind]})`);
    const common = rules.keywords ? [NUMBER, WORD] : [];
    expressions.set(rules, new RegExp([...named, ...common].join('|'), 'gu'));
  }
  return expressions.get(rules);
}

/** The kind of a word, by its spelling and the two characters after it. Other words have none. */
function kindOfWord(word, next, rules) {
  if (rules.keywords.has(rules.ignoreCase ? word.toLowerCase() : word)) return 'keyword';
  if (next[0] === '(' || next === '!(') return 'function';
  if (/^[A-Z][A-Z\d_]+$/.test(word)) return 'constant';
  return /^\p{Lu}/u.test(word) ? 'type' : undefined;
}

/** The tokens of some code: the text of each and, if it has a colour, its kind. */
export function tokens(code, name) {
  const rules = code.length <= MAX_LENGTH && language(name);
  if (!rules) return [{ text: code }];
  const found = [];
  let end = 0;
  for (const { 0: text, index, groups } of code.matchAll(expression(rules))) {
    if (text === '') continue;
    const next = code.slice(index + text.length, index + text.length + 2);
    const kind = groups.word ? kindOfWord(text, next, rules) : groups.number ? 'number' : KINDS.find((one) => groups[one]);
    if (!kind) continue;
    if (index > end) found.push({ text: code.slice(end, index) });
    found.push({ text, kind });
    end = index + text.length;
  }
  if (end < code.length) found.push({ text: code.slice(end) });
  return found;
}

/** Colours the text of an element as code of a language. */
export function highlight(element, name) {
  const pieces = tokens(element.textContent, name);
  const pieceOf = ({ text, kind }) => (kind ? make('span', { className: `code-${kind}`, textContent: text }) : text);
  element.replaceChildren(...pieces.map(pieceOf));
}
