"""Progress bars on standard error; a module of its own because many commands show none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from coldparquet.cli.output import error_console

if TYPE_CHECKING:
    from rich.progress import Task


class _Done(MofNCompleteColumn):
    """How much of how much; nothing while that is unknown."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task) + Text(f" {task.fields['unit']}")


class _TimeLeft(TimeRemainingColumn):
    """When it will be over; nothing while that is unknown."""

    def render(self, task: Task) -> Text:
        return Text() if task.time_remaining is None or task.finished else super().render(task) + Text(" left")


def progress_bar() -> Progress:
    """Return progress bars on standard error, which show nothing unless that is a terminal.

    Each task is added with a ``unit``: ``progress.add_task("reading", total=9, unit="MB")``.
    """
    console = error_console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        _Done(),
        _TimeLeft(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,  # rich would print colours and links of others as its own
        redirect_stderr=False,
    )
