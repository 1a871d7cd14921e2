"""Pages of the docs that quote measurements between two marks."""

from __future__ import annotations


def quoted(page: str, name: str, text: str) -> str:
    """A page with a text between `<!-- name: begin -->` and `<!-- name: end -->`, in the place of what was there."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.partition(begin)
    _, mark, after = rest.partition(end)
    assert mark, f"expected a page with {begin} and {end}"
    return f"{before}{begin}\n{text}\n{end}{after}"
