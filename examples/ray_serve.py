"""Serve a model with tool calling on Ray, and ask it: python examples/ray_serve.py [MODEL]

MODEL is what every node of the cluster can reach, such as http://10.0.0.1:8080/v1. Without RAY_ADDRESS, Ray is started here, for
as long as the program runs. Needs `pip install 'xmlcall[ray]'`.
"""

import json
import os
import sys

import httpx2
import ray
from ray import serve

import xmlcall.integrations.ray

PORT = int(os.environ.get("PORT", "8000"))
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather.", "parameters": PARAMETERS}}
BODY = {"model": "any", "messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": [TOOL]}


def main(model: str) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before Ray starts
    ray.init(log_to_driver=False, include_dashboard=None if "RAY_ADDRESS" in os.environ else False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT}, proxy_location="HeadOnly")
        serve.run(xmlcall.integrations.ray.app(model=model, max_replicas=2))
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=6), timeout=300) as client:  # Ray's HTTP proxy may still begin
            answer = client.post(f"http://127.0.0.1:{PORT}/v1/chat/completions", json=BODY).raise_for_status()
        message = answer.json()["choices"][0]["message"]
        for call in message.get("tool_calls") or ():
            print("calls", call["function"]["name"], json.loads(call["function"]["arguments"]))
        print(message["content"] or "", end="\n" * bool(message["content"]))
    finally:
        serve.delete("default")
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1")
