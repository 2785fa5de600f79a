// Export of all conversations to a file, and import from one.

import { find, make } from './dom.js';
import { listConversations, saveConversation } from './store.js';
import { isConversation } from './tree.js';

/** Sets up both buttons. `onImport(text, isError)` receives the outcome of an import. */
export function setUpTransfer(onImport) {
  find('#export').addEventListener('click', async () => {
    const all = { refrain: 1, conversations: await listConversations() };
    const blob = new Blob([JSON.stringify(all, null, 1)], { type: 'application/json' });
    const link = make('a', { href: URL.createObjectURL(blob), download: 'refrain-conversations.json' });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  const file = find('#import-file');
  find('#import').addEventListener('click', () => file.click());
  file.addEventListener('change', async () => {
    try {
      const count = await importText(await file.files[0].text());
      onImport(`${count} ${count === 1 ? 'conversation' : 'conversations'} imported`, false);
    } catch (error) {
      onImport(`import failed: ${error.message}`, true);
    }
    file.value = '';
  });
}

/** Stores the conversations of an exported file. Returns their number. */
async function importText(text) {
  const { conversations } = JSON.parse(text);
  if (!Array.isArray(conversations) || !conversations.every(isConversation)) {
    throw new Error('the file is not an export of this page');
  }
  for (const conversation of conversations) await saveConversation(conversation);
  return conversations.length;
}
