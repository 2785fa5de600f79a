// The sidebar: the list of conversations. On narrow screens it is a drawer over the page.

import { find, iconButton, make } from './dom.js';
import { deleteConversation, listConversations, readSetting, saveSetting } from './store.js';

const DAY = 24 * 60 * 60 * 1000;
const narrow = matchMedia('(max-width: 52rem)');

/** The heading under which a conversation stands, by the time of its last change. */
function period(changed) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (changed >= today) return 'Today';
  if (changed >= today - DAY) return 'Yesterday';
  if (changed >= today - 7 * DAY) return 'Previous 7 days';
  return 'Older';
}

/** Shows the conversations. `onOpen` receives the one that is clicked, `onDelete` the id of the one that was deleted. */
export async function showConversations(currentId, { onOpen, onDelete }) {
  const all = await listConversations().catch(() => []);
  const groups = new Map();
  for (const conversation of all) {
    const title = conversation.title || 'Untitled';
    const open = make('button', { type: 'button', textContent: title, title });
    if (conversation.id === currentId) open.setAttribute('aria-current', 'true');
    open.addEventListener('click', () => onOpen(conversation));
    const remove = iconButton('trash', `Delete ${title}`, async () => {
      if (!confirm(`Delete “${title}”?`)) return;
      await deleteConversation(conversation.id);
      onDelete(conversation.id);
    });
    const group = period(conversation.changed);
    if (!groups.has(group)) groups.set(group, make('ul', { ariaLabel: group }));
    groups.get(group).append(make('li', {}, open, remove));
  }
  const lists = [...groups].flatMap(([name, list]) => [make('h3', { textContent: name }), list]);
  find('#conversations').replaceChildren(...lists);
}

/** Closes the drawer of a narrow screen. Returns whether it was open. */
export function closeDrawer() {
  if (!narrow.matches || document.body.dataset.sidebar !== 'open') return false;
  setOpen(false);
  find('#toggle-sidebar').focus();
  return true;
}

function setOpen(isOpen) {
  document.body.dataset.sidebar = isOpen ? 'open' : 'closed';
  find('#toggle-sidebar').setAttribute('aria-expanded', String(isOpen));
  // A drawer covers the page, which must not take the focus then.
  find('#page').inert = isOpen && narrow.matches;
}

export function setUpSidebar() {
  const fit = () => setOpen(!narrow.matches && readSetting('sidebar', true));
  fit();
  narrow.addEventListener('change', fit);
  find('#toggle-sidebar').addEventListener('click', () => {
    const isOpen = document.body.dataset.sidebar !== 'open';
    setOpen(isOpen);
    if (!narrow.matches) saveSetting('sidebar', isOpen);
    else if (isOpen) find('#new').focus();
  });
  find('#close-sidebar').addEventListener('click', closeDrawer);
  find('#backdrop').addEventListener('click', closeDrawer);
}
