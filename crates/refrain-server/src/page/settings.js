// The settings of generation, and the theme.

import { find } from './dom.js';
import { readSetting, saveSetting } from './store.js';

const THEMES = { '': 'system', light: 'light', dark: 'dark' };

/** Settings named beside the composer while they differ from the model's defaults. */
const SUMMARY = {
  system: () => 'system prompt',
  temperature: (value) => `temperature ${value}`,
  top_p: (value) => `top-p ${value}`,
  top_k: (value) => `top-k ${value}`,
  min_p: (value) => `min-p ${value}`,
  max_tokens: (value) => `max ${value} tokens`,
  seed: (value) => `seed ${value}`,
};

const dialog = find('#settings');
const form = find('#settings-form');

export function openSettings() {
  const settings = readSetting('settings', {});
  for (const field of form.querySelectorAll('[name]')) field.value = settings[field.name] ?? '';
  if (!dialog.open) dialog.showModal();
}

/** Sets up the dialog, the thinking menu and the theme button. `onSave` is called after the dialog saved. */
export function setUpSettings(onSave) {
  find('#open-settings').addEventListener('click', openSettings);
  find('#close-settings').addEventListener('click', () => dialog.close());
  find('#reset-settings').addEventListener('click', () => {
    for (const field of form.querySelectorAll('[name]:not([name="key"])')) field.value = '';
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    save(Object.fromEntries(new FormData(form)));
    dialog.close();
    onSave();
  });
  const thinking = find('#thinking');
  thinking.value = readSetting('settings', {}).think ?? '';
  thinking.addEventListener('change', () => save({ think: thinking.value }));
  showSummary();
  setUpTheme();
}

/** Stores some settings and keeps the others. */
function save(changed) {
  saveSetting('settings', { ...readSetting('settings', {}), ...changed });
  showSummary();
}

function showSummary() {
  const settings = readSetting('settings', {});
  const named = Object.entries(SUMMARY).filter(([name]) => settings[name]);
  find('#settings-summary').textContent = named.map(([name, describe]) => describe(settings[name])).join(' · ');
}

function setUpTheme() {
  const button = find('#theme');
  const use = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.title = button.ariaLabel = `Theme: ${THEMES[theme]}`;
  };
  use(readSetting('theme', ''));
  button.addEventListener('click', () => {
    const names = Object.keys(THEMES);
    const theme = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    saveSetting('theme', theme);
    use(theme);
  });
}
