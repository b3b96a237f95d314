"""The parser and builder of TensorRT RTX, without a GPU: as a script it reads jobs and prints their results, as JSON.

usage: strong_parser.py FOLDER < JOBS      (the unpacked wheels of tensorrt_rtx; jobs are rows of `Job`)

They are of the kind that TensorRT 10 and 11 are: a network takes each tensor's type from the graph.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import onnx

from detectors.port import DetectorError
from detectors.trt.reading import read_model, refusal_of
from tests.support.daemon import ROOT
from tests.support.needs import RTX

_SIDE = 128  # pixels, of inputs whose size is free


class Job(NamedTuple):
    """A file to read.

    Attributes:
        in_graph: whether it is converted to FP16 first.
        card: compute capability to build for, such as SM86; empty for none.
        unchecked: whether Lookout's own check is left out.
    """

    path: str
    in_graph: bool = False
    card: str = ""
    unchecked: bool = False


class Result(NamedTuple):
    """Why it is refused, or how large the engine is; 0 if it was not asked for."""

    refusal: str = ""
    size: int = 0


def results(jobs: Sequence[Job]) -> dict[Job, Result]:
    """All in one process, because the libraries take long to load."""
    command = [sys.executable, "-m", "tests.support.strong_parser", str(RTX)]
    done = subprocess.run(command, input=json.dumps(jobs), cwd=ROOT, check=True, capture_output=True, text=True)
    return dict(zip(jobs, (Result(*row) for row in json.loads(done.stdout)), strict=True))


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    trt = import_module("tensorrt_rtx_bindings")  # which loads the libraries beside it
    logger, errors = _logger(trt)
    maker = trt.Builder(logger)
    rows = []
    for job in (Job(*row) for row in json.load(sys.stdin)):
        errors.clear()
        try:
            rows.append(_result(trt, maker, logger, job, errors))
        except DetectorError as error:
            rows.append(Result(str(error)))
    sys.stdout.write(json.dumps(rows))


def _result(trt: Any, maker: Any, logger: Any, job: Job, errors: list[str]) -> Result:
    network = maker.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if job.unchecked:
        model = onnx.load(job.path)
        refusal = "" if parser.parse(model.SerializeToString()) else refusal_of(parser, model.graph)
    else:
        refusal = read_model(parser, job.path, in_graph=job.in_graph)
    if refusal:
        return Result(refusal)
    if not job.card:
        return Result()
    config = maker.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, job.card), 0)
    profile = maker.create_optimization_profile()
    for number in range(network.num_inputs):
        entry = network.get_input(number)
        side = [_SIDE if value < 0 else value for value in tuple(entry.shape)[1:]]
        profile.set_shape(entry.name, *((batch, *side) for batch in _batches(entry.shape[0])))
    config.add_optimization_profile(profile)
    plan = maker.build_serialized_network(network, config)
    return Result(size=len(bytes(plan))) if plan is not None else Result(" ".join(errors))


def _batches(given: int) -> tuple[int, int, int]:
    """The smallest, the usual and the largest."""
    return (1, 2, 2) if given < 0 else (given,) * 3


def _logger(trt: Any) -> tuple[Any, list[str]]:
    """A logger, and the list of errors that it fills."""
    errors: list[str] = []

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                errors.append(text)

    return Logger(), errors


if __name__ == "__main__":
    main()
