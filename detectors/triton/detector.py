"""A model on a Triton server, or another server of KServe's protocol, version 2."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads.layout import Head, ModelFacts, Outputs
from detectors.heads.recognise import recognise_at
from detectors.host_input import HostCutter, HostInput
from detectors.letterbox import InputSpec
from detectors.model import input_size, within_nms
from detectors.opening import open_heads
from detectors.port import (
    DetectorError,
    DetectorUnavailableError,
    Fetch,
    HostImage,
    Image,
    ModelInfo,
    Options,
    PreparedImage,
    StageTimes,
    fetched,
    on_host,
)
from detectors.triton.address import address_of
from detectors.triton.exchange import Exchange, Shapes, outputs_of
from detectors.triton.http import UNAVAILABLE, Connection, ServerError
from detectors.triton.model import DTYPES, served_model
from detectors.triton.regions import Region, remove_leftovers, unregister
from detectors.triton.server import Server

_MOST_IN_FLIGHT = 8  # requests of one lane
_TRIAL_PICTURES = 2  # show whether outputs have a row for each picture
_MAX_QUERY_S = 2.0  # limit of a question about the model
_CLOSE_S = 2.0
_FLAG = "start the server with --allow-client-shm=true, in a container also with --ipc=host"


class TritonDetector:
    """A model on a server. Each lane has connections of its own, and shared memory of its own on the server's host.

    Raises:
        DetectorUnavailableError: the server cannot be reached, or does not have the model ready.
        DetectorError: Lookout cannot run the model.
    """

    def __init__(self, options: Options) -> None:
        self.address = address_of(options.path)
        if options.precision != "auto":
            raise DetectorError(f"{options.path}: a server chooses the precision: set model.precision: auto")
        self._name = f"{self.address.name} on {self.address.server}"
        try:
            with closing(self._questions()) as link:
                self.model = served_model(link, self.address)
                self.options, limit = within_nms(options, self.model.metadata)
                self._open(link, limit)
        except ServerError as error:
            kind = DetectorUnavailableError if error.status in UNAVAILABLE else DetectorError
            raise kind(f"model {self._name}: {error}") from error
        except DetectorError as error:
            raise DetectorError(f"model {self._name}: {error}") from error
        self.server = Server(self._name, self._probe_again, self._try_again)

    def _open(self, link: Connection, limit: Sequence[str]) -> None:
        """Find the head by a trial run, and the transport.

        Raises:
            ServerError: the server fails.
            DetectorError: Lookout cannot run the model.
        """
        model, options = self.model, self.options
        if options.further_sizes:
            raise DetectorError(
                f"{self.address.name}: a model on a server has one input size: remove input_size of sources"
            )
        width, height = input_size(model.size, model.metadata, replace(options, path=Path(self.address.name)))
        self.per_request = min(model.largest or options.max_batch, options.max_batch)
        count = model.fixed or min(_TRIAL_PICTURES, self.per_request)
        plain = InputSpec(width, height)
        further = [row.name for row in model.further]
        # Values of further inputs until the head is known.
        constants = {name: np.array([width, height], np.int64) for name in further}
        probe = self._run_once(plain, constants, np.zeros((count, 3, height, width), model.dtype))
        facts = ModelFacts(
            [(name, tuple(array.shape)) for name, array in probe.items()],
            (width, height),
            model.metadata,
            further,
            count,
        )
        options = self._with_colours(options)
        head = recognise_at(facts, options, None)
        self.shapes: Shapes = {name: tuple(array.shape[1:]) for name, array in probe.items()}
        opened = open_heads([head], self._run_batch, options, model.metadata, "the server's precision", count)
        self.head: Head = opened.heads[0]
        self.is_shared, refusal = self._transport(link)
        self.info = ModelInfo(
            name=self.address.name,
            digest=model.digest[:12],
            precision="server",
            backend="triton",
            head=self.head.name,
            input_size=(width, height),
            labels=opened.labels,
            max_batch=model.fixed or options.max_batch,
            notes=(*opened.notes, *limit, *refusal),
            lanes=options.lanes,
            transport=self._in_words(),
            facts=tuple(fact for fact in opened.facts if not (self._reads_bytes and fact.name in ("mean", "std"))),
        )

    @property
    def _reads_bytes(self) -> bool:
        return self.model.dtype == np.uint8

    @property
    def unavailable(self) -> str | None:
        return self.server.unavailable

    def lane(self) -> TritonLane:
        cv2.setNumThreads(1)  # decoders use all cores; OpenCV's threads would spin beside them
        return TritonLane(self)

    def exchange(self) -> Exchange:
        """The input and the requests of a lane."""
        shared = self.shapes if self.is_shared else None
        return Exchange(self.model, self.head.spec, self.info.max_batch, dict(self.head.constants), shared)

    def connection(self) -> Connection:
        return Connection(self.address, self.options.request_timeout_s)

    def cutter(self, room: int) -> HostCutter:  # noqa: ARG002 - each part has memory of its own
        return HostCutter()

    def sample(self, width: int, height: int) -> HostImage:
        return HostImage(np.full((height, width, 3), 114, np.uint8))

    def close(self) -> None:
        """End the thread that looks for a lost server; idempotent."""
        self.server.close(_CLOSE_S)

    def _questions(self) -> Connection:
        return Connection(self.address, _MAX_QUERY_S)

    def _run_once(
        self, spec: InputSpec, constants: dict[str, npt.NDArray[np.int64]], batch: npt.NDArray[Any]
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Raw outputs of a batch of channels first, over HTTP."""
        with (
            closing(self.connection()) as link,
            closing(Exchange(self.model, spec, len(batch), constants, None)) as one,
        ):
            one.input[:] = batch.transpose(0, 2, 3, 1) if self.model.channels_last else batch
            one.send(link, 0, len(batch))
            return one.receive(link, 0, len(batch))

    def raw(self, picture: HostImage) -> Outputs:
        """Raw outputs of one picture, without the batch dimension, over HTTP."""
        return {name: array[0] for name, array in self._run_batch(self.head, [picture]).items()}

    def _run_batch(self, head: Head, pictures: Sequence[HostImage]) -> Outputs:
        """Raw outputs of some pictures, over HTTP."""
        count = self.model.fixed or len(pictures)
        with (
            closing(self.connection()) as link,
            closing(Exchange(self.model, head.spec, count, dict(head.constants), None)) as one,
        ):
            source = HostInput(one.input, head.spec)
            for slot, picture in enumerate(pictures):
                source.place(slot, picture.bgr)
            one.send(link, 0, count)
            return one.receive(link, 0, count)

    def _with_colours(self, options: Options) -> Options:
        """Options for a model that reads bytes: it normalises them itself.

        Raises:
            DetectorError: keys state how to.
        """
        if not self._reads_bytes:
            return options
        if options.semantics.mean or options.semantics.std:
            raise DetectorError("the model reads bytes, and normalises them itself: remove model.mean and model.std")
        return replace(options, semantics=replace(options.semantics, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))

    def _probe_again(self) -> None:
        """See `Server`."""
        with closing(self._questions()) as link:
            found = served_model(link, self.address)
        if found.digest != self.model.digest:
            raise DetectorError(
                f"model {self._name} is another one now (version {found.version}, was {self.model.version}, or another "
                "configuration): restart to use it"
            )

    def _try_again(self) -> None:
        """See `Server`."""
        self._probe_again()
        self.raw(self.sample(8, 8))

    def _transport(self, link: Connection) -> tuple[bool, tuple[str, ...]]:
        """Whether tensors go through shared memory, and a note if the server refuses that.

        Raises:
            DetectorError: shared memory is required, and the server refuses it.
            ServerError: the server cannot be reached.
        """
        wanted = self.options.transport
        if wanted == "http" or (wanted == "auto" and not self.address.is_local):
            return False, ()
        remove_leftovers(link)
        with closing(Region(1)) as region:
            try:
                region.register(link)
                unregister(link, region.name)
                return True, ()
            except ServerError as error:
                if not error.status:
                    raise
                refusal = f"the server {self.address.server} takes no shared memory ({error}): {_FLAG}"
        if wanted == "shm":
            raise DetectorError(f"{refusal}; or set model.transport: auto")
        return False, (f"{refusal}; pictures go over HTTP, which costs more of the CPU",)

    def _in_words(self) -> str:
        spec, image = self.head.spec, self.model.image
        there = 3 * spec.height * spec.width * DTYPES[image.kind].itemsize
        back = sum(int(np.prod(self.shapes[row.name])) * DTYPES[row.kind].itemsize for row in self.model.outputs)
        way = "shared memory" if self.is_shared else "HTTP"
        return f"{way}, {image.kind}, {there} bytes a picture there and {back} back"


