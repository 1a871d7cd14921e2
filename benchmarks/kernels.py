"""What the Triton kernel asks of a device, by compiling it for devices that need not be there; and a roofline.

    python benchmarks/kernels.py --out benchmarks/results/kernels.json

The compiler says how many registers a thread gets, how many bytes it spills to memory, and how much shared memory a
program takes. Nothing is run. The roofline is arithmetic: the least time that the products, the memory and the
second-level cache of a device allow for a layer, each as if there were nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.common import write_json
from headway.grads.triton_kernels import TILES, Tile, outer_kernel

ARCHITECTURES = (80, 90)
ALIGNED = ("positions", "p", "d", "a_sample", "a_position", "b_sample", "b_position")
"""Numbers that are multiples of 16 in the layers of large models."""


@dataclass(frozen=True)
class Compiled:
    """The kernel on one architecture.

    Attributes:
        architecture: 80 is A100, 90 is H100.
        products: how numbers are multiplied, a key of `TILES`.
        tile: rows x columns x positions.
        warps: that share a tile.
        registers: of a thread; there are at most 255.
        spilled: bytes of a thread that did not fit.
        shared: bytes of a program; A100 has 163 KiB, H100 227.
    """

    architecture: int
    products: str
    tile: str
    warps: int
    registers: int
    spilled: int
    shared: int


def source(products: str, tile: Tile) -> ASTSource:
    """The kernel as GMC uses it: weighted, and training the layer."""
    constants: dict[str, Any] = {
        "a_column": 1, "b_column": 1, "KIND": "l1", "WEIGHTED": True, "TRAINS": True, "WIDEN": False,
        "PRECISION": "tf32" if products == "tf32" else "ieee",
        "ROWS": tile.rows, "COLUMNS": tile.columns, "POSITIONS": tile.positions,
    }  # fmt: skip
    factors = "*bf16" if products == "half" else "*fp32"
    pointers = {"a": factors, "b": factors, "weight": "*fp32", "numbers": "*fp32", "total": "*fp32"}
    names = outer_kernel.arg_names
    signature = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in names}
    divisible = [["tt.divisibility", 16]]
    attributes = {(place,): divisible for place, name in enumerate(names) if name in (*pointers, *ALIGNED)}
    return ASTSource(outer_kernel, signature, {(names.index(k),): v for k, v in constants.items()}, attributes)


def compiled(products: str, architecture: int) -> Compiled:
    """Compile the kernel, and ask NVIDIA's assembler, which comes with Triton, what it has made of it."""
    tile = TILES[products]
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    kernel = triton.compile(source(products, tile), target=GPUTarget("cuda", architecture, 32), options=options)
    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    name = f"sm_{architecture}{'a' if architecture == 90 else ''}"
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.ptx"
        text.write_text(kernel.asm["ptx"], "utf-8")
        command = [str(assembler), "-v", f"--gpu-name={name}", str(text), "-o", str(Path(folder) / "kernel.cubin")]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    shape = f"{tile.rows}x{tile.columns}x{tile.positions}"
    registers, spilled = _number(r"Used (\d+) registers", said), _number(r"(\d+) bytes spill stores", said)
    return Compiled(architecture, products, shape, tile.warps, registers, spilled, kernel.metadata.shared)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"expected {pattern!r} in what the assembler says, got {text!r}")
    return int(found[1])


@dataclass(frozen=True)
class Device:
    """What a device can do at most, per second.

    Attributes:
        name: as it is sold.
        products: floating-point operations in bfloat16 products, dense.
        memory: bytes to and from its memory.
        cache: bytes from its second-level cache.
        plain: floating-point operations in float32, outside of products.
    """

    name: str
    products: float
    memory: float
    cache: float
    plain: float


DEVICES = (
    Device("A100 80 GB", 312e12, 2.04e12, 5120 * 1.41e9, 19.5e12),
    Device("H100 SXM", 989e12, 3.35e12, 5.5e12, 67e12),  # nobody specifies its cache: about what others have measured
)
LAYERS = {"4096 to 4096": (4096, 4096), "4096 to 11008": (11008, 4096)}
"""Outputs and inputs of the two kinds of layer in a model of 7 billion parameters."""
SAMPLES, POSITIONS = 8, 2048


def roofline(device: Device, p: int, d: int) -> dict[str, float]:
    """Milliseconds that each part of a device needs at least for a layer in bfloat16, batch `SAMPLES`."""
    rows = SAMPLES * POSITIONS
    tile, weight = TILES["half"], 4 * p * d  # the weights of the norm, and the gradient, are float32
    inputs, outputs = 2 * rows * d, 2 * rows * p
    loads = inputs * -(-p // tile.rows) + outputs * -(-d // tile.columns)
    seconds = {
        "products": 2 * rows * p * d / device.products,
        "memory": (inputs + outputs + 2 * weight) / device.memory,
        "cache": loads / device.cache,
        "elementwise": 4 * SAMPLES * p * d / device.plain,  # abs, times weight, into the number, into the gradient
        # Without the kernel: written by the product, read for the sum, read and written by abs, read by the dot.
        "buffer": 5 * SAMPLES * weight / device.memory,
    }
    return {part: 1000 * value for part, value in seconds.items()}


def main() -> None:
    """Compile, compute and print."""
    parser = argparse.ArgumentParser(description="what the Triton kernel asks of a device")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    rows = [dataclasses.asdict(compiled(products, one)) for one in ARCHITECTURES for products in TILES]
    for row in rows:
        print(*(f"{name}={value}" for name, value in row.items()))
    times = [
        {"device": device.name, "layer": layer, **roofline(device, p, d)}
        for device in DEVICES
        for layer, (p, d) in LAYERS.items()
    ]
    for row in times:
        print(*(f"{name}={value:.2f}" if isinstance(value, float) else value for name, value in row.items()))
    write_json(options.out, {"triton": version("triton"), "compiled": rows, "roofline": times})


if __name__ == "__main__":
    main()
