"""Which rows of a tensor belong to which sample.

The engine knows the number of samples B from the losses. Most tensors show by their shape where the
samples are; where a shape can be read in two ways, or hides them, the user says it with `layout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, get_args

from torch import Tensor

from headway.errors import LayoutError

Layout = Literal["samples-first", "positions-first", "flat", "shared"]


class Layouts:
    """What the user has declared about the layout of modules' inputs.

    Args:
        declared: a layout for the whole model, or a mapping from patterns of module names (as in
            `fnmatch`) to layouts. "samples-first" is [B, ...], "positions-first" is [T, B, ...], "flat"
            is [B * T, ...] with the rows of a sample together, and "shared" is a call that sees no
            sample at all (a position table looked up once for the whole batch).
    """

    def __init__(self, declared: Layout | Mapping[str, Layout] | None = None) -> None:
        """Check the names of the layouts."""
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
        self.positions_first_seen: str | None = None
        self._positions_first_calls: set[str] = set()
        self.shown: int | None = None  # samples that the model's inputs show; 0 if there is no tensor among them

    def declared(self, module: str) -> Layout | None:
        """The layout that the user gave for a module, by the first pattern that matches."""
        for pattern, layout in self._declared.items():
            if fnmatchcase(module, pattern):
                return layout
        return None

    def find(self, module: str, output: Tensor, samples: int) -> Layout:
        """Decide the layout of a module's call from the gradient at its output.

        Raises:
            LayoutError: no dimension has B entries, or the shape can be read in two ways.
        """
        shape = tuple(output.shape)
        first = bool(shape) and shape[0] == samples
        second = len(shape) > 2 and shape[1] == samples
        declared = self.declared(module)
        if declared == "flat" and shape and shape[0] % samples == 0:
            return "flat"
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
        raise LayoutError(
            f"{module}: expected {samples} samples (one per loss) in dimension 0 or 1 of its output, got shape "
            f"{list(shape)}; pass layout={{{module!r}: 'flat'}} if each sample's rows stand together in "
            f"dimension 0, or 'shared' if the call sees no samples"
        )

    def refuse_two_readings(self, call: str, output: Tensor, samples: int) -> None:
        """Refuse an output of a replayed call with samples in dimension 0 or 1, where either could be meant.

        Raises:
            LayoutError: both have B entries, and the call or a module has had its samples in dimension 1 before.
        """
        if output.dim() < 3 or samples == 1 or output.shape[1] != samples or self.declared(call) is not None:
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


def _two_readings(call: str, shape: Sequence[int], samples: int, seen: str) -> LayoutError:
    return LayoutError(
        f"{call}: expected a shape that tells samples from positions, got {list(shape)} for "
        f"{samples} samples in a model with sequence-first parts ({seen}); "
        f"pass layout={{{call!r}: 'positions-first'}} or 'samples-first'"
    )


def samples_first(tensor: Tensor, layout: Layout, samples: int) -> Tensor:
    """View a tensor with the samples in dimension 0."""
    if layout == "positions-first":
        return tensor.transpose(0, 1)
    if layout == "flat":
        return tensor.unflatten(0, (samples, -1))
    return tensor
