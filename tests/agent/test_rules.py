"""Rules about which calls run: what matches, what decides, and what a file of them may hold."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmlcall import RawCall, Repair, Tool, ToolCall, UsageError
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.agent.policy_file import load_rules, own_file, read_rules
from xmlcall.agent.rules import ONLY_MARKS, Effect, Rule, Rules, below, glob_of, holds, host, like, made_out, one_of, ruled
from xmlcall.errors import REPAIRS


def proposed(target: str = "files.write_file", *repairs: str, **arguments: Any) -> Proposal:
    server, _, name = target.partition(".")
    raw = RawCall(index=0, name=name)
    found = tuple(Repair(code=code, span=(0, 0)) for code in repairs)
    call = ToolCall(id="call_0", name=name, arguments=arguments, repairs=found, raw=raw)
    return Proposal(call=call, tool=Tool(name=name), host=server, host_tool=name)


def rules(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "xmlcall.toml"
    file.write_text(text)
    return read_rules(file)


DECIDED = [
    ("", "ask"),
    ('allow = "files.*"', "allow"),
    ('allow = "files.read_*"', "ask"),
    ('allow = ["mail.*", "files.write_file"]', "allow"),
    ('allow = "*"\ndeny = "files.*"', "deny"),
    ('deny = "*"\nallow = "files.write_file"', "deny"),  # that a glob says more makes no difference
    ('allow = "*"\nask = "*.write_*"', "ask"),
    ('ask = "*"\ndeny = "files.write_file"', "deny"),
    ('[[rule]]\nallow = "files.*"\nwhere.path.below = "/notes"', "allow"),
    ('[[rule]]\nallow = "files.*"\nwhere.path.below = "/other"', "ask"),
    ('[[rule]]\nallow = "files.*"\nwhere.path.below = ["/other", "/notes"]', "allow"),
    ('[[rule]]\nallow = "files.*"\nwhere.content.like = "*"\nwhere.path.below = "/other"', "ask"),  # all have to hold
    ('[[rule]]\nallow = "files.*"\nwhere.mode.one_of = ["append"]', "ask"),  # not given
    ('allow = "*"\n[[rule]]\ndeny = "files.*"\nwhere.path.below = "/notes"', "deny"),
    ('allow = "*"\n[[rule]]\ndeny = "files.*"\nwhere.path.below = "/other"', "allow"),
    ('allow = "*"\n[[rule]]\nask = "files.*"\nwhere.content.like = "*secret*"', "allow"),
]


@pytest.mark.parametrize(("text", "effect"), DECIDED)
def test_the_strictest_rule_that_matches_decides(text: str, effect: str, tmp_path: Path) -> None:
    proposal = proposed(path="/notes/a.txt", content="hello")
    assert rules(tmp_path, text).judge(proposal).effect == effect


@pytest.mark.parametrize(
    ("glob", "server", "tool", "allows", "denies"),
    [
        ("web.internal.*", "web.internal", "read", True, True),
        ("web.internal.*", "web", "internal.read", False, True),  # in doubt it is denied, and not allowed
        ("web.internal.read", "web", "internal.read", False, True),
        ("web.internal[.]read", "web", "internal.read", True, True),
        ("web.internal[.]read", "web.internal", "read", False, True),
        ("web.*", "web", "internal.read", True, True),
        ("web.*", "web.internal", "read", False, True),
        ("time.*", "time.evil", "now", False, True),
        ("time.evil.*", "time", "evil.now", False, True),
        ("*.now", "time.evil", "now", True, True),
        ("*.delete_*", "disk", "x.delete_all", False, True),
        ("*", "time.evil", "now", True, True),
        ("t*", "time", "now", True, True),
        ("x.*", "time", "now", False, False),
    ],
)
def test_names_of_servers_and_tools_are_matched_apart(glob: str, server: str, tool: str, allows: bool, denies: bool) -> None:
    proposal = replace(proposed(), host=server, host_tool=tool)
    effects = [Rules(rules=(Rule(effect=effect, tools=(glob,)),)).judge(proposal).effect for effect in ("allow", "deny")]
    assert effects == ["allow" if allows else "ask", "deny" if denies else "ask"]
    assert Rules(rules=(Rule(effect="allow", tools=(glob,)),)).may_allow(server, tool) is allows


@given(
    st.text(alphabet="a.[]*?b", min_size=1),
    st.text(alphabet="a.[*?b", min_size=1),
    st.text(alphabet="a.b"),
    st.text(alphabet="a.b"),
)
def test_the_glob_that_is_proposed_matches_its_tool_alone(server: str, tool: str, other: str, third: str) -> None:
    rule = Rule(effect="allow", tools=(glob_of(server, tool),))
    assert rule.names(server, tool)
    assert rule.names(other, third) is ((other, third) == (server, tool))


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ('allow = "*"', "ask"),
        ('allow = "*"\nrepaired = true', "allow"),
        ('allow = "*"\n[[rule]]\nallow = "files.*"\nrepaired = true', "allow"),
        ('repaired = true\n[[rule]]\nallow = "files.*"\nrepaired = false', "ask"),
        ('allow = "*"\nrepaired = true\ndeny = "files.*"', "deny"),
    ],
)
def test_a_call_that_was_made_out_asks_unless_a_rule_allows_that(text: str, effect: str, tmp_path: Path) -> None:
    found = rules(tmp_path, text).judge(proposed("files.write_file", "missing-block", "parameter-name", path="/x"))
    assert found.effect == effect
    if effect == "ask":
        assert found.repairs == ("parameter-name",)
    assert rules(tmp_path, 'allow = "*"').judge(proposed("files.write_file", "missing-block", path="/x")).effect == "allow"


# Codes of repairs by which a name, a value or its end was made out.
MADE_OUT = """
    unclosed-parameter positional-argument bare-string xml-elements tool-name parameter-name empty-argument number-format
    boolean-word null-word enum-spelling time-zone single-item comma-list line-list
    json-inner-quote json-invalid-escape json-escaped-apostrophe json-equals-sign json-missing-comma json-missing-closer
    json-extra-closer json-double-encoding call-in-reasoning
