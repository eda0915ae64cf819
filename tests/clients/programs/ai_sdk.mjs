// Vercel's AI SDK: node tests/clients/programs/ai_sdk.mjs http://127.0.0.1:8485/v1

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const multiply = tool({
  description: "Multiply two integers.",
  inputSchema: z.object({ a: z.int(), b: z.int() }),
  execute: async ({ a, b }) => a * b,
});

const asked = (url) => ({
  model: createOpenAICompatible({ name: "xmlcall", baseURL: url, apiKey: "none" })("local"),
  tools: { multiply },
  stopWhen: isStepCount(5),
  temperature: 0,
  prompt: "What is 1234 times 5678?",
});

const whole = async (url) => (await generateText(asked(url))).text;

const streamed = async (url) => await streamText(asked(url)).text;

for (const [how, ask] of Object.entries({ whole, streamed })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
