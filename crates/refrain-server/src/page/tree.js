// A conversation is a tree of messages: an edited question or a regenerated response is a branch beside the earlier one.

/** A unique id. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation() {
  const root = { id: 'root', children: [], shown: 0 };
  return { id: newId(), title: '', changed: Date.now(), messages: { root } };
}

/** The messages of the visible branch, from the first to the last. */
export function visibleMessages(conversation) {
  const visible = [];
  let message = conversation.messages.root;
  while (message.children.length > 0) {
    message = conversation.messages[message.children[message.shown]];
    visible.push(message);
  }
  return visible;
}

/** Adds a message below `parent` and makes its branch the visible one. `more` holds optional fields: `files`, `model`. */
export function addMessage(conversation, parent, role, content, more = {}) {
  const message = { id: newId(), parent, role, content, reasoning: '', facts: '', failure: '', children: [], shown: 0, ...more };
  const siblings = conversation.messages[parent];
  siblings.children.push(message.id);
  siblings.shown = siblings.children.length - 1;
  conversation.messages[message.id] = message;
  conversation.changed = Date.now();
  if (!conversation.title && role === 'user') {
    conversation.title = (content.trim() || more.files?.[0]?.name || '').split('\n')[0].slice(0, 60);
  }
  return message;
}

/** Makes the sibling `offset` branches further the visible one. */
export function switchBranch(conversation, message, offset) {
  const siblings = conversation.messages[message.parent];
  siblings.shown = Math.min(Math.max(siblings.shown + offset, 0), siblings.children.length - 1);
}

/** The number of a message among its siblings, from 1, and their count. */
export function branchPosition(conversation, message) {
  const siblings = conversation.messages[message.parent];
  return { number: siblings.children.indexOf(message.id) + 1, count: siblings.children.length };
}

const isObject = (value) => typeof value === 'object' && value !== null;
const isFile = (file) => isObject(file) && typeof file.name === 'string' && typeof file.text === 'string';

/** Whether a value read from a file is a conversation that this page can show. */
export function isConversation(value) {
  if (!isObject(value) || typeof value.id !== 'string' || !isObject(value.messages)) return false;
  const { messages } = value;
  const isMessage = ([id, message]) =>
    isObject(message) &&
    message.id === id &&
    Array.isArray(message.children) &&
    message.children.every((child) => messages[child]?.parent === id) &&
    (message.children.length === 0 || message.shown in message.children) &&
    (message.files === undefined || (Array.isArray(message.files) && message.files.every(isFile))) &&
    (id === 'root' || (['user', 'assistant'].includes(message.role) && typeof message.content === 'string'));
  return 'root' in messages && messages.root.parent === undefined && Object.entries(messages).every(isMessage);
}
