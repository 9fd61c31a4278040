"""Public Parquet files and generated ones with the same traps: equal to what pyarrow reads, or refused for a reason."""

from __future__ import annotations

import pytest

from tests.corpora.__main__ import NoCorporaError, compared, corpora, distinct_files, is_finding
from tests.corpora.comparison import Mode, compare, read_with_pyarrow
from tests.corpora.traps import traps


@pytest.mark.parametrize(("data", "outcome"), [pytest.param(data, outcome, id=name) for name, data, outcome in traps()])
async def test_every_mode_agrees_with_pyarrow(data: bytes, outcome: str) -> None:
    known = read_with_pyarrow(data)
    for mode in Mode:
        verdict = await compare(data, mode, known)
        assert verdict.outcome == outcome, f"{mode}: {verdict}"


@pytest.mark.soak
def test_public_files_are_equal_or_refused_for_a_reason() -> None:
    try:
        root = corpora()
    except NoCorporaError as error:
        pytest.skip(f"THE PUBLIC CORPORA WERE NOT COMPARED: {error}")
    files = distinct_files(root)
    assert len(files) > 1_000
    findings = {
        str(path.relative_to(root)): verdict
        for path in files
        for verdict in compared(path).verdicts
        if is_finding(path, verdict)
    }
    assert not findings
