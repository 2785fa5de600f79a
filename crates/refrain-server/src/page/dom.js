// Small helpers for building elements.

export const find = (selector) => document.querySelector(selector);

/** An element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Outlines of the icons on a grid of 24 × 24. */
const ICONS = {
  attach: 'M20 11.5l-8 8a5 5 0 0 1-7-7L13.5 4a3.4 3.4 0 0 1 4.8 4.8L10 17a1.7 1.7 0 0 1-2.4-2.4L15 7.2',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 12.5l4.5 4.5L19 7.5',
  down: 'M12 5v14M6 13l6 6 6-6',
  download: 'M12 4v11M7 10l5 5 5-5M5 20h14',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4M9 13h6M9 17h6',
  menu: 'M4 7h16M4 12h16M4 17h16',
  next: 'M9 5l7 7-7 7',
  plus: 'M12 5v14M5 12h14',
  previous: 'M15 5l-7 7 7 7',
  refresh: 'M20 12a8 8 0 1 1-2.4-5.7L20 8.5M20 4v4.5h-4.5',
  send: 'M12 19V5M6 11l6-6 6 6',
  sliders: 'M4 7h9M17 7h3M15 4.5v5M4 17h3M11 17h9M9 14.5v5',
  stop: 'M7 7h10v10H7z',
  theme: 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 4v16M12 8h4.5M12 12h7.5M12 16h4.5',
  trash: 'M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13',
  upload: 'M12 15V4M7 9l5-5 5 5M5 20h14',
};

const SVG = 'http://www.w3.org/2000/svg';

/** An icon, hidden from screen readers: the control that holds it has a label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button that shows an icon alone; `label` is its name and its tooltip. */
export function iconButton(name, label, onClick, properties = {}) {
  const button = make('button', { type: 'button', className: 'bare', title: label, ariaLabel: label, ...properties }, icon(name));
  button.addEventListener('click', onClick);
  return button;
}

/** Puts the icons into the elements of index.html that name one. */
export function placeIcons() {
  for (const element of document.querySelectorAll('[data-icon]')) element.prepend(icon(element.dataset.icon));
}
