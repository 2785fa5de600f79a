// The composer: the message field, attached files, and the buttons to send and to stop.

import { describeSize, readTextFile } from './attachments.js';
import { find, icon, iconButton, make } from './dom.js';

const question = find('#question');
/** The files to send with the next message. */
let files = [];

/** Whether a keyboard on the screen is likely: its Enter key starts a new line. */
const hasTouch = matchMedia('(pointer: coarse)');

/** Makes the field as high as its text; the style sheet has the limit. */
function fitHeight() {
  question.style.height = 'auto';
  question.style.height = `${question.scrollHeight + 2}px`;
}

export function focusComposer() {
  if (!hasTouch.matches) question.focus();
}

/** Puts a text into the field, for the user to send or to change. */
export function fillComposer(text) {
  question.value = text;
  fitHeight();
  question.focus();
}

/** Shows the button to stop instead of the one to send. The focus stays where it was. */
export function setComposerBusy(isBusy) {
  const [shown, hidden] = isBusy ? [find('#stop'), find('#send')] : [find('#send'), find('#stop')];
  const hadFocus = document.activeElement === hidden || document.activeElement === document.body;
  shown.hidden = false;
  hidden.hidden = true;
  if (!hadFocus) return;
  if (isBusy) shown.focus();
  else focusComposer();
}

function showFiles() {
  const chips = files.map((file) => {
    const size = make('span', { className: 'size', textContent: describeSize(file.text) });
    const remove = iconButton('close', `Remove ${file.name}`, () => {
      files = files.filter((one) => one !== file);
      showFiles();
      question.focus();
    });
    return make('li', {}, icon('file'), make('span', { className: 'name', textContent: file.name }), size, remove);
  });
  find('#files').replaceChildren(...chips);
  find('#files').hidden = files.length === 0;
}

/**
 * Sets up the composer. `onSend(text, files)` returns whether the message was taken;
 * `onStop` ends the response; `onError` receives what was wrong with a file.
 */
export function setUpComposer({ onSend, onStop, onError }) {
  const attach = async (list) => {
    for (const file of list) {
      try {
        files.push(await readTextFile(file));
      } catch (error) {
        onError(error.message);
      }
    }
    showFiles();
    question.focus();
  };
  const send = () => {
    const text = question.value;
    if ((!text.trim() && files.length === 0) || !onSend(text, files)) return;
    question.value = '';
    files = [];
    showFiles();
    fitHeight();
  };
  find('#compose').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  question.addEventListener('input', fitHeight);
  question.addEventListener('keydown', (event) => {
    const isEnter = event.key === 'Enter' && !event.shiftKey && !event.isComposing;
    if (!isEnter || (hasTouch.matches && !event.ctrlKey && !event.metaKey)) return;
    event.preventDefault();
    send();
  });
  find('#stop').addEventListener('click', onStop);
  setUpFiles(attach);
}

/** Files come by the button, by dropping them on the page, and from the clipboard. */
function setUpFiles(attach) {
  const input = find('#attach-file');
  find('#attach').addEventListener('click', () => input.click());
  input.addEventListener('change', async () => {
    await attach([...input.files]);
    input.value = '';
  });
  question.addEventListener('paste', (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach([...event.clipboardData.files]);
  });
  const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
  document.addEventListener('dragover', (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
  document.addEventListener('drop', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    attach([...event.dataTransfer.files]);
  });
}
