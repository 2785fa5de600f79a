// A conversation as a tree: an edited question or another answer stands beside the one before it.

/** A name that nothing else has. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation() {
  const root = { id: 'root', children: [], shown: 0 };
  return { id: newId(), title: '', changed: Date.now(), messages: { root } };
}

/** The messages that are shown, from the first on. */
export function path(conversation) {
  const found = [];
  let message = conversation.messages.root;
  while (message.children.length > 0) {
    message = conversation.messages[message.children[message.shown]];
    found.push(message);
  }
  return found;
}

/** Puts a message behind another, and shows it. */
export function add(conversation, parent, role, content) {
  const message = { id: newId(), parent, role, content, reasoning: '', facts: '', failure: '', children: [], shown: 0 };
  const siblings = conversation.messages[parent];
  siblings.children.push(message.id);
  siblings.shown = siblings.children.length - 1;
  conversation.messages[message.id] = message;
  conversation.changed = Date.now();
  if (!conversation.title && role === 'user') {
    conversation.title = content.trim().split('\n')[0].slice(0, 60);
  }
  return message;
}

/** Shows the sibling that stands so many places further. */
export function turn(conversation, message, places) {
  const siblings = conversation.messages[message.parent];
  siblings.shown = Math.min(Math.max(siblings.shown + places, 0), siblings.children.length - 1);
}

/** Which of how many siblings a message is, from 1 on. */
export function place(conversation, message) {
  const siblings = conversation.messages[message.parent];
  return { number: siblings.children.indexOf(message.id) + 1, count: siblings.children.length };
}

/** Whether this, from a file, is a conversation that can be shown. */
export function isConversation(value) {
  const isObject = (it) => typeof it === 'object' && it !== null;
  if (!isObject(value) || typeof value.id !== 'string' || !isObject(value.messages)) return false;
  const { messages } = value;
  const isMessage = ([id, message]) =>
    isObject(message) &&
    message.id === id &&
    Array.isArray(message.children) &&
    message.children.every((child) => messages[child]?.parent === id) &&
    (message.children.length === 0 || message.shown in message.children) &&
    (id === 'root' || (['user', 'assistant'].includes(message.role) && typeof message.content === 'string'));
  return 'root' in messages && messages.root.parent === undefined && Object.entries(messages).every(isMessage);
}
