"""How far a scan is, on standard error; imported only where it is shown, for rich takes a tenth of a second."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from coldparquet.text import visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import ConsoleOptions, RenderableType
    from rich.progress import Task

_SHORTEST_S = 1.0
"""What ends sooner shows nothing."""
_INTERVAL_S = 0.1


class VisibleConsole(Console):
    """A console that shows control characters of what it prints on a terminal as pictures; colours are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Show control characters on a terminal."""
        segments = super().render(renderable, options)
        if not self.is_terminal:
            return segments
        return (part if part.control else Segment(visible_lines(part.text), part.style) for part in segments)

    def on_broken_pipe(self) -> None:
        """Leave it to the caller."""
        raise BrokenPipeError  # commands end then as after any other output


@cache
def error_console() -> VisibleConsole:
    """Return the console of standard error, which progress bars and warnings share."""
    return VisibleConsole(stderr=True, markup=False, highlight=False, emoji=False)


class _Done(MofNCompleteColumn):
    """How much of how much; nothing while that is unknown."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task) + Text(f" {task.fields['unit']}")


class _TimeLeft(TimeRemainingColumn):
    """When it will be over; nothing while that is unknown."""

    def render(self, task: Task) -> Text:
        return Text() if task.time_remaining is None or task.finished else super().render(task) + Text(" left")


def progress_bar(*, draws_itself: bool = True) -> Progress:
    """Return progress bars, which show nothing unless standard error is a terminal, or a notebook.

    Each task is added with a ``unit``: ``progress.add_task("reading", total=9, unit="MB")``. A bar that draws itself does so in
    a thread; others draw at each ``refresh``.
    """
    console = error_console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        _Done(),
        _TimeLeft(),
        console=console,
        auto_refresh=draws_itself,
        transient=True,
        disable=not (console.is_terminal or console.is_jupyter),
        redirect_stdout=False,  # rich would print colours and links of others as its own
        redirect_stderr=False,
    )


async def show_fetched(fetched_bytes: Callable[[], int], *, planned_bytes: int) -> None:
    """Show how much of a plan has been fetched, from its second second on, until it is cancelled.

    Without a word where standard error is closed or its terminal is gone, which is no matter of the scan's.
    """
    before = fetched_bytes()
    await asyncio.sleep(_SHORTEST_S)
    # Older versions of rich show one bar at a time. In a thread, nothing would catch what writing raises.
    with suppress(LiveError, OSError, ValueError), progress_bar(draws_itself=False) as progress:
        task = progress.add_task("reading", total=planned_bytes / 1e6, unit="MB")
        while True:
            # The plan is an upper bound: a first stage may show that less is needed, and a retry fetches bytes again.
            progress.update(task, completed=min(fetched_bytes() - before, planned_bytes) / 1e6, refresh=True)
            await asyncio.sleep(_INTERVAL_S)
