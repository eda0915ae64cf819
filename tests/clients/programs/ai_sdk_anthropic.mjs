// Vercel's AI SDK with its Anthropic provider: node tests/clients/programs/ai_sdk_anthropic.mjs http://127.0.0.1:8485/v1

import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const multiply = tool({
  description: "Multiply two integers.",
  inputSchema: z.object({ a: z.int(), b: z.int() }),
  execute: async ({ a, b }) => a * b,
});

const asked = (url, prompt = "What is 1234 times 5678?") => ({
  model: createAnthropic({ baseURL: url, apiKey: "none" })("local"),
  tools: { multiply },
  stopWhen: isStepCount(5),
  temperature: 0,
  prompt,
});

const askedForObject = (url) => ({
  ...asked(url, "What is 1234 times 5678? Answer as an object."),
  output: Output.object({ schema: z.object({ product: z.int() }) }),
});

const whole = async (url) => (await generateText(asked(url))).text;

const streamed = async (url) => await streamText(asked(url)).text;

const structured = async (url) => (await generateText(askedForObject(url))).output.product;

const structuredStreamed = async (url) => (await streamText(askedForObject(url)).output).product;

const error = (url) => generateText(asked(url, "This is too long.")).catch((thrown) => thrown.message);

const hows = { whole, streamed, structured, "structured streamed": structuredStreamed, error };

for (const [how, ask] of Object.entries(hows)) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
