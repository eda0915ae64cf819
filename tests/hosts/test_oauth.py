"""Signing in to MCP servers, against a real authorization server on loopback."""

import asyncio
import json
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import keyring
import keyring.backend
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from mcp.client.auth import OAuthFlowError
from servers.guarded import Grants, guarded_server
from servers.memory_tokens import MemoryTokens
from servers.run_server import free_port

from xmlcall.errors import ToolHostError, ToolHostUnavailable
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.mcp.oauth import PATH, Loopback, SignIn, SystemTokens, _check_address, forget
from xmlcall.hosts.server import HttpServer, OAuth
from xmlcall.types.calls import TextContent

NUMBERS = {"a": 1, "b": 2}


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[str, Grants]]:
    grants = Grants()
    with guarded_server(grants) as url:
        yield url, grants


@pytest.fixture
def grants(stage: tuple[str, Grants]) -> Grants:
    """The server as it is at first."""
    vars(stage[1]).update(vars(Grants()))
    return stage[1]


@pytest.fixture
def server(stage: tuple[str, Grants]) -> HttpServer:
    return HttpServer(name="guarded", url=stage[0])


class Person:
    """Somebody with a browser; remembers where they were sent."""

    def __init__(self, agrees: bool = True, tokens: MemoryTokens | None = None) -> None:
        self.agrees, self.tokens, self.addresses = agrees, tokens or MemoryTokens(), list[str]()
        self.pages = list[httpx2.Response]()

    def sign_in(self, patience: float = 5.0) -> SignIn:
        return SignIn(ask=self.ask, tokens=self.tokens, patience=patience)

    async def ask(self, server: str, url: str) -> bool:
        self.addresses.append(url)
        if self.agrees:
            async with httpx2.AsyncClient(follow_redirects=True) as browser:
                self.pages.append(await browser.get(url))
        return self.agrees


async def add(host: McpHost) -> str:
    async with host:
        await host.tools()
        result = await host.call("add", NUMBERS)
        assert isinstance(result.content[0], TextContent)
        return result.content[0].text


async def failure(host: McpHost) -> str:
    with pytest.raises(ToolHostError) as caught:
        await add(host)
    assert isinstance(caught.value, ToolHostUnavailable)
    return str(caught.value)


