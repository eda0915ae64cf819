// Anthropic's SDK for JavaScript: node tests/clients/programs/anthropic_sdk.mjs http://127.0.0.1:8485

import Anthropic from "@anthropic-ai/sdk";
import { betaZodOutputFormat, betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";

const QUESTION = "What is 1234 times 5678?";

const multiply = betaZodTool({
  name: "multiply",
  description: "Multiply two integers.",
  inputSchema: z.object({ a: z.int(), b: z.int() }),
  run: ({ a, b }) => String(a * b),
});

const asked = (question) => ({
  model: "local",
  max_tokens: 1000,
  tools: [multiply],
  messages: [{ role: "user", content: question }],
});

const messagesAt = (url) => new Anthropic({ baseURL: url, apiKey: "none" }).beta.messages;

const textOf = (message) => message.content.map((block) => (block.type === "text" ? block.text : "")).join("");

const whole = async (url, question = QUESTION) => textOf(await messagesAt(url).toolRunner(asked(question)));

const streamed = async (url) => textOf(await messagesAt(url).toolRunner({ ...asked(QUESTION), stream: true }));

const structured = async (url) => {
  const output_config = { format: betaZodOutputFormat(z.object({ product: z.int() })) };
  const message = await messagesAt(url).toolRunner({ ...asked(`${QUESTION} Answer as an object.`), output_config });
  return JSON.parse(textOf(message)).product;
};

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

for (const [how, ask] of Object.entries({ whole, streamed, structured, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
