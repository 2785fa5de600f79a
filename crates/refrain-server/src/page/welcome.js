// The view of an empty conversation: the model, and prompts to try.

import { make } from './dom.js';
import { currentModel, description } from './models.js';

/** The bundled demo model adds numbers and tells short stories, and nothing else. */
const DEMO_PROMPTS = [
  ['Tell a story', 'Tell me a story about a fox named Pip who loses a key.'],
  ['Another story', 'Tell me a story about a girl named Mia who loses a boat.'],
  ['Add two numbers', 'What is 12 + 30?'],
  ['Larger numbers', 'What is 348 + 276?'],
];

const PROMPTS = [
  ['Explain something', 'Explain how a hash map works, with a short example in Python.'],
  ['Write code', 'Write a shell script that lists the ten largest files below a folder.'],
  ['Improve a text', 'Make this text shorter and clearer: '],
  ['Do the maths', 'Derive the formula for the roots of $ax^2 + bx + c = 0$ step by step.'],
];

/** The element. `onChoose` receives the prompt that is clicked. */
export function welcomeView(onChoose) {
  const model = currentModel();
  const isDemo = model?.id === 'demo';
  const cards = (isDemo ? DEMO_PROMPTS : PROMPTS).map(([title, prompt]) => {
    const card = make('button', { type: 'button' }, make('strong', { textContent: title }), make('span', { textContent: prompt.trim() }));
    card.addEventListener('click', () => onChoose(prompt));
    return make('li', {}, card);
  });
  const about = isDemo ? 'A small model inside the program: it tells short stories and adds numbers' : model && description(model);
  return make(
    'section',
    { className: 'welcome' },
    make('h2', { textContent: model ? `Chat with ${model.id}` : 'Chat' }),
    make('p', { textContent: [about, 'Conversations stay in this browser.'].filter(Boolean).join('. ') }),
    make('ul', { ariaLabel: 'Prompts to try' }, ...cards),
  );
}
