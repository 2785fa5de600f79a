// The messages of a conversation, as elements.

import { Painter, copy } from './markdown.js';
import { place } from './tree.js';

const NAMES = { user: 'You', assistant: 'Model' };

/** An element with properties and children. */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A message's element; `acts` has what its buttons do. */
export function show(conversation, message, acts) {
  const text = make('div', { className: 'text' });
  const view = make('article', { className: `message ${message.role}` }, make('h2', { textContent: NAMES[message.role] }));
  view.dataset.id = message.id;
  const thoughts = make('div', {});
  const fold = make('details', { className: 'thoughts', hidden: true }, make('summary', { textContent: 'Thoughts' }), thoughts);
  const failure = make('p', { className: 'failed' });
  const facts = make('span', { className: 'facts' });
  view.append(fold, text, failure, buttons(conversation, message, acts, facts));
  const painter = new Painter(text, acts.painted);
  view.update = () => {
    fold.hidden = !message.reasoning;
    thoughts.textContent = message.reasoning;
    failure.textContent = message.failure;
    failure.hidden = !message.failure;
    facts.textContent = message.facts;
    if (message.role === 'user') text.textContent = message.content;
    else painter.set(message.content);
  };
  view.update();
  return view;
}

function buttons(conversation, message, acts, facts) {
  const row = make('div', { className: 'buttons' });
  const add = (label, act, more) => {
    const button = make('button', { type: 'button', textContent: label, ...more });
    button.addEventListener('click', act);
    row.append(button);
    return button;
  };
  const { number, count } = place(conversation, message);
  if (count > 1) {
    add('‹', () => acts.turn(message, -1), { ariaLabel: 'The one before', disabled: number === 1 });
    row.append(make('span', { textContent: `${number} of ${count}` }));
    add('›', () => acts.turn(message, 1), { ariaLabel: 'The next', disabled: number === count });
  }
  add('Copy', () => copy(message.content));
  if (message.role === 'user') add('Edit', () => acts.edit(message));
  else add('Regenerate', () => acts.regenerate(message));
  row.append(facts);
  return row;
}

/** Replaces a question's text by a field; `done` hears what it became. */
export function edit(view, message, done) {
  const area = make('textarea', { value: message.content, rows: 4, ariaLabel: 'Edit the message' });
  const save = make('button', { type: 'submit', textContent: 'Send' });
  const cancel = make('button', { type: 'button', textContent: 'Cancel' });
  const form = make('form', {}, area, make('div', { className: 'buttons' }, save, cancel));
  const text = view.querySelector('.text');
  const close = () => {
    form.replaceWith(text);
    view.querySelector('.buttons').hidden = false;
  };
  cancel.addEventListener('click', close);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    close();
    if (area.value.trim()) done(area.value);
  });
  text.replaceWith(form);
  view.querySelector(':scope > .buttons').hidden = true;
  area.focus();
}
