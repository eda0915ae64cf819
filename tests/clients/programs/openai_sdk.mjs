// OpenAI's SDK for JavaScript, chat completions: node tests/clients/programs/openai_sdk.mjs http://127.0.0.1:8485/v1

import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const QUESTION = "What is 1234 times 5678?";

const multiply = zodFunction({
  name: "multiply",
  description: "Multiply two integers.",
  parameters: z.object({ a: z.int(), b: z.int() }),
  function: ({ a, b }) => String(a * b),
});

const asked = (question) => ({ model: "local", temperature: 0, tools: [multiply], messages: [{ role: "user", content: question }] });

const chatAt = (url) => new OpenAI({ baseURL: url, apiKey: "none" }).chat.completions;

const whole = async (url, question = QUESTION) => await chatAt(url).runTools(asked(question)).finalContent();

const streamed = async (url) => await chatAt(url).runTools({ ...asked(QUESTION), stream: true }).finalContent();

const structured = async (url) => {
  const format = zodResponseFormat(z.object({ product: z.int() }), "product");
  const runner = chatAt(url).runTools({ ...asked(`${QUESTION} Answer as an object.`), response_format: format });
  return (await runner.finalMessage()).parsed.product;
};

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

for (const [how, ask] of Object.entries({ whole, streamed, structured, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
