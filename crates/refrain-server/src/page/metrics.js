// The server's metrics in the sidebar, polled from /metrics.

import { request } from './api.js';
import { find } from './dom.js';

/** Milliseconds between two polls. */
const POLL_INTERVAL = 1000;

/** Gauges that are the same for all models; other values are summed over the models. */
const SHARED = ['vllm:kv_cache_usage_perc', 'refrain:memory_bandwidth_bytes_per_second'];

/** Values by metric name, combined over all models. */
function parse(text) {
  const values = {};
  for (const line of text.split('\n')) {
    const match = /^([\w:]+)(?:\{.*\})? ([-+.\deE]+)$/.exec(line);
    if (!match) continue;
    const [, name, value] = match;
    const previous = values[name] ?? 0;
    values[name] = SHARED.includes(name) ? Math.max(previous, Number(value)) : previous + Number(value);
  }
  return values;
}

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function show(name, text) {
  const element = find(`[data-metric="${name}"]`);
  if (element.textContent !== text) element.textContent = text;
}

/** Shows the time to the first token of the last response. */
export function showFirstToken(milliseconds) {
  if (milliseconds) show('first-token', `${(milliseconds / 1000).toFixed(2)} s`);
}

/** Polls the metrics for as long as the page is visible. Never returns. */
export async function pollMetrics() {
  let previous;
  for (;;) {
    if (!document.hidden) {
      try {
        const current = parse(await (await request('metrics')).text());
        current.time = performance.now();
        showMetrics(current, previous);
        previous = current;
      } catch {
        for (const name of ['speed', 'running', 'waiting', 'cache', 'bandwidth']) show(name, '–');
        previous = undefined;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL));
  }
}

function showMetrics(current, previous) {
  show('running', String(current['vllm:num_requests_running']));
  show('waiting', String(current['vllm:num_requests_waiting']));
  show('cache', percent(current['vllm:kv_cache_usage_perc']));
  const bandwidth = current['refrain:memory_bandwidth_bytes_per_second'];
  find('#bandwidth').hidden = !bandwidth;
  if (!previous) return;
  const perSecond = (name) => ((current[name] - previous[name]) / (current.time - previous.time)) * 1000;
  show('speed', perSecond('vllm:generation_tokens_total').toFixed(1));
  if (bandwidth) show('bandwidth', percent(perSecond('refrain:weight_bytes_read_total') / bandwidth));
}
