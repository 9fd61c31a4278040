"""How pytest-xdist shares the tests out among its processes: ``pytest -n 2``."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.server_tests import directory_with_servers


class FileSchedule(LoadScopeScheduling):  # type: ignore[misc]
    """One process runs all tests of a file, and all tests of a directory that share a server, in the order given."""

    def _split_scope(self, nodeid: str) -> str:
        return directory_with_servers(nodeid) or nodeid.partition("::")[0]
