"""Builds ``coldparquet.jar`` into wheels and editable installs, where a JDK and the jars of Spark are at hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarBuildHook(BuildHookInterface[Any]):  # type: ignore[misc] # hatchling is there for builds alone
    """Runs ``src/jvm/build.py``; without its tools the wheel has no jar, and says so."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Build the jar beside the modules, from where ``artifacts`` takes it into the wheel."""
        spec = importlib.util.spec_from_file_location("build_jar", Path(self.root, "src", "jvm", "build.py"))
        if spec is None or spec.loader is None:
            raise FileNotFoundError("src/jvm/build.py")
        jvm = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(jvm)
        try:
            jvm.build()
        except jvm.NotBuiltError as missing:
            if version != "editable":  # a jar of other sources must not go out with these
                jvm.JAR.unlink(missing_ok=True)
            self.app.display_warning(f"coldparquet.jar, for columns and filters in Spark, is not built: {missing}")
