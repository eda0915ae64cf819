// Ollama's SDK for JavaScript: node tests/clients/programs/ollama_sdk.mjs http://127.0.0.1:8485

import { Ollama } from "ollama";
import { z } from "zod";

const QUESTION = "What is 1234 times 5678?";

const parameters = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } }, required: ["a", "b"] };
const multiply = { type: "function", function: { name: "multiply", description: "Multiply two integers.", parameters } };

const ASKED = { model: "local", tools: [multiply], options: { temperature: 0 } };

const result = ({ function: { name, arguments: { a, b } } }) => ({ role: "tool", tool_name: name, content: String(a * b) });

const answered = async (ask, question) => {
  const messages = [{ role: "user", content: question }];
  for (;;) {
    const message = await ask({ ...ASKED, messages });
    if (!message.tool_calls?.length) return message.content;
    messages.push(message, ...message.tool_calls.map(result));
  }
};

const whole = async (url, question = QUESTION, format = undefined) =>
  await answered(async (request) => (await new Ollama({ host: url }).chat({ ...request, format })).message, question);

const streamed = async (url) =>
  await answered(async (request) => {
    const joined = { role: "assistant", content: "", tool_calls: [] };
    for await (const { message } of await new Ollama({ host: url }).chat({ ...request, stream: true })) {
      joined.content += message.content;
      joined.tool_calls.push(...(message.tool_calls ?? []));
    }
    return joined;
  }, QUESTION);

const structured = async (url) => {
  const Product = z.object({ product: z.int() });
  const text = await whole(url, `${QUESTION} Answer as an object.`, z.toJSONSchema(Product));
  return Product.parse(JSON.parse(text)).product;
};

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

for (const [how, ask] of Object.entries({ whole, streamed, structured, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
