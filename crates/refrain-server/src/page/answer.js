// An answer as it comes, put into its message.

import { events } from './server.js';
import { setting } from './store.js';

const NUMBERS = ['temperature', 'top_k', 'top_p', 'min_p', 'repetition_penalty', 'presence_penalty', 'frequency_penalty', 'seed', 'max_tokens'];

/** What is asked: the messages so far, by the user's settings. */
function request(messages) {
  const settings = setting('settings', {});
  const said = messages.map(({ role, content }) => ({ role, content }));
  if (settings.system) said.unshift({ role: 'system', content: settings.system });
  const model = document.querySelector('#models').value || undefined;
  const body = { model, messages: said, stream: true, stream_options: { include_usage: true } };
  for (const name of NUMBERS) if (settings[name]) body[name] = Number(settings[name]);
  if (settings.think) body.think = settings.think === 'true';
  return body;
}

/**
 * Lets `message` grow by what the model says to `messages`; `changed` is called with each piece.
 * Gives the milliseconds to the first token, if there was one.
 */
export async function answer(messages, message, signal, changed) {
  const begin = performance.now();
  let first, last, tokens;
  try {
    for await (const event of events(request(messages), signal)) {
      tokens = event.usage?.completion_tokens ?? tokens;
      const delta = event.choices[0]?.delta;
      if (!delta?.content && !delta?.reasoning_content) continue;
      last = performance.now();
      first ??= last;
      message.content += delta.content ?? '';
      message.reasoning += delta.reasoning_content ?? '';
      changed();
    }
  } catch (error) {
    if (signal.aborted) message.facts = 'stopped';
    else message.failure = error.message;
    if (error.status === 401) document.querySelector('#open-settings').click();
  }
  if (tokens && first !== undefined) {
    const speed = tokens > 1 && last > first ? `, ${(((tokens - 1) / (last - first)) * 1000).toFixed(1)} tokens/s` : '';
    message.facts = `${tokens} tokens${speed}, the first after ${((first - begin) / 1000).toFixed(2)} s`;
  }
  return first && first - begin;
}
