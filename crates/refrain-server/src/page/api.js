// Requests to the server that sent this page.

import { readSetting } from './store.js';

/** Sends a request with the user's API key. Throws an error with the server's message and HTTP status if it is refused. */
export async function request(path, body, signal) {
  const key = readSetting('settings', {}).key;
  const headers = { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) };
  const method = body === undefined ? 'GET' : 'POST';
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  if (response.ok) return response;
  const refusal = await response.json().catch(() => ({}));
  const error = new Error(refusal.error?.message ?? `the server responded with status ${response.status}`);
  error.status = response.status;
  throw error;
}

/** The events of a streamed chat completion, as they arrive. */
export async function* streamChat(body, signal) {
  const response = await request('v1/chat/completions', body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const lines = buffer.split('\n');
    buffer = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}
