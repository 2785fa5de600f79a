// A response, streamed into its message.

import { streamChat } from './api.js';
import { withFiles } from './attachments.js';
import { currentModel } from './models.js';
import { openSettings } from './settings.js';
import { readSetting } from './store.js';

const NUMBERS = ['temperature', 'top_k', 'top_p', 'min_p', 'repetition_penalty', 'presence_penalty', 'frequency_penalty', 'seed', 'max_tokens'];

/** The body of a chat completion request: the messages so far and the user's settings. */
function requestBody(history) {
  const settings = readSetting('settings', {});
  const messages = history.map((message) => ({ role: message.role, content: withFiles(message) }));
  if (settings.system) messages.unshift({ role: 'system', content: settings.system });
  const model = currentModel();
  const body = { model: model?.id, messages, stream: true, stream_options: { include_usage: true } };
  for (const name of NUMBERS) if (settings[name]) body[name] = Number(settings[name]);
  if (settings.think && model?.thinks) body.think = settings.think === 'true';
  return body;
}

/**
 * Streams the response to `history` into `message` and calls `onChange` after each piece.
 * Returns the milliseconds to the first token, or nothing if there was none.
 */
export async function streamResponse(history, message, signal, onChange) {
  const start = performance.now();
  let first, last, tokens;
  try {
    for await (const event of streamChat(requestBody(history), signal)) {
      tokens = event.usage?.completion_tokens ?? tokens;
      const delta = event.choices[0]?.delta;
      if (!delta?.content && !delta?.reasoning_content) continue;
      last = performance.now();
      first ??= last;
      message.content += delta.content ?? '';
      message.reasoning += delta.reasoning_content ?? '';
      onChange();
    }
  } catch (error) {
    if (signal.aborted) message.facts = 'stopped';
    else message.failure = error.message;
    if (error.status === 401) openSettings();
  }
  if (tokens && first !== undefined) message.facts = statistics(tokens, first - start, last - first);
  return first && first - start;
}

/** Tokens, speed and time to first token, of times in milliseconds. */
function statistics(tokens, toFirst, afterFirst) {
  const speed = tokens > 1 && afterFirst > 0 ? ` · ${(((tokens - 1) / afterFirst) * 1000).toFixed(1)} tokens/s` : '';
  return `${tokens} tokens${speed} · first token ${(toFirst / 1000).toFixed(2)} s`;
}
