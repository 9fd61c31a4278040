from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.http_servers import Script, scripted_server


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    """A server whose answers the test writes."""
    async with scripted_server() as script:
        yield script
