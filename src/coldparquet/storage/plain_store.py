"""What stores have in common that hold bytes under paths, and know nothing of S3's classes and archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.storage.refusals import classes_unsupported, restore_unsupported, versions_not_listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.prices import RestoreTier
    from coldparquet.storage.objects import ObjectInfo


class PlainStore:
    """The part of an :class:`~coldparquet.storage.base.ObjectStore` that such a store leaves out."""

    has_storage_classes = False
    has_version_listings = False
    has_spare_connections = False

    async def infos_at_hand(self, paths: Sequence[str]) -> tuple[ObjectInfo | None, ...] | None:  # noqa: ARG002 - of none
        """Tell nothing: it takes requests."""
        return None

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:  # noqa: ARG002 - not at all
        """Refuse: versions are not listed here."""
        raise versions_not_listed(path)

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:  # noqa: ARG002 - nothing to restore here
        """Refuse: nothing is archived here."""
        raise restore_unsupported(path)

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:  # noqa: ARG002 - there are no classes
        """Refuse: there are no storage classes here."""
        raise classes_unsupported(path)
