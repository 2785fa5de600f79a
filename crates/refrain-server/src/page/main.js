// The page's state: the open conversation, and the response that is being generated.

import { fillComposer, focusComposer, setComposerBusy, setUpComposer } from './composer.js';
import { find, placeIcons } from './dom.js';
import { editMessage, messageView } from './messages.js';
import { pollMetrics, showFirstToken } from './metrics.js';
import { currentModel, loadModels, setUpModels } from './models.js';
import { streamResponse } from './response.js';
import { openSettings, setUpSettings } from './settings.js';
import { closeDrawer, setUpSidebar, showConversations } from './sidebar.js';
import { listConversations, readSetting, saveConversation, saveSetting } from './store.js';
import { setUpTransfer } from './transfer.js';
import { addMessage, newConversation, switchBranch, visibleMessages } from './tree.js';
import { welcomeView } from './welcome.js';

/** Milliseconds between two times that a growing response is stored. */
const SAVE_INTERVAL = 500;
/** Pixels above the end within which the page follows a growing response. */
const FOLLOW_DISTANCE = 120;

const messages = find('#messages');
let conversation = newConversation();
/** Aborts the response that is being generated, if there is one. */
let generation = null;
/** Ids of deleted conversations: a response that was under way must not store its own again. */
const deleted = new Set();

/** Announces a status. Screen readers read all of them; only errors and those with `isVisible` are displayed. */
function setStatus(text, { isVisible = false, isError = false } = {}) {
  const status = find('#status');
  status.textContent = text;
  status.className = isError ? 'error' : isVisible ? '' : 'unseen';
}

const showError = (text) => setStatus(text, { isError: true });

async function save(changed) {
  if (deleted.has(changed.id)) return;
  try {
    await saveConversation(changed);
  } catch (error) {
    showError(`this browser stores no conversations: ${error?.message ?? 'storage is unavailable'}`);
  }
}

const distanceToEnd = () => messages.scrollHeight - messages.scrollTop - messages.clientHeight;

function scrollToEnd() {
  messages.scrollTop = messages.scrollHeight;
}

const actions = {
  onRender() {
    if (find('#to-end').hidden) scrollToEnd();
  },
  switchBranch(message, offset) {
    if (generation) return;
    switchBranch(conversation, message, offset);
    save(conversation);
    showMessages();
  },
  regenerate(message) {
    if (!generation) generate(message.parent);
  },
  edit(message) {
    if (generation) return;
    const view = messages.querySelector(`[data-id="${message.id}"]`);
    const { files } = message;
    editMessage(view, message, (text) => generate(addMessage(conversation, message.parent, 'user', text, files && { files }).id));
  },
};

function showMessages() {
  const visible = visibleMessages(conversation);
  const views = visible.map((message) => messageView(conversation, message, actions));
  messages.replaceChildren(...(views.length > 0 ? views : [welcomeView(fillComposer)]));
  find('#to-end').hidden = true;
  if (views.length > 0) scrollToEnd();
}

function listInSidebar() {
  return showConversations(conversation.id, {
    onOpen(chosen) {
      closeDrawer();
      open(chosen);
    },
    onDelete(id) {
      deleted.add(id);
      if (id === conversation.id) open(newConversation());
      else listInSidebar();
    },
  });
}

function open(chosen) {
  generation?.abort();
  conversation = chosen;
  saveSetting('open', chosen.id);
  setStatus('');
  showMessages();
  listInSidebar();
}

function startConversation() {
  closeDrawer();
  open(newConversation());
  focusComposer();
}

/** Generates a response to the message with this id. */
async function generate(parent) {
  const own = conversation;
  const message = addMessage(own, parent, 'assistant', '', { model: currentModel()?.id });
  const controller = new AbortController();
  generation = controller;
  showMessages();
  setBusy(true);
  const view = messages.lastElementChild;
  view.update(true);
  const history = visibleMessages(own).slice(0, -1);
  let saved = performance.now();
  await save(own);
  listInSidebar();
  const toFirstToken = await streamResponse(history, message, controller.signal, () => {
    view.update(true);
    if (performance.now() - saved > SAVE_INTERVAL) {
      saved = performance.now();
      save(own);
    }
  });
  view.update();
  showFirstToken(toFirstToken);
  await save(own);
  generation = null;
  setBusy(false);
  if (own !== conversation) return;
  if (message.failure) setStatus('The response failed.');
  else setStatus(controller.signal.aborted ? 'Stopped.' : 'Response complete.');
  actions.onRender();
}

function setBusy(isBusy) {
  messages.setAttribute('aria-busy', String(isBusy));
  setComposerBusy(isBusy);
  if (isBusy) setStatus('Generating …');
}

function send(text, files) {
  if (generation) return false;
  const last = visibleMessages(conversation).at(-1);
  saveSetting('open', conversation.id);
  const more = files.length > 0 ? { files } : {};
  generate(addMessage(conversation, last?.id ?? 'root', 'user', text, more).id);
  return true;
}

/** Loads the models. Without a valid API key it asks for one. */
async function connect() {
  try {
    await loadModels();
    setStatus('');
  } catch (error) {
    showError(error.message);
    if (error.status === 401) openSettings();
  }
  if (visibleMessages(conversation).length === 0) showMessages();
}

function setUpKeys() {
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !document.querySelector('dialog[open]') && !closeDrawer()) generation?.abort();
    if (event.key.toLowerCase() === 'o' && event.shiftKey && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      startConversation();
    }
  });
}

placeIcons();
setUpSidebar();
setUpSettings(connect);
setUpModels(() => visibleMessages(conversation).length === 0 && showMessages());
setUpComposer({ onSend: send, onStop: () => generation?.abort(), onError: showError });
setUpTransfer((text, isError) => {
  setStatus(text, { isVisible: true, isError });
  listInSidebar();
});
setUpKeys();
for (const button of document.querySelectorAll('.new')) button.addEventListener('click', startConversation);
messages.addEventListener('scroll', () => (find('#to-end').hidden = distanceToEnd() < FOLLOW_DISTANCE));
// The composer's height changes with its text.
new ResizeObserver(actions.onRender).observe(messages);
find('#to-end').addEventListener('click', () => {
  scrollToEnd();
  focusComposer();
});

const stored = await listConversations().catch(() => []);
open(stored.find((one) => one.id === readSetting('open', null)) ?? stored[0] ?? conversation);
await connect();
focusComposer();
pollMetrics();
