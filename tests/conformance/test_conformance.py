"""A few scenarios of MCP's conformance suite; `make conformance` runs all."""

import pytest
from conformance.run import PROGRAM, Outcome, plan, run

pytestmark = pytest.mark.full  # each scenario starts a program of Node and one of ours


@pytest.mark.skipif(not PROGRAM.exists(), reason="MCP's conformance suite is not installed; run: make conformance")
@pytest.mark.parametrize(
    ("scenario", "revision"),
    [
        ("tools_call", "2025-11-25"),
        ("http-custom-headers", "2026-07-28"),
        ("auth/metadata-var3", "2026-07-28"),
        ("request-metadata", "2026-07-28"),
    ],
)
def test_a_scenario_passes(scenario: str, revision: str) -> None:
    outcome = run(Outcome(scenario=scenario, revision=revision))
    assert outcome.failed == ()
    assert outcome.checks > 0


@pytest.mark.skipif(not PROGRAM.exists(), reason="MCP's conformance suite is not installed; run: make conformance")
def test_no_scenario_is_passed_over_in_silence() -> None:
    rows = plan([])
    assert {"initialize", "tools_call", "auth/basic-cimd", "auth/dpop"} <= {row.scenario for row in rows}
    assert all(row.revision or row.reason for row in rows)
