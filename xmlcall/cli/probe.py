"""`xmlcall probe`: measure which prompt and call format suit a model best, and save them as its profile."""

import argparse
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bench import continued_later, kept_in, opened
from .bench_read import print_table
from .exits import FAILED, OK, complain
from .options import number
from .plain import json_text, visible

if TYPE_CHECKING:
    from ..bench.case import Case
    from ..bench.probe import Finding

DESCRIPTION = "Measure which prompt and call format suit a model best, and save them as its profile."
EPILOG = """examples:
  xmlcall probe
  xmlcall probe ollama:gemma3:4b
  xmlcall probe http://127.0.0.1:8080/v1 --concurrency 4
  xmlcall probe path/to.gguf --dry-run

It takes 10 to 20 minutes with a model of 0.5 billion parameters on two cores. If you stop it, the same command continues where
it was. `run`, `chat`, `serve` and `bench` find the profile by the model's fingerprint (`xmlcall profiles list`).
"""

# Of models of 0.5 and 1.5 billion parameters, on two cores: a probe of Qwen2.5-Coder-0.5B with four slots (262 replies in 644 s,
# 2026-11-23), and twice that, as the speeds of the two models are.
_SECONDS_A_REPLY = (2.5, 5.0)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        default="local",
        help="a URL, ollama:NAME, FILE.gguf, or a name from `xmlcall models list` (default: local)",
    )
    parser.add_argument(
        "--context", type=number(int, least=1), metavar="N", help="context size in tokens, shared by prompt and reply"
    )
    parser.add_argument(
        "--concurrency", type=number(int, least=1), default=1, metavar="N", help="requests at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the measurements (default: in the user's cache folder)"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be measured, and how long it may take")
    parser.add_argument("--json", action="store_true", help="print JSON: chosen, won, test, ways, native, profile, replies")


def execute(options: argparse.Namespace) -> int:
    return continued_later(_run(options))


async def _run(options: argparse.Namespace) -> int:
    from ..bench.own_suites import probe_cases
    from ..bench.probe import Probe, candidates, incumbent, most_replies
    from ..profiles.profile import shipped
    from .waiting import RunBar

    cases = probe_cases()
    if options.dry_run:
        return _plan(options, cases)
    async with AsyncExitStack() as stack:
        backend = await opened(stack, options)
        default = incumbent(shipped(backend.capabilities.fingerprints))
        most = most_replies(len(candidates(backend.capabilities.native_tools, default)), len(cases))
        bar = stack.enter_context(RunBar(most, "replies at most"))
        probe = Probe(
            backend,
            cases,
            kept_in(options, "probe", backend),
            default=default,
            concurrency=options.concurrency,
            progress=bar.advance,
            note=lambda said: complain(visible(said)),
        )
        finding = await probe.run()
    return _keep(options, backend, finding, cases)


def _keep(options: argparse.Namespace, backend: Any, finding: "Finding", cases: "Sequence[Case]") -> int:
    from ..bench.probe import found_json, sentences, table_of_probe
    from ..profiles.profile import file_of, write_profile

    profile = finding.profile(backend.model, backend.capabilities.fingerprints, cases)
    file = file_of(backend.model)
    if options.json:
        print(json_text({**found_json(finding, profile), "file": str(file)}))
    else:
        print_table(*table_of_probe(finding))
        for sentence in sentences(finding):
            print(visible(sentence))
    if not finding.calls_rightly:
        complain("no profile is written; `xmlcall doctor` tests what the server does with tools")
        return FAILED
    write_profile(profile, file)
    complain(f"the profile is in {file}; it will be used from now on (`xmlcall profiles rm {file.stem}` removes it)")
    return OK


def _plan(options: argparse.Namespace, cases: "Sequence[Case]") -> int:
    """Show the plan; no model is opened for it."""
    from ..bench.probe import RUNG, candidates, in_words, most_replies

    asked = candidates(None)
    ways = [each.words for each in asked]
    most = most_replies(len(ways), len(cases))
    minutes = [most * seconds / 60 for seconds in _SECONDS_A_REPLY]
    if options.json:
        print(json_text({"ways": ways, "cases": len(cases), "most_replies": most, "minutes": [round(each) for each in minutes]}))
        return OK
    shown = visible(options.model.rpartition("@")[2])  # the part before may be a password
    print(f"{len(ways)} ways of asking {shown}, and up to two made of what is measured:")
    for way in asked:
        print(f"  {in_words(way, asked[0])}")
    print(
        f"All answer the first {RUNG} of {len(cases)} cases, the worse half is dropped, and so on; the last one is held against"
    )
    print("the default on the rest.")
    sizes = f"{minutes[0]:.0f} minutes with a model of 0.5 billion parameters on two cores, {minutes[1]:.0f} with one of 1.5"
    print(f"At most {most} replies: {sizes}.")
    return OK
