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


@dataclass(frozen=True)
class Recipe:
    """A mixture before its samples are drawn."""

    sources: Mapping[str, Source]  # by name
    outputs: int  # classes, or 1 for regression
    inputs: int  # features of an input, or the length of a text
    symbols: int = 0  # how many characters there are; 0 where inputs are features


MIXTURES: Registry[Callable[[torch.Generator], Recipe]] = Registry("mixture", SpecError)


class Pool:
    """The samples of a mixture.

    Attributes:
        names: of the sources.
        noisy: which of them are noise [S].
        sizes: their samples [S].
        x: inputs [N, ...], source after source.
        y: labels [N], or targets [N, 1].
        validation: for each learnable source its number, inputs and labels.
    """

    def __init__(self, recipe: Recipe, generator: torch.Generator) -> None:
        sources = recipe.sources
        self.recipe = recipe
        self.names = tuple(sources)
        self.noisy = torch.tensor([source.noise for source in sources.values()])
        self.sizes = torch.tensor([source.size for source in sources.values()])
        self._starts = self.sizes.cumsum(0) - self.sizes
        drawn = [self._draw(source, generator) for source in sources.values()]
        self.x, self.y = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        self.validation = [
            (number, *(source.make_validation or source.make)(VALIDATION, generator))
            for number, source in enumerate(sources.values())
            if not source.noise
        ]

    @staticmethod
    def _draw(source: Source, generator: torch.Generator) -> Samples:
        distinct = source.distinct or source.size
        x, y = source.make(distinct, generator)
        again = torch.arange(source.size) % distinct
        return x[again], y[again]

    def take(self, sources: Tensor, generator: torch.Generator) -> Samples:
        """A random sample of each of the given sources [B]; noise gets new labels."""
        places = (torch.rand(len(sources), generator=generator, dtype=torch.float64) * self.sizes[sources]).long()
        indices = self._starts[sources] + places
        y, noisy = self.y[indices], self.noisy[sources]
        other = self.labels(len(sources), generator)
        return self.x[indices], torch.where(noisy.view(-1, *[1] * (y.dim() - 1)), other, y)

    def labels(self, number: int, generator: torch.Generator) -> Tensor:
        """Labels that say nothing: classes [n], or targets of variance one [n, 1]."""
        if self.recipe.outputs == 1:
            return torch.randn(number, 1, generator=generator)
        return torch.randint(self.recipe.outputs, (number,), generator=generator)

    def model(self, hidden: int, generator: torch.Generator) -> nn.Sequential:
        """A perceptron with two hidden layers, over embeddings where inputs are characters."""
        inputs, first = self.recipe.inputs, []
        if self.recipe.symbols:
            table = torch.empty(self.recipe.symbols, EMBEDDED).normal_(generator=generator)
            inputs, first = inputs * EMBEDDED, [nn.Embedding.from_pretrained(table, freeze=False), nn.Flatten()]
        return nn.Sequential(*first, *perceptron([inputs, hidden, hidden, self.recipe.outputs], generator))


def make_pool(mixture: str, generator: torch.Generator) -> Pool:
    """Draw the samples of a mixture."""
    return Pool(MIXTURES.find(mixture)(generator), generator)


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


def _image_source(change: Change, held_out: bool = False) -> Make:
    """Digits after a change, each moved by up to a pixel and under noise."""

    def draw(n: int, g: torch.Generator) -> Samples:
        x, y = _digits(held_out)
        chosen = torch.randint(len(x), (n,), generator=g)
        return change(_moved(x[chosen], g), y[chosen])

    return draw


def _moved(x: Tensor, g: torch.Generator) -> Tensor:
    """Images moved by up to a pixel each way, with noise on the pixels, so that few images make many: [n, 64]."""
    moves = torch.randint(-1, 2, (2, len(x), 1), generator=g)
    rows, columns = ((torch.arange(8) + move) % 8 for move in moves)
    moved = x.view(-1, 8, 8)[torch.arange(len(x)).view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)]
    return moved.flatten(1) + 0.4 * torch.randn(len(x), 64, generator=g)


