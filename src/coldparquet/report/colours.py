"""Colours of the page and of the drawing, for light and for dark screens, as the beginning of a style sheet.

Those of the kinds are told apart by people who do not see red and green (after Okabe and Ito), and have a contrast of at
least 3:1 to the paper.
"""

from __future__ import annotations

COLOURS = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f8fa; --line: #d0d7de; --ink: #1f2328; --faint: #59636e;
  --listing: #9a6700; --metadata: #0969da; --data: #00805e; --writing: #a0457a; --failed: #c93c00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0d1117; --card: #161b22; --line: #30363d; --ink: #e6edf3; --faint: #9198a1;
    --listing: #e3b341; --metadata: #58a6ff; --data: #3fb98c; --writing: #d98cb7; --failed: #ff8552;
  }
}
"""
