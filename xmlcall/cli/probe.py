"""`xmlcall probe`: measure which prompt and call format suit a model best, and save them as its profile."""

import argparse
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from .bench import add_measuring_options, continued_later, kept_in, opened
from .bench_read import print_table
from .exits import FAILED, OK, complain
from .plain import json_text, visible

if TYPE_CHECKING:
    from ..bench.case import Case
    from ..bench.probe import Finding

DESCRIPTION = "Measure which prompt and call format suit a model best, and save them as its profile."
EPILOG = """examples:
  xmlcall probe
  xmlcall probe ollama:gemma3:4b
  xmlcall probe http://127.0.0.1:8080/v1 --concurrency 4
  xmlcall probe path/to.gguf

It takes 10 to 20 minutes with a model of 0.5 billion parameters on two cores. If you stop it, the same command continues where
it was. `run`, `chat`, `serve` and `bench` find the profile by the model's fingerprint (`xmlcall profiles list`).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        default="local",
        help="a URL, ollama:NAME, FILE.gguf, or a name from `xmlcall models list` (default: local)",
    )
    add_measuring_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON: chosen, won, test, ways, native, profile, replies")


def execute(options: argparse.Namespace) -> int:
    return continued_later(_run(options))


async def _run(options: argparse.Namespace) -> int:
    from ..bench.own_suites import probe_cases
    from ..bench.probe import Probe, candidates, incumbent, most_replies
    from ..profiles.profile import shipped
    from .waiting import RunBar

    cases = probe_cases()
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
