// The figures in the head of the page, from the server's metrics.

import { ask } from './server.js';

const EVERY = 1000;

/** What does not add up over models. */
const SHARED = ['vllm:kv_cache_usage_perc', 'refrain:memory_bandwidth_bytes_per_second'];

/** Values by their names, of all models together. */
function parse(text) {
  const values = {};
  for (const line of text.split('\n')) {
    const found = /^([\w:]+)(?:\{.*\})? ([-+.\deE]+)$/.exec(line);
    if (!found) continue;
    const [, name, value] = found;
    const before = values[name] ?? 0;
    values[name] = SHARED.includes(name) ? Math.max(before, Number(value)) : before + Number(value);
  }
  return values;
}

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function put(name, text) {
  const place = document.querySelector(`[data-figure="${name}"]`);
  if (place.textContent !== text) place.textContent = text;
}

export function showFirst(milliseconds) {
  if (milliseconds) put('first', `${(milliseconds / 1000).toFixed(2)} s`);
}

/** Looks at the metrics again and again, while the page can be seen. */
export async function watch() {
  let before;
  for (;;) {
    if (!document.hidden) {
      try {
        const now = parse(await (await ask('metrics')).text());
        now.at = performance.now();
        showFigures(now, before);
        before = now;
      } catch {
        for (const name of ['speed', 'batch', 'waiting', 'cache', 'bandwidth']) put(name, '–');
        before = undefined;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
}

function showFigures(now, before) {
  put('batch', String(now['vllm:num_requests_running']));
  put('waiting', String(now['vllm:num_requests_waiting']));
  put('cache', percent(now['vllm:kv_cache_usage_perc']));
  if (!before) return;
  const rate = (name) => ((now[name] - before[name]) / (now.at - before.at)) * 1000;
  put('speed', rate('vllm:generation_tokens_total').toFixed(1));
  const most = now['refrain:memory_bandwidth_bytes_per_second'];
  if (most) put('bandwidth', percent(rate('refrain:weight_bytes_read_total') / most));
}
