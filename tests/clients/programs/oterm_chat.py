"""oterm, typed into by Textual's pilot: python tests/clients/programs/oterm_chat.py http://127.0.0.1:8485"""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ |= {"OLLAMA_URL": sys.argv[1], "OTERM_DATA_DIR": tempfile.mkdtemp()}

import oterm.app.oterm
from oterm.app.widgets.chat import ChatContainer
from oterm.config import appConfig, envConfig
from oterm.store.store import Store
from oterm.types import ChatModel

SERVER = Path(__file__).parents[1] / "multiply_server.py"
SERVERS = {"sums": {"command": sys.executable, "args": [str(SERVER)]}}
QUESTIONS = {"agent": "What is 1234 times 5678?", "error": "This is too long."}
KEYS = {" ": "space", ".": "full_stop", "?": "question_mark"}


class OTerm(oterm.app.oterm.OTerm):
    CSS_PATH = Path(oterm.app.oterm.__file__).with_name("oterm.tcss")

    def perform_checks(self):
        """Do not ask PyPI for a newer version."""


async def answer(app, store, chat, question):
    """Type a question; wait for what is kept of the answer, or for a message on the screen."""
    known = len(await store.get_messages(chat.id))
    async with app.run_test() as pilot:
        while not any(shown.loaded for shown in app.screen.query(ChatContainer)):
            await pilot.pause(0.1)
        app.screen.query_one("#promptArea").focus()
        await pilot.press(*(KEYS.get(sign, sign) for sign in question), "enter")
        while len(messages := await store.get_messages(chat.id)) == known and not app._notifications:
            await pilot.pause(0.1)
        return " ".join([*(note.message for note in app._notifications), *(kept.text for kept in messages[known + 1 :])])


async def main():
    appConfig.set("splash-screen", False)
    appConfig.set("mcpServers", SERVERS)
    store = await Store.get_store()
    chat = ChatModel(name="sums", model="local", parameters={"temperature": 0}, tools=["sums_multiply"])
    chat.id = await store.save_chat(chat)
    for how, question in QUESTIONS.items():
        print(f"{how}: {await answer(OTerm(), store, chat, question)}", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    finally:
        shutil.rmtree(envConfig.OTERM_DATA_DIR)
