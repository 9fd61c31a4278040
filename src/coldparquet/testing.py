"""The former name of ``coldparquet_testing``, which lies beside the library: imports of it go on working."""

from __future__ import annotations

import sys

import coldparquet_testing

sys.modules[__name__] = coldparquet_testing
