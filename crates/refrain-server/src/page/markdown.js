// Text as the server renders it: markdown and LaTeX to HTML and MathML, without scripts, styles and images.

import { request } from './api.js';
import { iconButton, icon, make } from './dom.js';
import { highlight } from './syntax.js';

/** Milliseconds between two renderings of a growing text. */
const RENDER_INTERVAL = 120;
/** Milliseconds for which a copy button confirms. */
const CONFIRMATION = 1500;

/** Keeps an element up to date with a text that may still grow. */
export class MarkdownView {
  constructor(element, onRender) {
    this.element = element;
    this.onRender = onRender;
    this.text = '';
    this.isRendering = false;
  }

  async set(text) {
    this.text = text;
    if (this.isRendering) return;
    this.isRendering = true;
    for (let rendered = null; rendered !== this.text; ) {
      rendered = this.text;
      await render(this.element, rendered);
      this.onRender?.();
      if (rendered !== this.text) await new Promise((resolve) => setTimeout(resolve, RENDER_INTERVAL));
    }
    this.isRendering = false;
  }
}

async function render(element, text) {
  try {
    const response = await request('render', { text });
    element.innerHTML = (await response.json()).html;
  } catch {
    element.textContent = text;
    return;
  }
  for (const link of element.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
  // Elements that may be wider than the page take the focus, so that the keyboard can scroll them.
  for (const wide of element.querySelectorAll('table, math[display="block"]')) wide.tabIndex = 0;
  for (const block of element.querySelectorAll('pre')) decorate(block);
}

/** Gives a code block its colours, the name of its language and a copy button. */
function decorate(block) {
  block.tabIndex = 0;
  const code = block.querySelector('code') ?? block;
  const name = /(?:^|\s)language-(\S+)/.exec(code.className)?.[1] ?? '';
  highlight(code, name);
  const frame = make('div', { className: 'code' });
  block.replaceWith(frame);
  const head = make('div', { className: 'code-head' }, make('span', { textContent: name || 'text' }));
  head.append(copyButton('Copy this code', () => code.textContent));
  frame.append(head, block);
}

/** A button that copies what `text` returns. */
export function copyButton(label, text) {
  const button = iconButton('copy', label, async () => {
    await copy(text());
    button.replaceChildren(icon('done'));
    setTimeout(() => button.replaceChildren(icon('copy')), CONFIRMATION);
  });
  return button;
}

/** Copies a text to the clipboard, also where the browser grants access only to secure pages. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make('textarea', { value: text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}
