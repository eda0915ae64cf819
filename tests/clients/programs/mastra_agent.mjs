// Mastra: node tests/clients/programs/mastra_agent.mjs http://127.0.0.1:8485/v1

import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

process.env.MASTRA_TELEMETRY_DISABLED = "1";

const QUESTION = "What is 1234 times 5678?";

const multiply = createTool({
  id: "multiply",
  description: "Multiply two integers.",
  inputSchema: z.object({ a: z.int(), b: z.int() }),
  execute: async ({ a, b }) => a * b,
});

const agentAt = (url) =>
  new Agent({
    id: "calculator",
    name: "calculator",
    instructions: "Multiply with the tool.",
    model: { id: "xmlcall/local", url, apiKey: "none" },
    tools: { multiply },
  });

const OPTIONS = { modelSettings: { temperature: 0 } };

const whole = async (url, question = QUESTION) => (await agentAt(url).generate(question, OPTIONS)).text;

const streamed = async (url) => await (await agentAt(url).stream(QUESTION, OPTIONS)).text;

const structured = async (url) => {
  const structuredOutput = { schema: z.object({ product: z.int() }) };
  return (await agentAt(url).generate(`${QUESTION} Answer as an object.`, { ...OPTIONS, structuredOutput })).object.product;
};

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

for (const [how, ask] of Object.entries({ whole, streamed, structured, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
