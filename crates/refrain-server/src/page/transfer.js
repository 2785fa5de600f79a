// Conversations to a file, and from one.

import * as store from './store.js';
import { isConversation } from './tree.js';

/** Prepares both buttons; `imported` hears how many came, or why none did. */
export function prepare(imported) {
  document.querySelector('#export').addEventListener('click', async () => {
    const all = { refrain: 1, conversations: await store.conversations() };
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([JSON.stringify(all, null, 1)], { type: 'application/json' }));
    link.download = 'refrain-conversations.json';
    link.click();
    URL.revokeObjectURL(link.href);
  });
  const file = document.querySelector('#import-file');
  document.querySelector('#import').addEventListener('click', () => file.click());
  file.addEventListener('change', async () => {
    try {
      imported(`${await take(await file.files[0].text())} conversations imported`);
    } catch (error) {
      imported(`nothing imported: ${error.message}`);
    }
    file.value = '';
  });
}

async function take(text) {
  const { conversations } = JSON.parse(text);
  if (!Array.isArray(conversations) || !conversations.every(isConversation)) {
    throw new Error('this file holds no conversations of this page');
  }
  for (const conversation of conversations) await store.keep(conversation);
  return conversations.length;
}