def _images(size: int, change: Change = lambda x, y: (x, y), distinct: int | None = None) -> Source:
    return Source(_image_source(change), size, distinct=distinct, make_validation=_image_source(change, held_out=True))


def _mislabelled() -> Source:
    return Source(_image_source(lambda x, y: (-x, y)), 8000, noise=True)


@MIXTURES.register("digits")
def _digits_mixture(g: torch.Generator) -> Recipe:
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
        "mislabelled": _mislabelled(),
    }
    return Recipe(sources, outputs=10, inputs=64)


@MIXTURES.register("duplicates")
def _duplicates_mixture(g: torch.Generator) -> Recipe:
    """Digits of many kinds; the largest source repeats forty images, and one has wrong labels."""
    sources = {
        "repeated": _images(16000, distinct=40),
        "upright": _images(4000),
        "turned": _images(4000, lambda x, y: (x.view(-1, 8, 8).rot90(1, (1, 2)).flatten(1), y)),
        "mirrored": _images(4000, lambda x, y: (x.view(-1, 8, 8).flip(2).flatten(1) * 0.5, (y + 3) % 10)),
        "mislabelled": _mislabelled(),
    }
    return Recipe(sources, outputs=10, inputs=64)


@MIXTURES.register("sums")
def _sums_mixture(g: torch.Generator) -> Recipe:
    """Two digits side by side: name the left one, name the right one, and add them, which needs both."""

    def pair(task: int, held_out: bool) -> Make:
        def draw(n: int, g: torch.Generator) -> Samples:
            x, y = _digits(held_out)
            left, right = torch.randint(len(x), (2, n), generator=g)
            answers = (y[left], y[right], (y[left] + y[right]) % 10, y[left])
            return torch.cat([x[left], x[right], _mark(n, task, 4, 2.0)], 1), answers[task]

        return draw

    def source(task: int, size: int, noise: bool = False) -> Source:
        return Source(pair(task, False), size, noise, make_validation=pair(task, True))

    sources = {
        "left": source(0, 2000),
        "right": source(1, 2000),
        "sum": source(2, 4000),
        "noise": source(3, 4000, noise=True),
    }
    return Recipe(sources, outputs=10, inputs=132)


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
def _algorithms_mixture(g: torch.Generator) -> Recipe:
    """Bits: copy one, take the majority, the parity of three, a remainder, and noise."""

    def value(bits: Tensor) -> Tensor:
        return (bits[:, :8] * torch.tensor([8, 4, 2, 1, 8, 4, 2, 1])).sum(1)

    sources = {
        "copy": _bit_source(0, lambda bits: bits[:, 0]),
        "majority": _bit_source(1, lambda bits: (bits.sum(1) > 6).long()),
        "parity": _bit_source(2, lambda bits: bits[:, :3].sum(1) % 2),
        "remainder": _bit_source(3, lambda bits: value(bits) % 5),
        "noise": _noise_bits(4),
    }
    return Recipe(sources, outputs=5, inputs=_TASKS + _BITS)


@MIXTURES.register("dependent")
def _dependent_mixture(g: torch.Generator) -> Recipe:
    """Parities of two, three, four and six bits: each is a step on the way to the next."""

    def parity(task: int, number: int) -> Source:
        return _bit_source(task, lambda bits: bits[:, :number].sum(1) % 2)

    sources = {
        "two": parity(0, 2),
        "three": parity(1, 3),
        "four": parity(2, 4),
        "six": parity(3, 6),
        "noise": _noise_bits(4),
    }
    return Recipe(sources, outputs=2, inputs=_TASKS + _BITS)


# Characters

_CONTEXT, _SYMBOLS = 8, 24


def _windows(text: Tensor) -> Samples:
    """The last `_CONTEXT` characters and the next one, of rows of text [n, _CONTEXT + 1]."""
    return text[:, :_CONTEXT], text[:, _CONTEXT]


