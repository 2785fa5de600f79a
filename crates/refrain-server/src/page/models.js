// The models of the server, and the menu that chooses one.

import { request } from './api.js';
import { find } from './dom.js';
import { readSetting, saveSetting } from './store.js';

/** The models in the server's order: `id`, `context` in tokens, `details` for display, and `thinks` once it is known. */
let models = [];
let current;

/** The model that answers, or nothing before the models are known. */
export const currentModel = () => current;

/** Asks the server for its models, and chooses the one that was chosen last. */
export async function loadModels() {
  const { data } = await (await request('v1/models')).json();
  const details = await describe();
  models = data.map(({ id, max_model_len: context }) => ({ id, context, details: details.get(id) }));
  const stored = readSetting('model');
  find('#models').replaceChildren(...models.map(({ id }) => new Option(id, id)));
  find('#models').hidden = models.length === 1;
  find('#model').hidden = models.length > 1;
  find('#model').textContent = models[0].id;
  await choose(models.find(({ id }) => id === stored) ?? models[0]);
}

/** Size and format of each model, where the server describes them. */
async function describe() {
  try {
    const { models: described } = await (await request('api/tags')).json();
    return new Map(described.map(({ name, details }) => [name, `${details.parameter_size} parameters · ${details.quantization_level}`]));
  } catch {
    return new Map();
  }
}

async function choose(model) {
  current = model;
  find('#models').value = model.id;
  document.title = `${model.id} · Refrain`;
  find('#model-details').textContent = description(model);
  find('#question').placeholder = `Message ${model.id}`;
  model.thinks ??= await canThink(model.id);
  find('#thinking').hidden = !model.thinks;
}

/** The size, format and context of a model. */
export function description({ details, context }) {
  const tokens = context && `${context.toLocaleString('en')} tokens of context`;
  return [details, tokens].filter(Boolean).join(' · ');
}

/** Whether a model can think before it answers, as the server says. */
async function canThink(model) {
  try {
    const { capabilities } = await (await request('api/show', { model })).json();
    return capabilities.includes('thinking');
  } catch {
    return false;
  }
}

/** Sets up the menu. `onChange` is called after another model was chosen. */
export function setUpModels(onChange) {
  find('#models').addEventListener('change', async ({ target }) => {
    saveSetting('model', target.value);
    await choose(models.find(({ id }) => id === target.value));
    onChange();
  });
}
