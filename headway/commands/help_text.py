"""How the options of `headway run` show their defaults."""

from __future__ import annotations

import argparse


class Defaults(argparse.HelpFormatter):
    """Adds "(default: X)" to an option's help if it has a default that says something, and lists as words."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help, action.default
        is_plain = default in (None, [], False, argparse.SUPPRESS) or not action.option_strings
        if text is None or is_plain or "%(default)" in text or "(default" in text:
            return text
        words = " ".join(map(str, default)) if isinstance(default, list) else str(default)
        return f"{text} (default: {words.replace('%', '%%')})"
