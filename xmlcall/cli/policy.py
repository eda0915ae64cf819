"""`xmlcall policy`: which rules apply, and what they decide about a call."""

import argparse
import json
from typing import Any

from ..agent.policy import Proposal
from ..agent.policy_file import load_rules, own_file
from ..agent.rules import Rules, parted
from ..errors import UsageError
from ..types.calls import RawCall, Tool, ToolCall
from .exits import OK
from .options import add_policy_option
from .plain import visible

DESCRIPTION = "Show the rules about which calls run, or what they decide for a call. Deny overrides ask, and ask overrides allow."
EPILOG = """examples:
  xmlcall policy
  xmlcall policy files.write_file '{"path": "/data/notes/a.txt"}'
  xmlcall policy --policy xmlcall.toml mail.send
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="SERVER.TOOL", nargs="?", help="show what happens to a call of this tool")
    parser.add_argument("arguments", metavar="ARGUMENTS", nargs="?", default="{}", help="arguments of that call, a JSON object")
    add_policy_option(parser)


def execute(options: argparse.Namespace) -> int:
    loaded = load_rules(options.policy)
    if options.target:
        print("\n".join(_explained(loaded.rules, _proposal(options.target, options.arguments))))
        return OK
    for path in loaded.files or (own_file(),):
        print(visible(str(path)) + ("" if path in loaded.files else " (no such file: xmlcall asks about every call)"))
    for rule in loaded.rules.rules:
        more = [name for name, holds in (("repaired", rule.repaired), ("flow", rule.may_flow)) if holds]
        where = [f"where {', '.join(rule.where)}"] if rule.where else []
        print(f"  {visible(' '.join([rule.name, *where, *more]))}")
    if loaded.passed_over:
        name = visible(str(loaded.passed_over))
        print(f"{name}: its allow rules are ignored until you pass --policy {loaded.passed_over.name}")
    return OK


def _proposal(target: str, text: str) -> Proposal:
    server, name = (part.replace("[.]", ".") for part in parted(target) or ("", ""))
    if not (server and name):
        raise UsageError(f"expected a tool as SERVER.TOOL, got {target[:80]!r}")
    try:
        arguments: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"expected a JSON object as arguments: {error}") from error
    if not isinstance(arguments, dict):
        raise UsageError(f"expected a JSON object as arguments, got {text[:80]!r}")
    call = ToolCall(id="call_0", name=name, arguments=arguments, raw=RawCall(index=0, name=name))
    return Proposal(call=call, tool=Tool(name=name), host=server, host_tool=name)


def _explained(rules: Rules, proposal: Proposal) -> list[str]:
    ruling = rules.judge(proposal)
    lines = [f"{ruling.effect}: {visible(ruling.rule.name) if ruling.rule else 'no rule matches'}"]
    for rule in rules.about(proposal.host, proposal.host_tool):
        fits = "matches" if rule.matches(proposal) else f"does not match: where {', '.join(rule.where)}"
        lines.append(f"  {visible(rule.name)}: {visible(fits)}")
    return lines
