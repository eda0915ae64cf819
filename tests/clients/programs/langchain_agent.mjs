// LangChain for JavaScript, its agent: node tests/clients/programs/langchain_agent.mjs http://127.0.0.1:8485/v1

import { ChatOpenAI } from "@langchain/openai";
import { createAgent, providerStrategy, tool, toolStrategy } from "langchain";
import { z } from "zod";

const QUESTION = "What is 1234 times 5678?";

const multiply = tool(({ a, b }) => String(a * b), {
  name: "multiply",
  description: "Multiply two integers.",
  schema: z.object({ a: z.int(), b: z.int() }),
});

const Product = z.object({ product: z.int() });

const agentAt = (url, responseFormat = undefined) => {
  const model = new ChatOpenAI({ model: "local", temperature: 0, apiKey: "none", configuration: { baseURL: url } });
  return createAgent({ model, tools: [multiply], responseFormat });
};

const asked = (question) => ({ messages: [{ role: "user", content: question }] });

const whole = async (url, question = QUESTION) => (await agentAt(url).invoke(asked(question))).messages.at(-1).text;

const streamed = async (url) => {
  let text = "";
  for await (const [chunk, { langgraph_node }] of await agentAt(url).stream(asked(QUESTION), { streamMode: "messages" })) {
    text = langgraph_node === "tools" ? "" : text + chunk.text; // what is said before a call is not the answer
  }
  return text;
};

const structuredBy = (strategy) => async (url) =>
  (await agentAt(url, strategy(Product)).invoke(asked(`${QUESTION} Answer as an object.`))).structuredResponse.product;

const structured = structuredBy((schema) => schema);

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

const strategies = { "structured provider": structuredBy(providerStrategy), "structured tool": structuredBy(toolStrategy) };

for (const [how, ask] of Object.entries({ whole, streamed, structured, ...strategies, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
