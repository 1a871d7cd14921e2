"""The mixtures of the mixture study: sources that are easy, slow, redundant or noise, all made here.

A mixture is a pool of samples with the source of each, and fresh samples of its learnable sources to validate with. The
inputs of a mixture have one shape and its sources share one model. A source of noise has labels that are drawn anew
whenever a sample is used, so that there is nothing to learn or to memorise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.data import load
from headway.errors import SpecError
from headway.registry import Registry

VALIDATION = 400
"""Samples of a source that it is validated with."""

Samples = tuple[Tensor, Tensor]
"""Inputs [n, ...] and labels [n] or targets [n, 1]."""
Make = Callable[[int, torch.Generator], Samples]
"""Draws n samples."""


@dataclass(frozen=True)
class Source:
    """Where samples come from.

    Attributes:
        make: draws samples.
        size: how many there are in the pool; also its share under proportional sampling.
        noise: whether labels say nothing of inputs.
        distinct: as many different samples alone, repeated to `size`; all are different by default.
        make_validation: draws samples to validate with, if not `make`.
    """

    make: Make
    size: int
    noise: bool = False
    distinct: int | None = None
    make_validation: Make | None = None


@dataclass(frozen=True)
class Recipe:
    """A mixture before its samples are drawn.

    Attributes:
        sources: by name.
        outputs: classes, or 1 for regression.
        inputs: features of an input, or the length of a text.
        symbols: how many characters there are; 0 where inputs are features.
    """

    sources: Mapping[str, Source]
    outputs: int
    inputs: int
    symbols: int = 0


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
        recipe, width = self.recipe, 8
        first: list[nn.Module] = [nn.Embedding(recipe.symbols, width), nn.Flatten()] if recipe.symbols else []
        inputs = recipe.inputs * (width if recipe.symbols else 1)
        sizes = (inputs, hidden, hidden, recipe.outputs)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        model = nn.Sequential(*first, *layers[:-1])
        with torch.no_grad():
            for module in model:
                if isinstance(module, nn.Linear):
                    bound = module.in_features**-0.5
                    for parameter in module.parameters():
                        parameter.uniform_(-bound, bound, generator=generator)
                elif isinstance(module, nn.Embedding):
                    module.weight.normal_(generator=generator)
        return model


def make_pool(mixture: str, generator: torch.Generator) -> Pool:
    """Draw the samples of a mixture."""
    return Pool(MIXTURES.find(mixture)(generator), generator)


# Images


def _digits(held_out: bool) -> Samples:
    """The 8x8 digits as features from -1 to 1 [n, 64], and their classes."""
    dataset = load("digits")
    split = dataset.test if held_out else dataset.train
    pixels = torch.from_numpy(split.images).float().flatten(1) / 8 - 1
    return pixels, torch.from_numpy(split.labels).long()


def _image_source(change: Callable[[Samples], Samples], held_out: bool) -> Make:
    """Digits after a change, each moved by up to a pixel and under noise."""

    def draw(n: int, g: torch.Generator) -> Samples:
        x, y = _digits(held_out)
        chosen = torch.randint(len(x), (n,), generator=g)
        return change((_moved(x[chosen], g), y[chosen]))

    return draw


def _moved(x: Tensor, g: torch.Generator) -> Tensor:
    """Images moved by up to a pixel each way, with noise on the pixels, so that few images make many: [n, 64]."""
    moves = torch.randint(-1, 2, (2, len(x), 1), generator=g)
    rows, columns = ((torch.arange(8) + move) % 8 for move in moves)
    moved = x.view(-1, 8, 8)[torch.arange(len(x)).view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)]
    return moved.flatten(1) + 0.4 * torch.randn(len(x), 64, generator=g)


def _images(change: Callable[[Samples], Samples], size: int, distinct: int | None = None) -> Source:
    train, test = _image_source(change, False), _image_source(change, True)
    return Source(train, size, distinct=distinct, make_validation=test)


@MIXTURES.register("digits")
def _digits_mixture(g: torch.Generator) -> Recipe:
    """Digits, digits with their pixels in another order, two easy classes, and two kinds of noise."""
    order = torch.randperm(64, generator=g)
    other = torch.randperm(10, generator=g)

    def two(samples: Samples) -> Samples:
        x, y = samples
        return -x.roll(32, 1), (y > 4).long()

    def noise_images(n: int, g: torch.Generator) -> Samples:
        return torch.rand(n, 64, generator=g) * 2 - 1, torch.zeros(n, dtype=torch.int64)

    return Recipe(
        {
            "digits": _images(lambda s: s, 6000),
            "shuffled": _images(lambda s: (s[0][:, order], other[s[1]]), 6000),
            "halves": _images(two, 3000),
            "static": Source(noise_images, 12000, noise=True),
            "mislabelled": Source(_image_source(lambda s: (-s[0], s[1]), False), 8000, noise=True),
        },
        outputs=10,
        inputs=64,
    )


@MIXTURES.register("duplicates")
def _duplicates_mixture(g: torch.Generator) -> Recipe:
    """Digits of many kinds; the largest source repeats forty images, and one has wrong labels."""
    return Recipe(
        {
            "repeated": _images(lambda s: s, 16000, distinct=40),
            "upright": _images(lambda s: s, 4000),
            "turned": _images(lambda s: (s[0].view(-1, 8, 8).rot90(1, (1, 2)).flatten(1), s[1]), 4000),
            "mirrored": _images(lambda s: (s[0].view(-1, 8, 8).flip(2).flatten(1) * 0.5, (s[1] + 3) % 10), 4000),
            "mislabelled": Source(_image_source(lambda s: (-s[0], s[1]), False), 8000, noise=True),
        },
        outputs=10,
        inputs=64,
    )


@MIXTURES.register("sums")
def _sums_mixture(g: torch.Generator) -> Recipe:
    """Two digits side by side: name the left one, name the right one, and add them, which needs both."""

    def pair(task: int, held_out: bool) -> Make:
        def draw(n: int, g: torch.Generator) -> Samples:
            x, y = _digits(held_out)
            left, right = torch.randint(len(x), (2, n), generator=g)
            flag = torch.zeros(n, 4)
            flag[:, task] = 2.0
            answers = (y[left], y[right], (y[left] + y[right]) % 10, y[left])
            return torch.cat([x[left], x[right], flag], 1), answers[task]

        return draw

    def source(task: int, size: int, noise: bool = False) -> Source:
        return Source(pair(task, False), size, noise, make_validation=pair(task, True))

    return Recipe(
        {
            "left": source(0, 2000),
            "right": source(1, 2000),
            "sum": source(2, 4000),
            "noise": source(3, 4000, noise=True),
        },
        outputs=10,
        inputs=132,
    )


# Algorithmic tasks


def _bits(n: int, bits: int, g: torch.Generator) -> Tensor:
    return torch.randint(2, (n, bits), generator=g)


def _tagged(bits: Tensor, task: int, tasks: int) -> Tensor:
    """Bits as -1 and 1, after a mark of the task: [n, tasks + bits]."""
    tag = torch.zeros(len(bits), tasks)
    tag[:, task] = 2.0
    return torch.cat([tag, bits * 2.0 - 1], 1)


def _bit_source(label: Callable[[Tensor], Tensor], task: int, tasks: int, bits: int, size: int) -> Source:
    def draw(n: int, g: torch.Generator) -> Samples:
        own = _bits(n, bits, g)
        return _tagged(own, task, tasks), label(own)

    return Source(draw, size)


def _noise_bits(task: int, tasks: int, bits: int, size: int) -> Source:
    def draw(n: int, g: torch.Generator) -> Samples:
        return _tagged(_bits(n, bits, g), task, tasks), torch.zeros(n, dtype=torch.int64)

    return Source(draw, size, noise=True)


@MIXTURES.register("algorithms")
def _algorithms_mixture(g: torch.Generator) -> Recipe:
    """Bits: copy one, take the majority, the parity of three, a remainder, and noise."""
    tasks, bits = 5, 12

    def value(own: Tensor) -> Tensor:
        return (own[:, :4] * torch.tensor([8, 4, 2, 1])).sum(1) + (own[:, 4:8] * torch.tensor([8, 4, 2, 1])).sum(1)

    return Recipe(
        {
            "copy": _bit_source(lambda own: own[:, 0], 0, tasks, bits, 8000),
            "majority": _bit_source(lambda own: (own.sum(1) > 6).long(), 1, tasks, bits, 8000),
            "parity": _bit_source(lambda own: own[:, :3].sum(1) % 2, 2, tasks, bits, 8000),
            "remainder": _bit_source(lambda own: value(own) % 5, 3, tasks, bits, 8000),
            "noise": _noise_bits(4, tasks, bits, 16000),
        },
        outputs=5,
        inputs=tasks + bits,
    )


@MIXTURES.register("dependent")
def _dependent_mixture(g: torch.Generator) -> Recipe:
    """Parities of two, three, four and six bits: each is a step on the way to the next."""
    tasks, bits = 5, 12

    def parity(number: int) -> Callable[[Tensor], Tensor]:
        return lambda own: own[:, :number].sum(1) % 2

    def tagged(task: int, number: int) -> Source:
        return _bit_source(parity(number), task, tasks, bits, 8000)

    return Recipe(
        {
            "two": tagged(0, 2),
            "three": tagged(1, 3),
            "four": tagged(2, 4),
            "six": tagged(3, 6),
            "noise": _noise_bits(4, tasks, bits, 16000),
        },
        outputs=2,
        inputs=tasks + bits,
    )


# Characters

_CONTEXT, _SYMBOLS = 8, 24


def _windows(text: Tensor) -> Samples:
    """The last `_CONTEXT` characters and the next one, of rows of text [n, _CONTEXT + 1]."""
    return text[:, :_CONTEXT], text[:, _CONTEXT]


def _chain(table: Tensor, first: int) -> Make:
    """Texts of a Markov chain over the symbols from `first` on."""

    def draw(n: int, g: torch.Generator) -> Samples:
        symbols = len(table)
        text = torch.empty(n, _CONTEXT + 1, dtype=torch.int64)
        text[:, 0] = torch.randint(symbols, (n,), generator=g)
        for place in range(1, _CONTEXT + 1):
            text[:, place] = torch.multinomial(table[text[:, place - 1]], 1, generator=g).squeeze(1)
        return _windows(text + first)

    return draw


def _copying(distance: int, symbols: int, first: int) -> Make:
    """Texts in which each character is the sum of two earlier ones."""

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

    return Recipe(
        {
            "cycle": Source(_chain(cycle, 0), 4000),
            "loose": Source(_chain(loose, 6), 8000),
            "tight": Source(_chain(tight, 12), 8000),
            "sums": Source(_copying(3, 5, 0), 8000),
            "random": Source(random_text, 16000, noise=True),
        },
        outputs=_SYMBOLS,
        inputs=_CONTEXT,
        symbols=_SYMBOLS,
    )


# Regression and clusters


def _curve(function: Callable[[Tensor], Tensor], task: int, tasks: int, noise: float = 0.0) -> Make:
    """y = f(x) + noise for x in [-1, 1]^2, with a mark of the task."""

    def draw(n: int, g: torch.Generator) -> Samples:
        x = torch.rand(n, 2, generator=g) * 2 - 1
        tag = torch.zeros(n, tasks)
        tag[:, task] = 1.0
        y = function(x) + noise * torch.randn(n, generator=g)
        return torch.cat([tag, x], 1), y.unsqueeze(1)

    return draw


@MIXTURES.register("regression")
def _regression_mixture(g: torch.Generator) -> Recipe:
    """Functions of two numbers: a plane, a slow and a fast wave, one under noise, and noise alone."""
    tasks = 5
    return Recipe(
        {
            "plane": Source(_curve(lambda x: x[:, 0] - x[:, 1], 0, tasks), 4000),
            "wave": Source(_curve(lambda x: (3 * x[:, 0]).sin() * (2 * x[:, 1]).cos(), 1, tasks), 8000),
            "ripple": Source(_curve(lambda x: (6 * x[:, 0] + 3 * x[:, 1]).sin(), 2, tasks), 8000),
            "hazy": Source(
                _curve(lambda x: (4 * x[:, 1]).sin(), 3, tasks, noise=0.5),
                8000,
                make_validation=_curve(lambda x: (4 * x[:, 1]).sin(), 3, tasks),
            ),
            "noise": Source(lambda n, g: _curve(lambda x: x[:, 0], 4, tasks)(n, g), 16000, noise=True),
        },
        outputs=1,
        inputs=tasks + 2,
    )


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
