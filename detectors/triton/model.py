"""The facts that a server gives about a model: inputs, outputs, batches, parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detectors.heads.refusals import Input, likely_of_inputs
from detectors.port import DetectorError
from detectors.triton.address import Address
from detectors.triton.http import UNAVAILABLE, Connection, ServerError

_PICTURES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype(np.float32),
    "FP16": np.dtype(np.float16),
    "UINT8": np.dtype(np.uint8),
}
DTYPES: dict[str, np.dtype[Any]] = {
    **_PICTURES,
    **{name: np.dtype(name.lower()) for name in ("INT8", "INT32", "INT64")},
    "FP64": np.dtype(np.float64),
    "BOOL": np.dtype(np.bool_),
}


@dataclass(frozen=True)
class Tensor:
    """An input or output.

    Attributes:
        kind: the server's word for its type, such as "FP32".
        shape: batch included; -1 for a side that may vary.
    """

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ServedModel:
    """A model as a server describes it.

    Attributes:
        image: the input for pictures.
        further: other inputs, which take the size of the picture.
        channels_last: the input is (b, height, width, 3).
        largest: pictures in one request; None without a limit.
        fixed: pictures that each request must have; None if they may be fewer.
        metadata: the configuration's parameters, for the key-value pairs of an ONNX file.
        digest: SHA-256 of name, version and configuration.
        path: of requests about this version.
    """

    version: str
    image: Tensor
    further: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    channels_last: bool
    largest: int | None
    fixed: int | None
    metadata: Mapping[str, str]
    digest: str
    path: str

    @property
    def dtype(self) -> np.dtype[Any]:
        return _PICTURES[self.image.kind]

    @property
    def size(self) -> tuple[int | str, ...]:
        """(batch, 3, height, width), with a word for a side that may vary."""
        batch, *rest = self.image.shape
        height, width = rest[:2] if self.channels_last else rest[1:]
        return tuple(side if side > 0 else "any" for side in (batch, 3, height, width))


def served_model(link: Connection, address: Address) -> ServedModel:
    """Ask the server about the model.

    Raises:
        ServerError: the server cannot be reached, or does not have the model ready.
        DetectorError: Lookout cannot run the model.
    """
    base = f"/v2/models/{address.name}"
    version = address.version or _newest(address, link.query(base))
    path = f"{base}/versions/{version}"
    link.query(f"{path}/ready")
    stated = link.query(path)
    config = _config(link, path)
    try:
        return _read(address, version, path, stated, config)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DetectorError(f"the server describes the model in a way that Lookout cannot read: {error!r}") from error


def _newest(address: Address, stated: Any) -> str:
    if not isinstance(stated, dict):
        raise DetectorError(f"{address.server} is no server of KServe's protocol, version 2")
    versions = [str(row) for row in stated.get("versions") or ["1"]]
    return max(versions, key=lambda row: (int(row) if row.isdigit() else 0, row))


def _config(link: Connection, path: str) -> dict[str, Any]:
    """The configuration; other servers of the protocol than Triton have none."""
    try:
        found = link.query(f"{path}/config")
    except ServerError as error:
        if error.status in UNAVAILABLE:
            raise
        return {}
    return found if isinstance(found, dict) else {}


def _read(address: Address, version: str, path: str, stated: Any, config: dict[str, Any]) -> ServedModel:
    inputs, outputs = _tensors(stated["inputs"]), _tensors(stated["outputs"])
    images = [row for row in inputs if _is_picture(row)]
    further = tuple(row for row in inputs if row not in images)
    if len(images) != 1 or not all(map(_is_size, further)):
        seen = ", ".join(f"{row.name} {row.kind} {list(row.shape)}" for row in inputs) or "none"
        rows = [Input(row.name, row.kind.lower(), tuple(max(side, 0) for side in row.shape)) for row in inputs]
        raise DetectorError(
            "needs one input of FP32, FP16 or UINT8 with (batch, 3, height, "
            f"width), or with (batch, height, width, 3), but has {seen}{likely_of_inputs(rows)}"
        )
    for row in outputs:
        if row.kind not in DTYPES:
            raise DetectorError(
                f"the output {row.name} is {row.kind}, and Lookout reads tensors of {', '.join(DTYPES)}"
            )
    image, limit = images[0], int(config.get("max_batch_size", 0))
    own = image.shape[0]
    return ServedModel(
        version=version,
        image=image,
        further=further,
        outputs=outputs,
        channels_last=image.shape[1] != 3,
        largest=limit or (own if own > 0 else None),
        fixed=own if own > 0 and not limit else None,
        metadata={str(name): str(row["string_value"]) for name, row in config.get("parameters", {}).items()},
        digest=_digest([address.name, version, stated, config]),
        path=path,
    )


def _tensors(rows: Sequence[Mapping[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(Tensor(str(row["name"]), str(row["datatype"]), tuple(map(int, row["shape"]))) for row in rows)


def _is_picture(row: Tensor) -> bool:
    return row.kind in _PICTURES and len(row.shape) == 4 and 3 in (row.shape[1], row.shape[3])


def _is_size(row: Tensor) -> bool:
    """Whether a further input is for the size of the picture, which some of DETR's exports have."""
    return row.kind == "INT64" and len(row.shape) == 2 and "size" in row.name


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
