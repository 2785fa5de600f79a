// The messages of a conversation, as elements.

import { describeSize } from './attachments.js';
import { icon, iconButton, make } from './dom.js';
import { MarkdownView, copyButton } from './markdown.js';
import { branchPosition } from './tree.js';

/**
 * The element of a message. `actions` has the handlers of its buttons.
 * The element's `update` shows the message as it is now; `isGenerating` says whether it still grows.
 */
export function messageView(conversation, message, actions) {
  const isUser = message.role === 'user';
  const text = make('div', { className: 'text' });
  const heading = make('h2', { textContent: isUser ? 'You' : (message.model ?? 'Assistant') });
  const view = make('article', { className: `message ${message.role}` }, heading);
  view.dataset.id = message.id;
  const reasoning = make('div');
  const summary = make('summary');
  const fold = make('details', { className: 'reasoning', hidden: true }, summary, reasoning);
  const failure = make('p', { className: 'failure' });
  const statistics = make('span', { className: 'statistics' });
  const row = actionRow(conversation, message, actions, statistics);
  view.append(fold, ...(message.files ?? []).map(fileView), text, failure, row);
  const markdown = new MarkdownView(text, actions.onRender);
  view.update = (isGenerating = false) => {
    view.classList.toggle('waiting', isGenerating && !message.content);
    row.hidden = isGenerating;
    fold.hidden = !message.reasoning;
    summary.textContent = isGenerating && !message.content ? 'Reasoning …' : 'Reasoning';
    reasoning.textContent = message.reasoning;
    failure.textContent = message.failure;
    failure.hidden = !message.failure;
    statistics.textContent = message.facts;
    if (isUser) text.textContent = message.content;
    else markdown.set(message.content);
    text.hidden = isUser && !message.content;
  };
  view.update();
  return view;
}

/** An attached file, folded. */
function fileView({ name, text }) {
  const size = make('span', { className: 'size', textContent: describeSize(text) });
  const content = make('pre', { textContent: text, tabIndex: 0 });
  return make('details', { className: 'file' }, make('summary', {}, icon('file'), name, size), content);
}

function actionRow(conversation, message, actions, statistics) {
  const row = make('div', { className: 'actions' });
  const { number, count } = branchPosition(conversation, message);
  if (count > 1) {
    const previous = iconButton('previous', 'Previous version', () => actions.switchBranch(message, -1), { disabled: number === 1 });
    const next = iconButton('next', 'Next version', () => actions.switchBranch(message, 1), { disabled: number === count });
    row.append(previous, make('span', { className: 'branch', textContent: `${number} of ${count}` }), next);
  }
  row.append(copyButton('Copy', () => message.content));
  if (message.role === 'user') row.append(iconButton('edit', 'Edit', () => actions.edit(message)));
  else row.append(iconButton('refresh', 'Regenerate', () => actions.regenerate(message)));
  row.append(statistics);
  return row;
}

/** Replaces the text of a user's message by a field. `onSubmit` receives the new text. */
export function editMessage(view, message, onSubmit) {
  const area = make('textarea', { value: message.content, rows: 4, ariaLabel: 'Edit the message' });
  const save = make('button', { type: 'submit', className: 'primary', textContent: 'Send' });
  const cancel = make('button', { type: 'button', textContent: 'Cancel' });
  const form = make('form', { className: 'edit' }, area, make('div', { className: 'buttons' }, cancel, save));
  const text = view.querySelector('.text');
  const row = view.querySelector('.actions');
  const close = () => {
    form.replaceWith(text);
    row.hidden = false;
  };
  cancel.addEventListener('click', close);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    close();
    if (area.value.trim()) onSubmit(area.value);
  });
  area.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      close();
      view.querySelector('[aria-label="Edit"]').focus();
    } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  text.replaceWith(form);
  row.hidden = true;
  area.focus();
}
