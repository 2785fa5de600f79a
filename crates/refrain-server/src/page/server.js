// What is asked of the server.

import { setting } from './store.js';

/** A request with the user's key; what the server refuses is thrown with its words. */
export async function ask(path, body, signal) {
  const key = setting('settings', {}).key;
  const headers = { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) };
  const method = body === undefined ? 'GET' : 'POST';
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const error = new Error(said.error?.message ?? `the server answers ${response.status}`);
  error.status = response.status;
  throw error;
}

/** The events of an answer, as they come. */
export async function* events(body, signal) {
  const response = await ask('v1/chat/completions', body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const lines = held.split('\n');
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}
