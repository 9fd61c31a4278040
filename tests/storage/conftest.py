from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.http_servers import Script, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    """A server whose answers the test writes."""
    async with scripted_server() as script:
        yield script