class TritonLane:
    """One thread's connections and buffers; see `detectors.port.Lane`.

    A batch that is larger than the server's largest goes in several requests at once.
    """

    def __init__(self, detector: TritonDetector) -> None:
        self._detector = detector
        self._links = [detector.connection()]
        self._exchange: Exchange | None = None
        self._input: HostInput | None = None
        self._known = -1  # `times_found` at which the server was told of the region
        self._dropped: list[str] = []  # regions that the server may still know

    def detect(self, images: Sequence[Image | PreparedImage]) -> tuple[list[Detections], StageTimes]:
        server = self._detector.server
        server.check()
        started = perf_counter_ns()
        try:
            source = self._ready_input()
            outputs, preprocess = self._outputs(images, source)
        except ServerError as error:
            self._forget()
            raise server.lost(error) from error
        inferred = perf_counter_ns()
        head, wanted = self._detector.head, self._detector.options.wanted
        results = head.batch_detections(outputs, source.boxes[: len(images)], wanted)
        infer = inferred - started - preprocess
        return results, StageTimes(preprocess, infer, perf_counter_ns() - inferred)

    def raw(self, image: Image) -> Outputs:
        """See `TritonDetector.raw`."""
        return self._detector.raw(on_host(image))

    def fetch(self, image: Image) -> Fetch:
        return fetched(image)

    def close(self) -> None:
        """Let the server forget the region, and close the connections; idempotent."""
        self._forget()
        with suppress(ServerError), closing(self._detector.connection()) as link:
            while self._dropped and not self._detector.unavailable:
                unregister(link, self._dropped.pop())

    def _ready_input(self) -> HostInput:
        """The input buffer, in memory that the server knows."""
        found = self._detector.server.times_found
        if self._exchange is None or self._input is None:
            self._exchange = self._detector.exchange()
            self._input = HostInput(self._exchange.input, self._detector.head.spec)
            self._known = -1
        while self._dropped:
            unregister(self._links[0], self._dropped[-1])
            self._dropped.pop()
        if self._exchange.region and self._known != found:
            self._exchange.region.register(self._links[0])
            self._known = found
        return self._input

    def _outputs(
        self, images: Sequence[Image | PreparedImage], source: HostInput
    ) -> tuple[dict[str, npt.NDArray[np.float32]], int]:
        """Raw outputs of all pictures, and the ns that preprocessing took while requests were under way."""
        exchange = self._exchange
        if exchange is None:
            raise DetectorError("the lane is closed")
        parts = list(self._parts(len(images)))
        while len(self._links) < min(len(parts), _MOST_IN_FLIGHT):
            self._links.append(self._detector.connection())
        answers: list[dict[str, npt.NDArray[np.float32]]] = []
        preprocess = 0
        for number, (first, count) in enumerate(parts):
            began = perf_counter_ns()
            for slot in range(first, min(first + count, len(images))):
                source.place(slot, on_host(images[slot]).bgr)
            preprocess += perf_counter_ns() - began
            link = self._links[number % len(self._links)]
            if number >= len(self._links):
                answers.append(exchange.receive(link, *parts[number - len(self._links)]))
            exchange.send(link, first, count)
        for number in range(len(answers), len(parts)):
            answers.append(exchange.receive(self._links[number % len(self._links)], *parts[number]))
        return outputs_of(answers), preprocess

    def _parts(self, pictures: int) -> Sequence[tuple[int, int]]:
        """The first picture and the number of pictures of each request."""
        fixed, limit = self._detector.model.fixed, self._detector.per_request
        if fixed:
            return [(0, fixed)]
        return [(first, min(limit, pictures - first)) for first in range(0, pictures, limit)]

    def _forget(self) -> None:
        """Drop the memory, into which the server may still write, and the connections, on which answers may come."""
        for link in self._links:
            link.close()
        del self._links[1:]
        self._input = None
        if self._exchange:
            if self._exchange.region:
                self._dropped.append(self._exchange.region.name)
            self._exchange.close()
            self._exchange = None
