// The page: which conversation is open, and what its buttons do.

import { answer } from './answer.js';
import * as live from './live.js';
import { edit, show } from './messages.js';
import { ask } from './server.js';
import * as settings from './settings.js';
import * as store from './store.js';
import * as transfer from './transfer.js';
import { add, newConversation, path, turn } from './tree.js';

const find = (selector) => document.querySelector(selector);
const messages = find('#messages');
const question = find('#question');

/** Milliseconds between two times that a growing answer is kept. */
const KEEP = 500;

let conversation = newConversation();
/** What ends the answer under way. */
let underWay = null;

function say(text) {
  find('#status').textContent = text;
}

async function keep() {
  try {
    await store.keep(conversation);
  } catch (error) {
    say(`this browser keeps no conversations: ${error?.message ?? 'storage is closed'}`);
  }
}

function toEnd() {
  messages.scrollTop = messages.scrollHeight;
}

/** Stays at the end if the end is what is seen. */
function painted() {
  if (messages.scrollHeight - messages.scrollTop - messages.clientHeight < 200) toEnd();
}

const acts = {
  painted,
  turn(message, places) {
    if (underWay) return;
    turn(conversation, message, places);
    keep();
    showMessages();
  },
  regenerate(message) {
    if (!underWay) respond(message.parent);
  },
  edit(message) {
    if (underWay) return;
    const view = messages.querySelector(`[data-id="${message.id}"]`);
    edit(view, message, (text) => respond(add(conversation, message.parent, 'user', text).id));
  },
};

function showMessages() {
  messages.replaceChildren(...path(conversation).map((message) => show(conversation, message, acts)));
  toEnd();
}

async function showConversations() {
  const all = await store.conversations().catch(() => []);
  const item = (one) => {
    const open = Object.assign(document.createElement('button'), { type: 'button', textContent: one.title || 'Untitled' });
    if (one.id === conversation.id) open.setAttribute('aria-current', 'true');
    open.addEventListener('click', () => choose(one));
    const remove = Object.assign(document.createElement('button'), { type: 'button', textContent: '×', ariaLabel: `Delete ${one.title}` });
    remove.addEventListener('click', async () => {
      if (!confirm(`Delete “${one.title}”?`)) return;
      if (one.id === conversation.id) choose(newConversation());
      await store.forget(one.id);
      showConversations();
    });
    const row = document.createElement('li');
    row.append(open, remove);
    return row;
  };
  find('#conversations').replaceChildren(...all.map(item));
}

function choose(other) {
  underWay?.abort();
  conversation = other;
  store.keepSetting('open', other.id);
  showMessages();
  showConversations();
}

/** Has the model answer the message with this id. */
async function respond(parent) {
  const own = conversation;
  const message = add(own, parent, 'assistant', '');
  underWay = new AbortController();
  const { signal } = underWay;
  showMessages();
  setBusy(true);
  const view = messages.lastElementChild;
  const before = path(own).slice(0, -1);
  let kept = performance.now();
  await keep();
  showConversations();
  const first = await answer(before, message, signal, () => {
    view.update();
    if (performance.now() - kept > KEEP) {
      kept = performance.now();
      store.keep(own).catch(() => {});
    }
  });
  view.update();
  live.showFirst(first);
  await store.keep(own).catch(() => {});
  underWay = null;
  setBusy(false);
  if (message.failure) say('No answer came to its end.');
  else say(signal.aborted ? 'Stopped.' : 'Answered.');
  painted();
}

function setBusy(isBusy) {
  messages.setAttribute('aria-busy', String(isBusy));
  find('#send').hidden = isBusy;
  find('#stop').hidden = !isBusy;
  if (isBusy) say('The model answers …');
  else question.focus();
}

function send() {
  const text = question.value;
  if (underWay || !text.trim()) return;
  question.value = '';
  const last = path(conversation).at(-1);
  store.keepSetting('open', conversation.id);
  respond(add(conversation, last?.id ?? 'root', 'user', text).id);
}

async function greet() {
  try {
    const models = (await (await ask('v1/models')).json()).data.map((model) => model.id);
    const kept = store.setting('model');
    showModels(models, models.includes(kept) ? kept : models[0]);
    say('');
  } catch (error) {
    say(error.message);
    if (error.status === 401) find('#open-settings').click();
  }
}

/** One model by its name, of several the choice. */
function showModels(models, chosen) {
  const [one, several] = [find('#model'), find('#models')];
  [one.hidden, several.hidden] = [models.length > 1, models.length === 1];
  one.textContent = models[0];
  several.replaceChildren(...models.map((model) => new Option(model, model, false, model === chosen)));
  document.title = `${chosen} · Refrain`;
}

find('#models').addEventListener('change', ({ target }) => {
  store.keepSetting('model', target.value);
  document.title = `${target.value} · Refrain`;
});
find('#ask').addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
question.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') underWay?.abort();
});
find('#stop').addEventListener('click', () => underWay?.abort());
find('#new').addEventListener('click', () => {
  choose(newConversation());
  question.focus();
});
settings.prepare(greet);
transfer.prepare((text) => {
  say(text);
  showConversations();
});

const all = await store.conversations().catch(() => []);
choose(all.find((one) => one.id === store.setting('open', null)) ?? all[0] ?? conversation);
await greet();
question.focus();
live.watch();
