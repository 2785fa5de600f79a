// Vercel's AI SDK, over chat completions and over the Responses API: node ai_sdk.mjs URL. The test runs it in the
// folder of the installed packages.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const QUESTION = "What is the weather in Ulm?";
const ANSWER = "It is sunny in Ulm.";
const STORY = "Pip the fox looked for a key.";
const DATA = { city: "Ulm", warm: true };

async function check(model) {
  const cities = [];
  const weather = tool({
    description: "The weather in a city",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      cities.push(city);
      return `sunny, 21 degrees in ${city}`;
    },
  });
  const ask = { model, maxRetries: 0 };
  const steps = { ...ask, prompt: QUESTION, tools: { weather }, stopWhen: stepCountIs(3) };
  const answer = await generateText(steps);
  assert.equal(answer.text, ANSWER);
  assert.equal(answer.steps.length, 2);
  assert(answer.usage.outputTokens > 0);
  assert.deepEqual(cities, ["Ulm"]);
  const kinds = [];
  for await (const part of streamText(steps).fullStream) kinds.push(part.type);
  for (const kind of ["tool-input-delta", "tool-call", "tool-result", "text-delta"]) {
    assert(kinds.includes(kind), `${kind} in ${kinds}`);
  }
  assert.deepEqual(cities, ["Ulm", "Ulm"]);
  const pieces = [];
  for await (const piece of streamText({ ...ask, prompt: "Tell me a story." }).textStream) pieces.push(piece);
  assert.equal(pieces.join(""), STORY);
  assert(pieces.length > 1);
  const output = Output.object({ schema: z.object({ city: z.string(), warm: z.boolean() }) });
  const shaped = await generateText({ ...ask, prompt: "Describe Ulm as data.", output });
  assert.deepEqual(shaped.output, DATA);
  const partial = [];
  const stream = streamText({ ...ask, prompt: "Describe Ulm as data.", output });
  for await (const piece of stream.partialOutputStream) partial.push(piece);
  assert.deepEqual(partial.at(-1), DATA);
}

const url = process.argv.at(-1);
const baseURL = `${url}/v1`;
const compatible = createOpenAICompatible({ name: "refrain", baseURL, supportsStructuredOutputs: true, includeUsage: true });
await check(compatible("scripted"));
const openai = createOpenAI({ baseURL, apiKey: "none" });
await check(openai.chat("scripted"));
await check(openai.responses("scripted"));
console.log("the AI SDK works");