"""


def test_each_repair_is_said_to_leave_the_call_as_it_was_or_not() -> None:
    assert {*REPAIRS} - ONLY_MARKS == {*MADE_OUT.split()}
    assert REPAIRS.keys() >= ONLY_MARKS
    assert made_out(proposed("a.b", "of-a-later-version").call) == ("of-a-later-version",)


async def test_a_decision_names_its_rule(tmp_path: Path) -> None:
    policy = ruled(rules(tmp_path, 'allow = "files.read_*"\n[[rule]]\ndeny = ["files.write_*", "mail.*"]'))
    wrote, read, other = [await policy(proposed(each)) for each in ("files.write_file", "files.read_file", "x.y")]
    assert (wrote.allowed, wrote.by) == (False, "deny files.write_*, mail.* (xmlcall.toml, rule 1)")
    assert (read.allowed, read.by) == (True, "allow files.read_* (xmlcall.toml)")
    assert (other.allowed, other.by) == (False, "no rule")


@pytest.mark.parametrize(("path", "by"), [("/notes/a", "person"), ("/secret/a", "deny files.*"), ("/asked/a", "ask files.*")])
async def test_arguments_that_a_policy_changes_are_held_against_the_rules(path: str, by: str) -> None:
    async def edits(proposal: Proposal) -> Decision:
        return Decision(allowed=True, arguments={"path": path}, by="person")

    effects: tuple[tuple[Effect, str], ...] = (("deny", "/secret"), ("ask", "/asked"))
    strict = (Rule(effect=effect, tools=("files.*",), where={"path": (below([folder]),)}) for effect, folder in effects)
    decision = await ruled(Rules(rules=tuple(strict)), edits)(proposed(path="/notes/b"))
    assert (decision.allowed, decision.by) == (by == "person", by)


# -- conditions --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "notes" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "notes" / "in").symlink_to(tmp_path / "notes" / "deep")
    (tmp_path / "notes" / "loop").symlink_to(tmp_path / "notes" / "loop")
    (tmp_path / "way").symlink_to(tmp_path / "notes")
    return tmp_path


PATHS: dict[bool | None, list[Any]] = {
    True: ["{}/notes", "{}/notes/new/file.txt", "{}/notes//./deep/../a", "{}/notes/in/a", "{}/way/a"],
    False: [
        *("{}/notes/../secret/a", "{}/notes/out/a", "{}/notesandmore/a", "{}/notes/deep/../../secret", "{}/secret", "/"),
    ],
    # of a link with `..` after it the folder of its target, or the one that it stands in
    None: [
        *("{}/notes/out/../notes/a", "notes/a", "~/a", "{}/notes/\0", "file://{}/notes/a", "", 3, None),
        # of the process that opens it
        *("/proc/self/cwd/a", "//proc/thread-self/root{}/notes", "/x/../proc/17/cwd/notes", "/dev/fd/3", "/dev/stdin"),
    ],
}


@pytest.mark.parametrize(("path", "fits"), [(path, fits) for fits, paths in PATHS.items() for path in paths])
def test_paths(path: Any, fits: bool | None, tree: Path) -> None:
    value = path.format(tree) if isinstance(path, str) else path
    if value == f"{tree}/notes/out/../notes/a":  # followed first, this is a path below `notes`; dropped first, too: no doubt
        fits = True
    assert below([f"{tree}/notes"])(value) is fits


def test_a_path_that_programs_read_differently_is_in_doubt(tree: Path) -> None:
    (tree / "elsewhere").symlink_to("/usr/lib")
    assert below([str(tree)])(f"{tree}/elsewhere/../x") is None  # /usr/x, or x beside the link
    rule: dict[str, Any] = {"tools": ("*",), "where": {"path": (below([str(tree)]),)}}
    doubtful = proposed(path=f"{tree}/elsewhere/../x")
    assert Rules(rules=(Rule(effect="allow", **rule),)).judge(doubtful).effect == "ask"
    assert Rules(rules=(Rule(effect="deny", **rule),)).judge(doubtful).effect == "deny"


@settings(deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "a", "", "notes", "secret", "link"]), max_size=8))
def test_no_path_outside_is_below(tmp_path_factory: Any, parts: list[str]) -> None:
    root = tmp_path_factory.getbasetemp() / "paths"
    (root / "notes").mkdir(parents=True, exist_ok=True)
    path = os.path.join(root, "notes", *[part for part in parts if part])
    real = os.path.realpath(path)
    assert below([f"{root}/notes"])(path) is (real == f"{root}/notes" or real.startswith(f"{root}/notes/"))


ADDRESSES: dict[bool | None, list[Any]] = {
    True: ["https://example.com/a", "http://API.example.com:8080/?q=a b", "https://example.com./"],
    False: [
        *("https://example.com.evil.net/", "https://evil.net/?https://example.com", "https://evil.net/#@example.com"),
        *("https://notexample.com", "http://[::1]/"),
    ],
    None: [
        *("https://example.com@evil.net/", "https://evil.net\\@example.com/", "https://evil.net/\\example.com"),
        *("https://example.com\n.evil.net", "https://ex\u0430mple.com", "//example.com", "example.com", "ftp://example.com"),
        *("file:///etc/passwd", "https://[", "", {}),
    ],
}


@pytest.mark.parametrize(("address", "fits"), [(address, fits) for fits, listed in ADDRESSES.items() for address in listed])
def test_hosts(address: Any, fits: bool | None) -> None:
    assert host(["example.com", "*.example.com"])(address) is fits


LOCAL = ["2130706433", "0x7f.1", "0x7F000001", "127.1", "127.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"]
LOCAL += [
    "[::127.0.0.1]",
    "0177.0.0.1",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "%31%32%37.0.0.1",
    "１２７.0.0.1",
    "127。0。0。1",
    "017700000001",
]


@pytest.mark.parametrize("spelling", LOCAL)
def test_a_rule_about_an_address_holds_for_each_of_its_spellings(spelling: str) -> None:
    for where in (host([glob]) for glob in ("127.0.0.1", "127.*", "0x7f.0.0.1")):
        rule = Rule(effect="deny", tools=("*",), where={"url": (where,)})
        assert Rules(rules=(rule,)).judge(proposed(url=f"http://{spelling}:80/admin")).effect == "deny"
        assert where(f"http://{spelling}/") is not False


@pytest.mark.parametrize(
    ("glob", "address", "fits"),
    [
        ("[::1]", "http://[0:0:0:0:0:0:0:1]/", True),
        ("::1", "http://[::1]/", True),
        ("169.254.169.254", "http://2852039166/latest", True),
        ("10.0.0.1", "http://012.0.0.1/", None),  # 10.0.0.1 for some, 12.0.0.1 for others
        ("xn--bcher-kva.example", "http://xn--bcher-kva.example/", True),
        ("bücher.example", "http://xn--bcher-kva.example/", True),
        ("127.0.0.1", "http://127.0.0.1.example/", False),
        ("*.bücher.example", "http://shop.xn--bcher-kva.example/", True),
        ("*.example.com.", "http://a.example.com/", True),
        ("*.example.com.", "http://a.example.com./", True),
        ("127.0.0.1", "http://[::1]/", False),
    ],
)
def test_globs_of_addresses(glob: str, address: str, fits: bool | None) -> None:
    assert host([glob])(address) is fits


def test_strings_and_values() -> None:
    assert like(["report-*"])("report-1") is True
    assert like(["report-*"])("Report-1") is False
    assert like(["*"])("x" * 20_000) is None
    assert like(["*"])(3) is None
    values: list[Any] = [1, True, "a", 1.0, "1", None, {}]
    assert [one_of([1, "a"])(value) for value in values] == [True, False, True, True, None, False, False]


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ([["rm"]], None),
        ({"rm": None}, None),
        ("True", None),
        ({"mode": "rm"}, None),
        ([{"a": [{"b": "rm"}]}], None),
        ([["ls"], {"mode": "ls", "deep": [[1]]}], False),
        ([[]], False),
    ],
)
def test_a_value_counts_wherever_it_stands(value: Any, fits: bool | None) -> None:
    assert holds(one_of(["rm", True]), value) is fits
    rule: dict[str, Any] = {"tools": ("*",), "where": {"mode": (one_of(["rm", True]),)}}
    denied = Rules(rules=(Rule(effect="deny", **rule),)).judge(proposed(mode=value)).effect == "deny"
    assert denied is (fits is None)


def test_of_a_list_all_items_count() -> None:
    fits = like(["a*"])
    values: list[Any] = [["a", "ab"], ["a", "b"], ["b"], [], "a"]
    assert [holds(fits, value) for value in values] == [True, None, False, False, True]


# -- files -------------------------------------------------------------------------------------------------------------------

MISTAKES = [
    ("allows = 'x'", "allows: expected one of the keys allow, ask, deny, rule, repaired, flow, got 'allows'"),
    ("allow = 3", "allow: expected a string, or a list of strings, got 3"),
    ("allow = []", "allow: expected a string, or a list of strings, got []"),
    ("allow = ['']", "allow: expected a string, or a list of strings, got ['']"),
    ("flow = 'yes'", 'flow: expected "ask" or "allow", got \'yes\''),
    ("repaired = 1", "repaired: expected true or false, got 1"),
    ("rule = 1", "rule: expected at most 1000 tables [[rule]], got 1"),
    ("rule = ['x']", "rule 1: expected a table, got 'x'"),
    ("[[rule]]", "rule 1: expected one of the keys allow, ask and deny, got 'none of them'"),
    ("[[rule]]\nallow='a'\ndeny='a'", "rule 1: expected one of the keys allow, ask and deny, got 'allow, deny'"),
    ("[[rule]]\nallow='a'\n[[rule]]\ndeny='a'\nflow='allow'", "rule 2, flow: expected this key only beside allow, got 'deny'"),
    (
        "[[rule]]\nallow='a'\npath='/x'",
        "rule 1, path: expected one of the keys allow, ask, deny, where, repaired, flow, got 'path'",
    ),
    ("[[rule]]\nallow='a'\nwhere='x'", "rule 1, where: expected a table of arguments, got 'x'"),
    (
        "[[rule]]\nallow='a'\nwhere.path='/x'",
        "rule 1, where.path: expected a table with one of the keys below, host, like, one_of",
    ),
    ("[[rule]]\nallow='a'\nwhere.path={}", "rule 1, where.path: expected a table with one of the keys below, host, like, one_of"),
    (
        "[[rule]]\nallow='a'\nwhere.path.under='/x'",
        "rule 1, where.path, under: expected one of the keys below, host, like, one_of",
    ),
    ("[[rule]]\ndeny='a'\nwhere.u.host='10.0.0.0/8'", "rule 1, where.u.host: expected hosts without a scheme, a path or a"),
    ("[[rule]]\nallow='a'\nwhere.p.one_of='x'", "rule 1, where.p.one_of: expected a list of strings, numbers, true or false"),
    ("[[rule]]\nallow='a'\nwhere.p.below=1", "rule 1, where.p.below: expected a string, or a list of strings, got 1"),
    ("[[rule]]\nallow='a'\nwhere.p.below='~nobody-of-this-name/x'", "rule 1, where.p.below: expected a folder"),
    ("allow = 'x", "expected TOML in"),
    ("x = " + "[" * 5000, "expected TOML in"),
    ("#" * 70_000, "65,536 bytes at most"),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES, ids=[told[:40] for _, told in MISTAKES])
def test_a_mistake_is_named_with_file_and_key(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        rules(tmp_path, text)
    assert str(tmp_path / "xmlcall.toml") in str(raised.value)
    assert told in str(raised.value)


KEYS = st.sampled_from(["allow", "deny", "rule", "flow", "repaired", "other"])
VALUES: st.SearchStrategy[Any] = st.sampled_from(["", "*", "[", 1, True, ["a"], [1], {}, [{}]])


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES))
def test_any_file_is_rules_or_one_message(tmp_path_factory: Any, data: dict[str, Any]) -> None:
    text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in data.items())
    told = ""
    try:
        rules(tmp_path_factory.getbasetemp(), text)
    except UsageError as raised:
        told = str(raised)
    assert not told or "xmlcall.toml" in told


def test_a_folder_is_one_beside_the_file(tmp_path: Path) -> None:
    found = rules(tmp_path, '[[rule]]\nallow = "*"\nwhere.path.below = "notes"')
    assert found.judge(proposed(path=f"{tmp_path}/notes/x")).effect == "allow"
    assert found.judge(proposed(path="/notes/x")).effect == "ask"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    own, here = tmp_path / "own.toml", tmp_path / "here" / "xmlcall.toml"
    here.parent.mkdir()
    monkeypatch.setenv("XMLCALL_POLICY", str(own))
    monkeypatch.chdir(here.parent)
    return own, here


def test_a_file_of_the_working_directory_only_forbids(places: tuple[Path, Path]) -> None:
    own, here = places
    assert load_rules().rules == Rules()
    here.write_text('allow = "*"\ndeny = "mail.*"\nflow = "allow"\n[[rule]]\nask = "files.write_*"')
    own.write_text('allow = ["files.*", "mail.*"]')
    found = load_rules()
    effects = [found.rules.judge(proposed(each)).effect for each in ("shell.run", "mail.send", "files.read", "files.write_x")]
    assert effects == ["ask", "deny", "allow", "ask"]
    assert (found.files, found.passed_over) == ((own, here), here)


def test_a_person_may_name_the_file_of_the_working_directory(places: tuple[Path, Path]) -> None:
    _, here = places
    here.write_text('allow = "*"')
    found = load_rules(Path("xmlcall.toml"))
    assert (found.rules.judge(proposed()).effect, found.passed_over) == ("allow", None)


def test_a_named_file_has_to_exist(places: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match=r"no\.toml"):
        load_rules(Path("no.toml"))


def test_a_broken_file_of_the_working_directory_is_told(places: tuple[Path, Path]) -> None:
    places[1].write_text("deny = 3")  # passed over, it would forbid nothing
    with pytest.raises(UsageError, match="deny"):
        load_rules()


def test_where_the_own_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XMLCALL_POLICY", raising=False)
    assert own_file().name == "xmlcall.toml"
