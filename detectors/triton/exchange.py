"""Requests of one lane: a batch of pictures goes to the server, and raw outputs come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

from detectors.letterbox import InputSpec
from detectors.triton.http import Connection, ServerError
from detectors.triton.model import DTYPES, ServedModel
from detectors.triton.regions import Region

Shapes = dict[str, tuple[int, ...]]
"""The shape of each output for one picture."""

_PAGE = 4096
_HEADER = "Inference-Header-Content-Length"


class Exchange:
    """The input buffer of a lane, and the requests about parts of it.

    Args:
        pictures: of the largest batch.
        constants: a row of each further input.
        shared: shapes of the outputs, to exchange tensors through shared memory; None to send them over HTTP. Outputs
            whose shape may vary come over HTTP in any case.

    Attributes:
        input: (pictures, 3, height, width) or (pictures, height, width, 3), in shared memory if there is some.

    Raises:
        DetectorError: there is no room in shared memory.
    """

    def __init__(
        self,
        model: ServedModel,
        spec: InputSpec,
        pictures: int,
        constants: dict[str, npt.NDArray[np.int64]],
        shared: Shapes | None,
    ) -> None:
        self._model, self._constants = model, constants
        sides = (spec.height, spec.width)
        self._shape = (pictures, *sides, 3) if model.channels_last else (pictures, 3, *sides)
        self._outputs = {row.name: (shared[row.name], DTYPES[row.kind]) for row in model.outputs} if shared else {}
        self._outputs = {
            name: found
            for name, found in self._outputs.items()
            if all(side > 0 for row in model.outputs if row.name == name for side in row.shape[1:])
        }
        self.picture_bytes = int(np.prod(self._shape[1:])) * model.dtype.itemsize
        self.region: Region | None = None
        if shared is None:
            self.input: npt.NDArray[Any] = np.empty(self._shape, model.dtype)
        else:
            self._places, size = self._layout()
            self.region = Region(size)
            self.input = np.frombuffer(self.region.memory, model.dtype, int(np.prod(self._shape))).reshape(self._shape)

    def send(self, link: Connection, first: int, count: int) -> None:
        """Send a request about `count` pictures of the input, from `first` on.

        Raises:
            ServerError: the server cannot be reached, or is late.
        """
        inputs = [self._image(first, count)]
        for row in self._model.further:
            values = np.repeat(self._constants[row.name][None], count, axis=0)
            inputs.append(InferInput(row.name, list(values.shape), row.kind).set_data_from_numpy(values))
        outputs = [self._wanted(row.name, first, count) for row in self._model.outputs]
        body, header = InferenceServerClient.generate_request_body(inputs, outputs=outputs)
        headers = {"Content-Type": "application/octet-stream"} | ({_HEADER: str(header)} if header else {})
        link.send("POST", f"{self._model.path}/infer", body, headers)

    def receive(self, link: Connection, first: int, count: int) -> dict[str, npt.NDArray[np.float32]]:
        """The raw outputs by name, (count, ...). They are copies.

        Raises:
            ServerError: the server fails, or is late.
        """
        content, headers = link.receive()
        size = headers.get(_HEADER)
        try:
            answer = InferenceServerClient.parse_response_body(content, header_length=int(size) if size else None)
            return {row.name: self._values(answer, row.name, first, count) for row in self._model.outputs}
        except (KeyError, TypeError, ValueError, InferenceServerException) as error:
            raise ServerError(f"the server's answer cannot be read: {error!r}") from error

    def close(self) -> None:
        """Free the memory; the server must have forgotten the region."""
        self.input = self.input[:0].copy()
        if self.region:
            self.region.close()

    def _image(self, first: int, count: int) -> InferInput:
        shape = [count, *self._shape[1:]]
        tensor = InferInput(self._model.image.name, shape, self._model.image.kind)
        if self.region is None:
            return tensor.set_data_from_numpy(self.input[first : first + count])
        return tensor.set_shared_memory(self.region.name, count * self.picture_bytes, first * self.picture_bytes)

    def _wanted(self, name: str, first: int, count: int) -> InferRequestedOutput:
        wanted = InferRequestedOutput(name)
        if self.region and name in self._outputs:
            size = self._bytes(name)
            wanted.set_shared_memory(self.region.name, count * size, self._places[name] + first * size)
        return wanted

    def _values(self, answer: InferResult, name: str, first: int, count: int) -> npt.NDArray[np.float32]:
        if self.region is None or name not in self._outputs:
            found = answer.as_numpy(name)
            if found is None:
                raise KeyError(name)
        else:
            stated = next(row["shape"] for row in answer.get_response()["outputs"] if row["name"] == name)
            shape, kind = self._outputs[name]
            if tuple(stated) != (count, *shape):
                raise ValueError(f"the output {name} is {stated}")
            offset = self._places[name] + first * self._bytes(name)
            found = np.frombuffer(self.region.memory, kind, count * int(np.prod(shape)), offset).reshape(stated)
        if len(found) != count:
            raise ValueError(f"the output {name} has {len(found)} rows for {count} pictures")
        return np.array(found, np.float32)

    def _bytes(self, name: str) -> int:
        shape, kind = self._outputs[name]
        return int(np.prod(shape)) * kind.itemsize

    def _layout(self) -> tuple[dict[str, int], int]:
        """The place of each output behind the input, and the size of all; bytes."""
        place, places = _pages(self._shape[0] * self.picture_bytes), {}
        for name in self._outputs:
            places[name] = place
            place += _pages(self._shape[0] * self._bytes(name))
        return places, place


def outputs_of(answers: Sequence[dict[str, npt.NDArray[np.float32]]]) -> dict[str, npt.NDArray[np.float32]]:
    """The outputs of several requests as those of one."""
    return {name: np.concatenate([row[name] for row in answers]) for name in answers[0]} if answers[1:] else answers[0]


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
