"""Which rows of a tensor belong to which sample.

The engine knows the number of samples B from the losses. Most tensors show by their shape where the
samples are; where a shape can be read in two ways, or hides them, the user says it with `layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Literal, get_args

from torch import Tensor

from headway.errors import LayoutError

Layout = Literal["samples-first", "positions-first", "flat", "shared"]

BY_SEGMENT = (
    "call it inside headway.segments(ids), with the sample of each row, if the rows belong to samples in another order "
    "or number, as those gathered for an expert do"
)
"""What to do where no layout can say which rows are whose; the end of an error."""


class Layouts:
    """What the user has declared about the layout of modules' inputs.

    Args:
        declared: a layout for the whole model, or a mapping from patterns of module names (as in
            `fnmatch`) to layouts. "samples-first" is [B, ...], "positions-first" is [T, B, ...], "flat"
            is [B * T, ...] with the rows of a sample together, and "shared" is a call that sees no
            sample at all (a position table looked up once for the whole batch).
    """

    def __init__(self, declared: Layout | Mapping[str, Layout] | None = None) -> None:
        if declared is None:
            declared = {}
        elif isinstance(declared, str):
            declared = {"*": declared}
        for pattern, layout in declared.items():
            if layout not in get_args(Layout):
                raise LayoutError(
                    f"expected a layout out of {', '.join(get_args(Layout))}, got {layout!r} for {pattern!r}"
                )
        self._declared = dict(declared)
        self.found: dict[str, Layout] = {}  # what checked batches have shown, by call
        self._tried: set[str] = set()  # those of them that no check has confirmed yet
        self.trying = False  # the batch is checked, so that a layout can be tried
        self._owners: dict[str, str] = {}
        self.positions_first_seen: str | None = None
        self._positions_first_calls: set[str] = set()
        self._rows: int | None = None  # the rows of each sample in a call that is being read by segment
        self._fill: Callable[[Tensor], Tensor] | None = None
        self.shown: int | None = None  # samples that the model's inputs show; 0 if there is no tensor among them

    def declared(self, module: str) -> Layout | None:
        """The layout that the user gave for a module, by the first pattern that matches, or that was found."""
        for pattern, layout in self._declared.items():
            if fnmatchcase(module, pattern):
                return layout
        return self.declared(self._owners[module]) if module in self._owners else self.found.get(module)

    def try_flat(self, call: str, shape: Sequence[int], samples: int) -> None:
        """Take a call whose shape does not show B samples as flat, on a batch that is checked.

        The check then decides: rows that do not stand together give other sums than autograd.
        """
        known = self.declared(call) is not None or self._rows is not None or samples in shape[:1]
        known = known or (len(shape) > 2 and shape[1] == samples)
        if self.trying and not known and shape and shape[0] > samples and shape[0] % samples == 0:
            self.found[call] = "flat"
            self._tried.add(call)

    def settle(self, confirmed: bool) -> None:
        """Keep the layouts that were tried, if the check has confirmed them.

        Raises:
            LayoutError: it could not be made.
        """
        tried = {call: self.found[call] for call in self._tried}
        if tried and not confirmed:
            self.forget_tried()
            raise LayoutError(
                f"expected a check of the layouts that shapes do not show, got a graph that allows none; pass "
                f"layout={tried} if each sample's rows stand together there"
            )
        self._tried.clear()

    def forget_tried(self) -> dict[str, Layout]:
        """Drop the layouts that were tried and not confirmed, and tell which these are."""
        tried = {call: self.found.pop(call) for call in sorted(self._tried)}
        self._tried.clear()
        return tried

    def belongs(self, part: str, owner: str) -> None:
        """Let a part that users do not see have the layout of its module, unless it was given one."""
        self._owners[part] = owner

    @contextmanager
    def flat_rows(self, rows: int, fill: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Read calls as flat, with so many rows for each sample, or as samples-first if that is 1.

        `fill` brings what was kept of a call into this order.
        """
        self._rows, self._fill = rows, fill
        try:
            yield
        finally:
            self._rows = self._fill = None

    def in_order(self, kept: list[Tensor] | None) -> list[Tensor] | None:
        """Outputs that were kept of a call, as its gradients are read."""
        return kept if kept is None or self._fill is None else [self._fill(tensor) for tensor in kept]

    def is_flat(self, module: str) -> bool:
        """Whether a module's rows of a sample stand together, by declaration or by segment."""
        return self.declared(module) == "flat" if self._rows is None else True

    def rows_each(self, module: str, rows: int, samples: int) -> int:
        """How many rows a sample has: T where the module was declared flat, and 1 elsewhere."""
        if self._rows is not None:
            return self._rows
        flat = rows > samples and rows % samples == 0 and self.declared(module) == "flat"
        return rows // samples if flat else 1

    def reading(self, call: str, shapes: Sequence[Sequence[int]], samples: int) -> tuple[object, ...]:
        """How samples are read off a call's shapes, the output's first: flat or not, and which sizes are their rows."""
        each = self.rows_each(call, shapes[0][0] if shapes and shapes[0] else 0, samples)
        return each > 1, *(tuple(size == samples * each for size in shape) for shape in shapes)

    def require_rows(self, module: str, shape: Sequence[int], samples: int, dim: int = 0) -> int:
        """As `rows_each`, for a module that fixes the dimension of the samples.

        Raises:
            LayoutError: there are neither B rows, nor T for each sample.
        """
        each = self.rows_each(module, shape[dim], samples)
        if shape[dim] == each * samples:
            return each
        way_out = f"{flat_way_out(self._owners.get(module, module), 'there')}; {BY_SEGMENT}"
        if self.declared(module) == "flat":
            way_out = f"'flat' needs the same number of rows for each sample; {BY_SEGMENT}"
        raise no_samples(module, f"dimension {dim}", shape, samples, way_out)

    def find(self, module: str, output: Tensor, samples: int) -> Layout:
        """Decide the layout of a module's call, which is not flat, from the gradient at its output.

        Raises:
            LayoutError: no dimension has B entries, or the shape can be read in two ways.
        """
        shape = tuple(output.shape)
        first = bool(shape) and shape[0] == samples
        second = len(shape) > 2 and shape[1] == samples
        declared = self.declared(module)
        if declared == "positions-first" and second:
            return "positions-first"
        if first and second and declared is None and self.positions_first_seen and samples > 1:
            raise _two_readings(module, shape, samples, self.positions_first_seen)
        if first:
            return "samples-first"
        if second and declared is None:
            self.positions_first_seen = self.positions_first_seen or module
            return "positions-first"
        if len(shape) > 2 and samples == shape[0] * shape[1]:
            raise LayoutError(
                f"{module}: expected one loss per sample, got {samples} losses for an output of shape {list(shape)}; "
                f"if there is one loss per position, average them: losses.view({shape[0]}, {shape[1]}).mean(1)"
            )
        raise no_samples(
            module, "dimension 0 or 1 of its output", shape, samples, f"{flat_or_shared(module)}; {BY_SEGMENT}"
        )

    def refuse_two_readings(self, call: str, output: Tensor, samples: int) -> None:
        """Refuse an output of a replayed call with samples in dimension 0 or 1, where either could be meant.

        Raises:
            LayoutError: both have B entries, and the call or a module has had its samples in dimension 1 before.
        """
        said = self.declared(call) is not None or self._rows is not None
        if output.dim() < 3 or samples == 1 or output.shape[1] != samples or said:
            return
        if output.shape[0] != samples:
            self._positions_first_calls.add(call)
        elif call in self._positions_first_calls or self.positions_first_seen:
            raise _two_readings(call, output.shape, samples, self.positions_first_seen or call)

    def doubt(self, samples: int) -> str:
        """What to add to an error where the model's inputs do not show the samples."""
        if self.shown is None or self.shown == samples:
            return ""
        if self.shown == 0:
            return (
                "; no argument of the model shows how many samples there are: pass the samples to the model as a tensor"
            )
        return (
            f"; the model's input shows {self.shown} samples for {samples} losses: pass layout='positions-first' if it "
            f"is sequence-first; if its first tensor is not the batch, pass layout={{'name': 'samples-first'}} for the "
            f"modules that see samples"
        )


def no_samples(call: str, where: str, shape: Sequence[int], samples: int, way_out: str) -> LayoutError:
    """The error for a tensor of a call that has no dimension of B entries where it should have one."""
    return LayoutError(
        f"{call}: expected {samples} samples (one per loss) in {where}, got shape {list(shape)}; {way_out}"
    )


def flat_way_out(call: str, where: str = "in dimension 0") -> str:
    """What to do if the rows of samples stand together in a call that does not show them."""
    return f"pass layout={{{call!r}: 'flat'}} if each sample's rows stand together {where}"


def flat_or_shared(call: str) -> str:
    """The same for a module that may also see no samples at all."""
    return f"{flat_way_out(call)}, or 'shared' if the call sees no samples"


def _two_readings(call: str, shape: Sequence[int], samples: int, seen: str) -> LayoutError:
    return LayoutError(
        f"{call}: expected a shape that tells samples from positions, got {list(shape)} for "
        f"{samples} samples in a model with sequence-first parts ({seen}); "
        f"pass layout={{{call!r}: 'positions-first'}} or 'samples-first'"
    )
