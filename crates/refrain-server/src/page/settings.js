// The dialog of settings, and light and dark.

import { keepSetting, setting } from './store.js';

const THEMES = { '': 'as the system', light: 'light', dark: 'dark' };

export function prepare(saved) {
  const dialog = document.querySelector('#settings');
  const form = document.querySelector('#settings-form');
  document.querySelector('#open-settings').addEventListener('click', () => {
    const settings = setting('settings', {});
    for (const field of form.querySelectorAll('[name]')) field.value = settings[field.name] ?? '';
    if (!dialog.open) dialog.showModal();
  });
  document.querySelector('#close-settings').addEventListener('click', () => dialog.close());
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    keepSetting('settings', Object.fromEntries(new FormData(form)));
    dialog.close();
    saved();
  });
  prepareTheme();
}

function prepareTheme() {
  const button = document.querySelector('#theme');
  const use = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${THEMES[theme]}`;
  };
  use(setting('theme', ''));
  button.addEventListener('click', () => {
    const names = Object.keys(THEMES);
    const theme = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    keepSetting('theme', theme);
    use(theme);
  });
}
