"""Open WebUI, asked by its own API: python tests/clients/programs/open_webui_server.py http://127.0.0.1:8485/v1"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid

import httpx

TOOL = '''class Tools:
    def multiply(self, a: int, b: int) -> str:
        """
        Multiply two integers.
        """
        return str(a * b)
'''
QUESTIONS = {"agent": "What is 1234 times 5678?", "error": "This is too long."}
SETTINGS = {
    "ENABLE_OLLAMA_API": "false",
    "OPENAI_API_KEY": "none",
    "WEBUI_SECRET_KEY": "a key of at least thirty-two characters",
    "RAG_EMBEDDING_ENGINE": "openai",  # the other engine fetches a model
    "OFFLINE_MODE": "true",
    "ENABLE_VERSION_UPDATE_CHECK": "false",
    "ANONYMIZED_TELEMETRY": "false",
}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def signed_in(client):
    """Wait until the server answers, and become its first user."""
    person = {"name": "person", "email": "person@localhost", "password": "multiplication"}
    while True:
        try:
            client.get("/health").raise_for_status()
            break
        except httpx.HTTPError:
            time.sleep(0.5)
    token = client.post("/api/v1/auths/signup", json=person).raise_for_status().json()["token"]
    client.headers["Authorization"] = f"Bearer {token}"


def answer(client, model, question):
    """Ask as its page does: the server runs the tool, and keeps the answer in a chat."""
    message = {"id": str(uuid.uuid4()), "role": "user", "content": question}
    asked = {
        "model": model,
        "stream": True,
        "messages": [{"role": "user", "content": question}],
        "params": {"temperature": 0, "function_calling": "native"},
        "tool_ids": ["sums"],
        "parent_id": None,
        "user_message": message,
        "id": str(uuid.uuid4()),
        "session_id": str(uuid.uuid4()),
    }
    begun = client.post("/api/chat/completions", json=asked).raise_for_status().json()
    while True:
        chat = client.get(f"/api/v1/chats/{begun['chat_id']}").raise_for_status().json()["chat"]
        reply = chat["history"]["messages"][asked["id"]]
        if reply.get("done") or reply.get("error"):
            return reply.get("error") or reply["content"]
        time.sleep(0.2)


def main(url):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        variables = os.environ | SETTINGS | {"DATA_DIR": folder, "OPENAI_API_BASE_URL": url}
        command = ["open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)]
        with subprocess.Popen(command, env=variables, stdout=sys.stderr) as server:
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
                    signed_in(client)
                    tool = {"id": "sums", "name": "sums", "content": TOOL, "meta": {"description": "Multiplies."}}
                    client.post("/api/v1/tools/create", json=tool).raise_for_status()
                    model = client.get("/api/models").raise_for_status().json()["data"][0]["id"]
                    for how, question in QUESTIONS.items():
                        print(f"{how}: {answer(client, model, question)}", flush=True)
            finally:
                server.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
