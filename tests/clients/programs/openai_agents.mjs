// OpenAI's Agents SDK for JavaScript, chat completions: node tests/clients/programs/openai_agents.mjs http://127.0.0.1:8485/v1

import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

setTracingDisabled(true);

const QUESTION = "What is 1234 times 5678?";

const multiply = tool({
  name: "multiply",
  description: "Multiply two integers.",
  parameters: z.object({ a: z.int(), b: z.int() }),
  execute: async ({ a, b }) => String(a * b),
});

const CALCULATOR = { name: "calculator", instructions: "Multiply with the tool.", tools: [multiply] };
const calculator = new Agent({ ...CALCULATOR, model: "local", modelSettings: { temperature: 0 } });

const runnerAt = (url) =>
  new Runner({ modelProvider: new OpenAIProvider({ baseURL: url, apiKey: "none", useResponses: false }) });

const whole = async (url, question = QUESTION, agent = calculator) => (await runnerAt(url).run(agent, question)).finalOutput;

const streamed = async (url) => {
  const result = await runnerAt(url).run(calculator, QUESTION, { stream: true });
  await result.completed;
  return result.finalOutput;
};

const structured = async (url) => {
  const agent = calculator.clone({ outputType: z.object({ product: z.int() }) });
  return (await whole(url, `${QUESTION} Answer as an object.`, agent)).product;
};

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

for (const [how, ask] of Object.entries({ whole, streamed, structured, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
