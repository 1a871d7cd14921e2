"""The mixtures of the mixture study: sources that are easy, slow, redundant or noise, all made here.

A mixture is a pool of samples with the source of each, and fresh samples of its learnable sources to validate with. The
inputs of a mixture have one shape and its sources share one model. A source of noise has labels that are drawn anew
whenever a sample is used, so that there is nothing to learn or to memorise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headway.data import load
from headway.errors import SpecError
from headway.registry import Registry
from headway.selection import perceptron

VALIDATION = 400
"""Samples of a source that it is validated with."""
EMBEDDED = 8
"""Numbers that stand for a character."""

Samples = tuple[Tensor, Tensor]
"""Inputs [n, ...] and labels [n] or targets [n, 1]."""
Make = Callable[[int, torch.Generator], Samples]
"""Draws n samples."""
Change = Callable[[Tensor, Tensor], Samples]
"""Makes other samples of inputs and labels."""


@dataclass(frozen=True)
class Source:
    """Where samples come from."""

    make: Make  # draws samples
    size: int  # how many there are in the pool; also its share under proportional sampling
    noise: bool = False  # whether labels say nothing of inputs
    distinct: int | None = None  # as many different samples alone, repeated to `size`; all are different by default
    make_validation: Make | None = None  # draws samples to validate with, if not `make`

    def draw(self, generator: torch.Generator) -> Samples:
        """The samples of the pool."""
        distinct = self.distinct or self.size
        x, y = self.make(distinct, generator)
        again = torch.arange(self.size) % distinct
        return x[again], y[again]


class Pool:
    """The samples of a mixture, drawn from its sources.

    Args:
        sources: by name.
        generator: draws the samples.
        outputs: classes, or 1 for regression.
        inputs: features of an input, or the length of a text.
        symbols: how many characters there are; 0 where inputs are features.
    """

    def __init__(
        self, sources: Mapping[str, Source], generator: torch.Generator, *, outputs: int, inputs: int, symbols: int = 0
    ) -> None:
        self._outputs, self._inputs, self._symbols = outputs, inputs, symbols
        self.names = tuple(sources)
        self.noisy = torch.tensor([source.noise for source in sources.values()])  # [S]
        self.sizes = torch.tensor([source.size for source in sources.values()])  # [S]
        self._starts = self.sizes.cumsum(0) - self.sizes
        # inputs [N, ...], source after source, and labels [N], or targets [N, 1]
        self.x, self.y = map(torch.cat, zip(*(source.draw(generator) for source in sources.values()), strict=True))
        self.validation = [  # for each learnable source its number, inputs and labels
            (number, *(source.make_validation or source.make)(VALIDATION, generator))
            for number, source in enumerate(sources.values())
            if not source.noise
        ]

    def take(self, sources: Tensor, generator: torch.Generator) -> Samples:
        """A random sample of each of the given sources [B]; noise gets new labels, or targets of variance one."""
        places = (torch.rand(len(sources), generator=generator, dtype=torch.float64) * self.sizes[sources]).long()
        indices = self._starts[sources] + places
        x, y, noisy = self.x[indices], self.y[indices], self.noisy[sources]
        if y.dim() == 2:
            return x, torch.where(noisy.unsqueeze(1), torch.randn(len(y), 1, generator=generator), y)
        return x, torch.where(noisy, torch.randint(self._outputs, (len(y),), generator=generator), y)

    def model(self, hidden: int, generator: torch.Generator) -> nn.Sequential:
        """A perceptron with two hidden layers, over embeddings where inputs are characters."""
        inputs, first = self._inputs, []
        if self._symbols:
            table = torch.empty(self._symbols, EMBEDDED).normal_(generator=generator)
            inputs, first = inputs * EMBEDDED, [nn.Embedding.from_pretrained(table, freeze=False), nn.Flatten()]
        return nn.Sequential(*first, *perceptron([inputs, hidden, hidden, self._outputs], generator))


MIXTURES: Registry[Callable[[torch.Generator], Pool]] = Registry("mixture", SpecError)


def _mark(n: int, task: int, tasks: int, height: float) -> Tensor:
    """A mark of the task that samples belong to: [n, tasks]."""
    mark = torch.zeros(n, tasks)
    mark[:, task] = height
    return mark


# Images


def _digits(held_out: bool) -> Samples:
    """The 8x8 digits as features from -1 to 1 [n, 64], and their classes."""
    dataset = load("digits")
    split = dataset.test if held_out else dataset.train
    pixels = torch.from_numpy(split.images).float().flatten(1) / 8 - 1
    return pixels, torch.from_numpy(split.labels).long()


def _moved(change: Change, held_out: bool = False) -> Make:
    """Digits after a change, each moved by up to a pixel and with noise on its pixels, so that few images make many."""

    def draw(n: int, g: torch.Generator) -> Samples:
        x, y = _digits(held_out)
        chosen = torch.randint(len(x), (n,), generator=g)
        moves = torch.randint(-1, 2, (2, n, 1), generator=g)
        rows, columns = ((torch.arange(8) + move) % 8 for move in moves)
        moved = x[chosen].view(-1, 8, 8)[torch.arange(n).view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)]
        return change(moved.flatten(1) + 0.4 * torch.randn(n, 64, generator=g), y[chosen])

    return draw


def _images(size: int, change: Change = lambda x, y: (x, y), distinct: int | None = None) -> Source:
    return Source(_moved(change), size, distinct=distinct, make_validation=_moved(change, held_out=True))


_MISLABELLED = Source(_moved(lambda x, y: (-x, y)), 8000, noise=True)


@MIXTURES.register("digits")
def _digits_mixture(g: torch.Generator) -> Pool:
    """Digits, digits with their pixels in another order, two easy classes, and two kinds of noise."""
    order = torch.randperm(64, generator=g)
    other = torch.randperm(10, generator=g)

    def noise_images(n: int, g: torch.Generator) -> Samples:
        return torch.rand(n, 64, generator=g) * 2 - 1, torch.zeros(n, dtype=torch.int64)

    sources = {
        "digits": _images(6000),
        "shuffled": _images(6000, lambda x, y: (x[:, order], other[y])),
        "halves": _images(3000, lambda x, y: (-x.roll(32, 1), (y > 4).long())),
        "static": Source(noise_images, 12000, noise=True),
        "mislabelled": _MISLABELLED,
    }
    return Pool(sources, g, outputs=10, inputs=64)


@MIXTURES.register("duplicates")
def _duplicates_mixture(g: torch.Generator) -> Pool:
    """Digits of many kinds; the largest source repeats forty images, and one has wrong labels."""
    sources = {
        "repeated": _images(16000, distinct=40),
        "upright": _images(4000),
        "turned": _images(4000, lambda x, y: (x.view(-1, 8, 8).rot90(1, (1, 2)).flatten(1), y)),
        "mirrored": _images(4000, lambda x, y: (x.view(-1, 8, 8).flip(2).flatten(1) * 0.5, (y + 3) % 10)),
        "mislabelled": _MISLABELLED,
    }
    return Pool(sources, g, outputs=10, inputs=64)


@MIXTURES.register("sums")
def _sums_mixture(g: torch.Generator) -> Pool:
    """Two digits side by side: name the left one, name the right one, and add them, which needs both."""

    def pair(task: int, held_out: bool) -> Make:
        def draw(n: int, g: torch.Generator) -> Samples:
            x, y = _digits(held_out)
            left, right = torch.randint(len(x), (2, n), generator=g)
            answers = (y[left], y[right], (y[left] + y[right]) % 10, y[left])
            return torch.cat([x[left], x[right], _mark(n, task, 4, 2.0)], 1), answers[task]

        return draw

    sizes = {"left": 2000, "right": 2000, "sum": 4000, "noise": 4000}
    sources = {
        name: Source(pair(task, False), size, name == "noise", make_validation=pair(task, True))
        for task, (name, size) in enumerate(sizes.items())
    }
    return Pool(sources, g, outputs=10, inputs=132)


# Algorithmic tasks


_TASKS, _BITS = 5, 12


def _bit_source(task: int, label: Callable[[Tensor], Tensor]) -> Source:
    """Bits as -1 and 1, after a mark of the task [n, tasks + bits]; a label is a function of the bits."""

    def draw(n: int, g: torch.Generator) -> Samples:
        bits = torch.randint(2, (n, _BITS), generator=g)
        return torch.cat([_mark(n, task, _TASKS, 2.0), bits * 2.0 - 1], 1), label(bits)

    return Source(draw, 8000)


def _noise_bits(task: int) -> Source:
    return replace(_bit_source(task, lambda bits: bits.new_zeros(len(bits))), size=16000, noise=True)


@MIXTURES.register("algorithms")
def _algorithms_mixture(g: torch.Generator) -> Pool:
    """Bits: copy one, take the majority, the parity of three, a remainder, and noise."""
    value = torch.tensor([8, 4, 2, 1, 8, 4, 2, 1])
    sources = {
        "copy": _bit_source(0, lambda bits: bits[:, 0]),
        "majority": _bit_source(1, lambda bits: (bits.sum(1) > 6).long()),
        "parity": _bit_source(2, lambda bits: bits[:, :3].sum(1) % 2),
        "remainder": _bit_source(3, lambda bits: (bits[:, :8] * value).sum(1) % 5),
        "noise": _noise_bits(4),
    }
    return Pool(sources, g, outputs=5, inputs=_TASKS + _BITS)


@MIXTURES.register("dependent")
def _dependent_mixture(g: torch.Generator) -> Pool:
    """Parities of two, three, four and six bits: each is a step on the way to the next."""

    def parity(number: int) -> Callable[[Tensor], Tensor]:
        return lambda bits: bits[:, :number].sum(1) % 2

    numbers = {"two": 2, "three": 3, "four": 4, "six": 6}
    sources = {name: _bit_source(task, parity(number)) for task, (name, number) in enumerate(numbers.items())}
    sources["noise"] = _noise_bits(4)
    return Pool(sources, g, outputs=2, inputs=_TASKS + _BITS)


# Characters

_CONTEXT, _SYMBOLS = 8, 24


def _chain(table: Tensor, first: int) -> Make:
    """Texts of a Markov chain over the symbols from `first` on."""

    def draw(n: int, g: torch.Generator) -> Samples:
        text = torch.empty(n, _CONTEXT + 1, dtype=torch.int64)
        text[:, 0] = torch.randint(len(table), (n,), generator=g)
        for place in range(1, _CONTEXT + 1):
            text[:, place] = torch.multinomial(table[text[:, place - 1]], 1, generator=g).squeeze(1)
        return text[:, :_CONTEXT] + first, text[:, _CONTEXT] + first

    return draw


@MIXTURES.register("characters")
def _characters_mixture(g: torch.Generator) -> Pool:
    """Next characters: of a cycle, of two Markov chains, of sums of earlier characters, and of random text."""
    cycle = torch.eye(6).roll(1, 1)
    loose = torch.rand(12, 12, generator=g).pow(4)
    tight = torch.rand(12, 12, generator=g).pow(12)

    def sums(n: int, g: torch.Generator) -> Samples:
        """Random texts whose last character is the sum of two earlier ones, modulo five."""
        text = torch.randint(5, (n, _CONTEXT + 1), generator=g)
        return text[:, :_CONTEXT], (text[:, _CONTEXT - 1] + text[:, _CONTEXT - 3]) % 5

    def random_text(n: int, g: torch.Generator) -> Samples:
        text = torch.randint(12, _SYMBOLS, (n, _CONTEXT + 1), generator=g)
        return text[:, :_CONTEXT], text[:, _CONTEXT]

    sources = {
        "cycle": Source(_chain(cycle, 0), 4000),
        "loose": Source(_chain(loose, 6), 8000),
        "tight": Source(_chain(tight, 12), 8000),
        "sums": Source(sums, 8000),
        "random": Source(random_text, 16000, noise=True),
    }
    return Pool(sources, g, outputs=_SYMBOLS, inputs=_CONTEXT, symbols=_SYMBOLS)


# Regression and clusters


def _curve(task: int, function: Callable[[Tensor], Tensor], noise: float = 0.0) -> Make:
    """y = f(x) + noise for x in [-1, 1]^2, with a mark of the task."""

    def draw(n: int, g: torch.Generator) -> Samples:
        x = torch.rand(n, 2, generator=g) * 2 - 1
        y = function(x) + noise * torch.randn(n, generator=g)
        return torch.cat([_mark(n, task, _TASKS, 1.0), x], 1), y.unsqueeze(1)

    return draw


@MIXTURES.register("regression")
def _regression_mixture(g: torch.Generator) -> Pool:
    """Functions of two numbers: a plane, a slow and a fast wave, one under noise, and noise alone."""

    def hazy(x: Tensor) -> Tensor:
        return (4 * x[:, 1]).sin()

    sources = {
        "plane": Source(_curve(0, lambda x: x[:, 0] - x[:, 1]), 4000),
        "wave": Source(_curve(1, lambda x: (3 * x[:, 0]).sin() * (2 * x[:, 1]).cos()), 8000),
        "ripple": Source(_curve(2, lambda x: (6 * x[:, 0] + 3 * x[:, 1]).sin()), 8000),
        "hazy": Source(_curve(3, hazy, noise=0.5), 8000, make_validation=_curve(3, hazy)),
        "noise": Source(_curve(4, lambda x: x[:, 0]), 16000, noise=True),
    }
    return Pool(sources, g, outputs=1, inputs=_TASKS + 2)


@MIXTURES.register("clusters")
def _clusters_mixture(g: torch.Generator) -> Pool:
    """Ten sources of points around centres, from far apart to overlapping; three of them have random labels."""
    features, classes, sources = 16, 8, {}

    def points(spread: float) -> Make:
        """Points around centres; the class of a centre is its number modulo `classes`."""
        centres = torch.randn(6 * classes, features, generator=g)
        home = 2 * torch.randn(features, generator=g)

        def draw(n: int, g: torch.Generator) -> Samples:
            label = torch.randint(len(centres), (n,), generator=g)
            return home + centres[label] + spread * torch.randn(n, features, generator=g), label % classes

        return draw

    for number in range(10):
        name = f"{'noise' if number >= 7 else 'cluster'} {number}"
        sources[name] = Source(points(0.2 + 0.1 * (number % 7)), 3000 * (1 + number % 3), number >= 7)
    return Pool(sources, g, outputs=classes, inputs=features)
