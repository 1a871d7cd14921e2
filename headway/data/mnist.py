"""MNIST and Fashion-MNIST: four IDX files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headway.data.catalogue import Spec
from headway.data.dataset import Split
from headway.data.files import bad_file, matches, read_bounded
from headway.data.idx import idx_size, parse_images, parse_labels


def content_limit(spec: Spec, name: str) -> int:
    """Count the bytes of the official file of this name once unpacked: no copy may be longer."""
    count = spec.counts[0] if name.startswith("train") else spec.counts[1]
    return idx_size(count, *spec.shape[1:]) if "images" in name else idx_size(count)


def read_mnist(spec: Spec, files: Mapping[str, Path]) -> tuple[list[Split], list[str]]:
    """Read the training and the test split from four files.

    Returns:
        The two splits, and the names of the files whose contents are not the official ones.
    """
    differing: list[str] = []
    splits = [
        _read_split(spec, files, prefix, most, differing)
        for prefix, most in zip(("train", "t10k"), spec.counts, strict=True)
    ]
    return splits, differing


def _read_split(spec: Spec, files: Mapping[str, Path], prefix: str, most: int, differing: list[str]) -> Split:
    images_name, labels_name = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    height, width = spec.shape[1:]
    images = parse_images(_read(spec, files, images_name, differing), (height, width), most, files[images_name])
    labels = parse_labels(_read(spec, files, labels_name, differing), len(spec.class_names), most, files[labels_name])
    if len(images) != len(labels):
        raise bad_file(
            files[labels_name],
            f"{len(images)} labels, one for each image in {files[images_name].name}",
            str(len(labels)),
        )
    return Split(images, labels)


def _read(spec: Spec, files: Mapping[str, Path], name: str, differing: list[str]) -> bytes:
    data = read_bounded(files[name], content_limit(spec, name))
    if not matches(data, spec.contents[name]):
        differing.append(name)
    return data
