// LangGraph for JavaScript: node tests/clients/programs/langgraph_loop.mjs http://127.0.0.1:8485/v1

import { tool } from "@langchain/core/tools";
import { END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ToolNode, toolsCondition } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const QUESTION = "What is 1234 times 5678?";

const multiply = tool(({ a, b }) => String(a * b), {
  name: "multiply",
  description: "Multiply two integers.",
  schema: z.object({ a: z.int(), b: z.int() }),
});

const graphAt = (url) => {
  const model = new ChatOpenAI({ model: "local", temperature: 0, apiKey: "none", configuration: { baseURL: url } });
  const bound = model.bindTools([multiply]);
  return new StateGraph(MessagesAnnotation)
    .addNode("model", async ({ messages }) => ({ messages: [await bound.invoke(messages)] }))
    .addNode("tools", new ToolNode([multiply]))
    .addEdge(START, "model")
    .addConditionalEdges("model", toolsCondition, ["tools", END])
    .addEdge("tools", "model")
    .compile();
};

const asked = (question) => ({ messages: [{ role: "user", content: question }] });

const whole = async (url, question = QUESTION) => (await graphAt(url).invoke(asked(question))).messages.at(-1).text;

const streamed = async (url) => {
  let text = "";
  for await (const [chunk, { langgraph_node }] of await graphAt(url).stream(asked(QUESTION), { streamMode: "messages" })) {
    text = langgraph_node === "tools" ? "" : text + chunk.text; // what is said before a call is not the answer
  }
  return text;
};

const error = (url) => whole(url, "This is too long.").catch((thrown) => thrown.message);

for (const [how, ask] of Object.entries({ whole, streamed, error })) {
  console.log(`${how}: ${await ask(process.argv[2])}`);
}
