// OpenAI's SDK for JavaScript, responses: node tests/clients/programs/openai_responses.mjs http://127.0.0.1:8485/v1

import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const QUESTION = "What is 1234 times 5678?";

const multiply = zodResponsesFunction({
  name: "multiply",
  description: "Multiply two integers.",
  parameters: z.object({ a: z.int(), b: z.int() }),
});

const ASKED = { model: "local", temperature: 0, tools: [multiply], store: false };

const results = (reply) =>
  reply.output
    .filter((item) => item.type === "function_call")
    .map(({ call_id, parsed_arguments: { a, b } }) => ({ type: "function_call_output", call_id, output: String(a * b) }));

const answered = async (ask, question) => {
  const input = [{ role: "user", content: question }];
  for (;;) {
    const reply = await ask({ ...ASKED, input });
    const outputs = results(reply);
    if (!outputs.length) return reply;
    input.push(...reply.output, ...outputs);
  }
};

const responsesAt = (url) => new OpenAI({ baseURL: url, apiKey: "none" }).responses;

const whole = async (url, question = QUESTION) =>
  (await answered((request) => responsesAt(url).parse(request), question)).output_text;

const streamed = async (url) =>
  (await answered((request) => responsesAt(url).stream(request).finalResponse(), QUESTION)).output_text;

const structured = async (url) => {
  const text = { format: zodTextFormat(z.object({ product: z.int() }), "product") };
  const ask = (request) => responsesAt(url).parse({ ...request, text });
  return (await answered(ask, `${QUESTION} Answer as an object.`)).output_parsed.product;
};

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

for (const [how, ask] of Object.entries({ whole, streamed, structured, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
