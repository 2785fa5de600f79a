// What the browser keeps: conversations in a database, settings beside it.

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

async function inStore(mode, act) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction('conversations', mode);
    const request = act(transaction.objectStore('conversations'));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

/** All conversations, the one that changed last first. */
export async function conversations() {
  const all = await inStore('readonly', (store) => store.getAll());
  return all.sort((a, b) => b.changed - a.changed);
}

export const keep = (conversation) => inStore('readwrite', (store) => store.put(conversation));
export const forget = (id) => inStore('readwrite', (store) => store.delete(id));

/** A setting, and what it is where nothing was kept. */
export function setting(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`refrain.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function keepSetting(name, value) {
  localStorage.setItem(`refrain.${name}`, JSON.stringify(value));
}