def _chain(table: Tensor, first: int) -> Make:
    """Texts of a Markov chain over the symbols from `first` on."""

    def draw(n: int, g: torch.Generator) -> Samples:
        text = torch.empty(n, _CONTEXT + 1, dtype=torch.int64)
        text[:, 0] = torch.randint(len(table), (n,), generator=g)
        for place in range(1, _CONTEXT + 1):
            text[:, place] = torch.multinomial(table[text[:, place - 1]], 1, generator=g).squeeze(1)
        return _windows(text + first)

    return draw


def _sum_of_earlier(distance: int, symbols: int, first: int) -> Make:
    """Random texts whose last character is the sum of two earlier ones, modulo `symbols`."""

    def draw(n: int, g: torch.Generator) -> Samples:
        text = torch.randint(symbols, (n, _CONTEXT + 1), generator=g)
        text[:, _CONTEXT] = (text[:, _CONTEXT - 1] + text[:, _CONTEXT - distance]) % symbols
        return _windows(text + first)

    return draw


@MIXTURES.register("characters")
def _characters_mixture(g: torch.Generator) -> Recipe:
    """Next characters: of a cycle, of two Markov chains, of sums of earlier characters, and of random text."""
    cycle = torch.eye(6).roll(1, 1)
    loose = torch.rand(12, 12, generator=g).pow(4)
    tight = torch.rand(12, 12, generator=g).pow(12)

    def random_text(n: int, g: torch.Generator) -> Samples:
        return _windows(torch.randint(12, _SYMBOLS, (n, _CONTEXT + 1), generator=g))

    sources = {
        "cycle": Source(_chain(cycle, 0), 4000),
        "loose": Source(_chain(loose, 6), 8000),
        "tight": Source(_chain(tight, 12), 8000),
        "sums": Source(_sum_of_earlier(3, 5, 0), 8000),
        "random": Source(random_text, 16000, noise=True),
    }
    return Recipe(sources, outputs=_SYMBOLS, inputs=_CONTEXT, symbols=_SYMBOLS)


# Regression and clusters


def _curve(task: int, function: Callable[[Tensor], Tensor], noise: float = 0.0) -> Make:
    """y = f(x) + noise for x in [-1, 1]^2, with a mark of the task."""

    def draw(n: int, g: torch.Generator) -> Samples:
        x = torch.rand(n, 2, generator=g) * 2 - 1
        y = function(x) + noise * torch.randn(n, generator=g)
        return torch.cat([_mark(n, task, _TASKS, 1.0), x], 1), y.unsqueeze(1)

    return draw


@MIXTURES.register("regression")
def _regression_mixture(g: torch.Generator) -> Recipe:
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
    return Recipe(sources, outputs=1, inputs=_TASKS + 2)


def _around(centres: Tensor, home: Tensor, spread: float, classes: int) -> Make:
    """Points around centres [n, features]; the class of a centre is its number modulo `classes`."""

    def draw(n: int, g: torch.Generator) -> Samples:
        label = torch.randint(len(centres), (n,), generator=g)
        return home + centres[label] + spread * torch.randn(n, centres.shape[1], generator=g), label % classes

    return draw


@MIXTURES.register("clusters")
def _clusters_mixture(g: torch.Generator) -> Recipe:
    """Ten sources of points around centres, from far apart to overlapping; three of them have random labels."""
    features, classes, sources = 16, 8, {}
    for number in range(10):
        centres = torch.randn(6 * classes, features, generator=g)
        home = 2 * torch.randn(features, generator=g)
        make = _around(centres, home, 0.2 + 0.1 * (number % 7), classes)
        noise = number >= 7
        sources[f"{'noise' if noise else 'cluster'} {number}"] = Source(make, 3000 * (1 + number % 3), noise)
    return Recipe(sources, outputs=classes, inputs=features)
