// Texts as the server renders them: markdown and LaTeX to HTML and MathML, without scripts, styles and images.

import { ask } from './server.js';

/** Milliseconds between two renderings of a text that grows. */
const PAUSE = 120;

/** Keeps an element at a text that may go on growing. */
export class Painter {
  constructor(element, painted) {
    this.element = element;
    this.painted = painted;
    this.text = '';
    this.isBusy = false;
  }

  async set(text) {
    this.text = text;
    if (this.isBusy) return;
    this.isBusy = true;
    for (let shown = null; shown !== this.text; ) {
      shown = this.text;
      await paint(this.element, shown);
      this.painted?.();
      if (shown !== this.text) await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    this.isBusy = false;
  }
}

async function paint(element, text) {
  try {
    const response = await ask('render', { text });
    element.innerHTML = (await response.json()).html;
  } catch {
    element.textContent = text;
    return;
  }
  for (const link of element.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
  // What may be wider than the page is scrolled by keys, too.
  for (const wide of element.querySelectorAll('table, math[display="block"]')) wide.tabIndex = 0;
  for (const code of element.querySelectorAll('pre')) addCopy(code);
}

function addCopy(code) {
  code.tabIndex = 0;
  const frame = document.createElement('div');
  frame.className = 'code';
  code.replaceWith(frame);
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'Copy';
  button.setAttribute('aria-label', 'Copy this code');
  button.addEventListener('click', async () => {
    await copy(code.textContent);
    button.textContent = 'Copied';
    setTimeout(() => (button.textContent = 'Copy'), 1500);
  });
  frame.append(code, button);
}

/** Puts a text on the clipboard, also where the browser grants that to secure pages alone. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}
