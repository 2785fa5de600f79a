// Storage in the browser: conversations in IndexedDB, settings in localStorage. Nothing is stored on the server.

let opened;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open('refrain', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function transact(mode, operation) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction('conversations', mode);
    const request = operation(transaction.objectStore('conversations'));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

/** All conversations, the most recently changed first. */
export async function listConversations() {
  const all = await transact('readonly', (store) => store.getAll());
  return all.sort((a, b) => b.changed - a.changed);
}

export const saveConversation = (conversation) => transact('readwrite', (store) => store.put(conversation));
export const deleteConversation = (id) => transact('readwrite', (store) => store.delete(id));

/** A setting, or `fallback` if none is stored. */
export function readSetting(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`refrain.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

/** Stores a setting. A browser without storage keeps none. */
export function saveSetting(name, value) {
  try {
    localStorage.setItem(`refrain.${name}`, JSON.stringify(value));
  } catch {
    // The page works without stored settings.
  }
}