async def test_a_person_signs_in_once(server: HttpServer, grants: Grants) -> None:
    person = Person()
    assert await add(McpHost(server, sign_in=person.sign_in())) == "3"
    assert grants.events == ["401", "register", "authorize basic", "exchange"]
    asked = parse_qs(urlsplit(person.addresses[0]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["resource"] == [server.url]
    assert urlsplit(asked["redirect_uri"][0]).hostname == "127.0.0.1"
    assert "You can close this page" in person.pages[0].text

    grants.events.clear()
    assert await add(McpHost(server, sign_in=SignIn(tokens=person.tokens))) == "3"
    assert grants.events == ["401"]  # nothing is looked up before it is wanted; nobody is asked again

    assert await forget(server, person.tokens)
    assert not await forget(server, person.tokens)
    grants.events.clear()
    assert 'sign in by "xmlcall login guarded --mcp FILE"' in await failure(McpHost(server, sign_in=SignIn(tokens=person.tokens)))
    assert set(grants.events) == {"401"}  # no client is registered for nothing


@pytest.mark.parametrize("seconds", [pytest.param(1, marks=pytest.mark.full), 3600], ids=["as it was told", "before that"])
async def test_a_token_that_expires_is_refreshed_also_by_a_later_run(server: HttpServer, grants: Grants, seconds: int) -> None:
    person = Person()
    grants.seconds = seconds
    async with McpHost(server, sign_in=person.sign_in()) as host:
        await asyncio.sleep(1.1 if seconds == 1 else 0)
        grants.expire()
        grants.seconds = 3600
        await host.call("add", NUMBERS)
        assert grants.events.count("refresh") == 1
    grants.events.clear()
    grants.expire()
    assert await add(McpHost(server, sign_in=SignIn(tokens=person.tokens))) == "3"
    assert grants.events == ["401", "401", "refresh"]
    assert len(person.addresses) == 1


async def test_tokens_that_another_program_has_refreshed_are_taken(server: HttpServer, grants: Grants) -> None:
    person = Person()
    async with McpHost(server, sign_in=person.sign_in()) as first, McpHost(server, sign_in=person.sign_in()) as second:
        for host in (first, second, first, second):
            await host.tools()
            grants.expire()
    assert len(person.addresses) == 1, "a refresh token that was used up made a person sign in again"
    assert grants.events.count("refresh") == 3


async def test_a_call_that_needs_more_scopes_asks_for_them_beside_the_others(server: HttpServer, grants: Grants) -> None:
    person = Person()
    grants.wants = "write"
    assert await add(McpHost(server, sign_in=person.sign_in())) == "3"
    assert [event for event in grants.events if event.startswith("authorize")] == ["authorize basic", "authorize basic write"]


async def test_scopes_that_nobody_could_be_asked_for_are_asked_for_at_the_next_sign_in(
    server: HttpServer, grants: Grants
) -> None:
    person = Person()
    async with McpHost(server, sign_in=person.sign_in()) as host:
        await host.tools()
    grants.wants = "write"
    assert 'sign in by "xmlcall login' in await failure(McpHost(server, sign_in=SignIn(tokens=person.tokens)))
    assert await add(McpHost(server, sign_in=person.sign_in())) == "3"
    assert grants.events[-2:] == ["authorize basic write", "exchange"]


async def test_calls_with_a_token_run_side_by_side(server: HttpServer, grants: Grants) -> None:
    async with McpHost(server, sign_in=Person().sign_in()) as host:
        await host.tools()
        results = await asyncio.gather(*(host.call("add", NUMBERS) for _ in range(5)))
    assert len(results) == 5
    assert grants.events.count("authorize basic") == 1


@pytest.mark.parametrize(
    ("change", "agrees", "said"),
    [
        ({}, False, "the sign-in was declined"),
        ({"refuses": True}, True, "refused the sign-in: access_denied: No, [31m thanks"),
        ({"state": "another"}, True, "no sign-in within 0.3 s"),
        ({"methods": None}, True, "does not offer PKCE"),
        ({"long_metadata": True}, True, "a message of more than 1 MiB"),
    ],
)
async def test_a_sign_in_that_fails_is_told_and_not_tried_again(
    server: HttpServer, grants: Grants, change: dict[str, Any], agrees: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xmlcall.hosts.mcp.messages.MAX_MESSAGE_BYTES", 1 << 20)
    vars(grants).update(change)
    person = Person(agrees)
    message = await failure(McpHost(server, sign_in=person.sign_in(patience=0.3)))
    assert said in message
    assert message.startswith("guarded: signing in to it failed: ")
    assert "\x1b" not in message
    assert len(person.addresses) <= 1
    assert "exchange" not in grants.events


async def test_a_wrong_state_is_refused_before_a_code_is_used(server: HttpServer, grants: Grants) -> None:
    person = Person()
    grants.state = "another"
    await failure(McpHost(server, sign_in=person.sign_in(patience=0.3)))
    assert person.pages[0].status_code == 400


async def test_a_client_that_was_registered_beforehand(server: HttpServer, grants: Grants) -> None:
    from mcp.shared.auth import OAuthClientInformationFull
    from pydantic import AnyUrl

    port = free_port()
    grants.clients["mine"] = OAuthClientInformationFull(
        client_id="mine",
        client_secret="s3cret",
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}{PATH}")],
        token_endpoint_auth_method="client_secret_basic",
        scope="basic write",
    )
    known = OAuth(client_id="mine", client_secret="s3cret", callback_port=port, scopes=("write",))
    person = Person()
    assert await add(McpHost(replace(server, oauth=known), sign_in=person.sign_in())) == "3"
    assert grants.events == ["401", "authorize basic write", "exchange"]

    wrong = replace(known, client_secret="wr0ng")
    message = await failure(McpHost(replace(server, oauth=wrong), sign_in=Person().sign_in()))
    assert "signing in to it failed" in message
    assert "wr0ng" not in message


async def test_without_oauth_or_with_a_header_of_its_own_nothing_is_signed_in_to(server: HttpServer, grants: Grants) -> None:
    person = Person()
    for refused in (replace(server, oauth=None), replace(server, headers={"authorization": "Bearer mine"})):
        assert "HTTP 401" in await failure(McpHost(refused, sign_in=person.sign_in()))
    assert person.addresses == []
    assert set(grants.events) == {"401"}


REFUSED = [
    *("http://login.example/token", "http://127.0.0.1:9/token", "https://169.254.169.254/latest", "https://localhost/x"),
    *("https://2852039166/", "https://127.1/", "https://10.1/", "https://0x7f.0.0.1/", "https://localhost./x"),
    *("https://a.LOCALHOST./x", "https://[::ffff:10.0.0.1]/", "https://[64:ff9b::a00:1]/"),
]
TAKEN = ["https://login.example/token", "https://8.8.8.8/", "https://134744072/"]


@pytest.mark.parametrize(
    ("url", "server", "refused"),
    [
        *((url, "https://mcp.example/mcp", True) for url in REFUSED),
        *((url, "https://mcp.example/mcp", False) for url in TAKEN),
        ("http://127.0.0.1:9/token", "http://localhost:8/mcp", False),
        ("http://tools.corp/register", "http://tools.corp/mcp", False),
        ("file:///etc/passwd", "http://localhost:8/mcp", True),
    ],
)
def test_a_server_leads_only_to_addresses_that_are_safe(url: str, server: str, refused: bool) -> None:
    try:
        _check_address(httpx2.URL(url), server)
    except OAuthFlowError:
        assert refused
    else:
        assert not refused


async def raw(port: int, text: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().partition("\r\n")[0]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("GET /favicon.ico", "404"),
        ("POST /callback?state=right&code=c", "404"),
        ("GET /callback?code=c", "400"),
        ("GET /callback?state=wrong&code=c", "400"),
        ("GET /callback?state=right&state=right&code=c", "400"),
        ("GET /callback?" + "a=1&" * 100, ""),
        ("GET //[", ""),
        ("GET /" + "a" * 20_000, ""),
        ("", "404"),
    ],
)
async def test_the_way_back_takes_only_its_own_answer(target: str, status: str) -> None:
    port = free_port()
    async with Loopback(port, "right") as loopback:
        line = await raw(port, f"{target} HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.removeprefix("HTTP/1.1 ")[:3] == status
        assert (await raw(port, "GET /callback?state=right&code=c&iss=i HTTP/1.1\r\n\r\n")).endswith("200 OK")
        result = await loopback.answer(1)
        assert (result.code, result.iss) == ("c", "i")
        assert (await raw(port, "GET /callback?state=right&code=other HTTP/1.1\r\n\r\n")).endswith("400 Bad Request")


class Safe(keyring.backend.KeyringBackend):
    """A keyring that works."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


@pytest.fixture
def chosen() -> Iterator[None]:
    before = keyring.get_keyring()
    yield
    keyring.set_keyring(before)


@pytest.mark.usefixtures("chosen")
def test_tokens_are_kept_in_the_keyring_else_in_a_file_of_ones_own(tmp_path: Path) -> None:
    store = SystemTokens(tmp_path / "data" / "tokens.json")
    keyring.set_keyring(NoKeyring())  # type: ignore[no-untyped-call]
    assert store.get("a") is None
    store.set("a", "1")
    store.set("b", "2")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert (store.get("a"), store.in_file("a")) == ("1", True)

    safe = Safe()
    keyring.set_keyring(safe)
    assert store.get("a") == "1"
    store.set("a", "3")  # it moves
    assert safe.kept == {("xmlcall", "a"): "3"}
    assert json.loads(store.path.read_text()) == {"b": "2"}
    assert store.get("a") == "3"
    assert store.delete("a")
    assert store.delete("b")
    assert not store.delete("a")
    assert safe.kept == {}


def test_without_the_package_keyring_tokens_are_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    store = SystemTokens(tmp_path / "tokens.json")
    assert store.get("a") is None
    store.set("a", "1")
    assert (store.get("a"), store.in_file("a"), stat.S_IMODE(store.path.stat().st_mode)) == ("1", True, 0o600)
    assert store.delete("a")


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', "[" * 100_000, "\xff"])
def test_a_file_of_tokens_that_is_none_is_as_if_it_were_empty(tmp_path: Path, text: str) -> None:
    keyring.set_keyring(NoKeyring())  # type: ignore[no-untyped-call]
    path = tmp_path / "tokens.json"
    path.write_bytes(text.encode("latin-1"))
    store = SystemTokens(path)
    assert store.get("a") is None
    store.set("a", "1")
    assert store.get("a") == "1"


async def test_what_is_kept_and_not_ours_does_no_harm(server: HttpServer, grants: Grants) -> None:
    class Broken(MemoryTokens):
        def get(self, key: str) -> str | None:
            return super().get(key) or '{"tokens": 1, "client": [], "metadata": "x", "wanted": 3, "expires_at": "soon"}'

    assert await add(McpHost(server, sign_in=Person(tokens=Broken()).sign_in())) == "3"
