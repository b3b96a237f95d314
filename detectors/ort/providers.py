"""onnxruntime's execution providers: how each is asked for, and what each node of a model got.

A provider comes as a plugin that is registered, or as a part of another build of onnxruntime.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import onnxruntime as ort

from detectors.ort import CPU_PROVIDER, Placement, first_line
from detectors.ort.unsigned import unsigned
from detectors.port import BackendUnavailableError, DetectorError, Options

if TYPE_CHECKING:
    from collections.abc import Sequence

_OTHER_BUILD = "pip uninstall -y onnxruntime && pip install"


@dataclass(frozen=True)
class _Kind:
    """Attributes:
    name: as onnxruntime has it.
    plugin: module of the plugin; empty if there is none.
    install: the command that brings it.
    elsewhere: what to do where the plugin has no device.
    """

    name: str
    plugin: str
    install: str
    elsewhere: str = ""


_KINDS = {
    "openvino": _Kind(
        "OpenVINOExecutionProvider",
        "onnxruntime_ep_openvino",
        "pip install onnxruntime-ep-openvino",
        f"the plugin takes Intel's alone. For another CPU: {_OTHER_BUILD} onnxruntime-openvino",
    ),
    "cuda": _Kind("CUDAExecutionProvider", "", f"{_OTHER_BUILD} onnxruntime-gpu"),
    "webgpu": _Kind("WebGpuExecutionProvider", "onnxruntime_ep_webgpu", "pip install onnxruntime-ep-webgpu"),
    "nv-tensorrt-rtx": _Kind(
        "NvTensorRTRTXExecutionProvider",
        "onnxruntime_ep_nv_tensorrt_rtx",
        "pip install onnxruntime-ep-nv-tensorrt-rtx-cu13",
    ),
}


def open_session(
    options: Options, provider: str, settings: ort.SessionOptions
) -> tuple[ort.InferenceSession, Placement]:
    """A session of another provider than the CPU's.

    Raises:
        BackendUnavailableError: the provider is not installed, or lacks the device.
        DetectorError: the provider takes no node, or fails on the model.
    """
    path, kind = str(options.path), _KINDS[provider]
    if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
        raise BackendUnavailableError(
            f"model.provider: {provider} needs onnxruntime 1.24 or later, and Python 3.11: this is {ort.__version__}"
        )
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    devices = _devices(provider, kind)
    given: list[tuple[str, dict[str, str]]] | None = None
    device = _chosen(provider, list(devices) or _devices_of_build(provider), options)
    if devices:
        settings.add_provider_for_devices([devices[device]], _settings(provider, device, options))
    else:
        own = {"device_type": device} if provider == "openvino" else {"device_id": str(options.device)}
        given = [(kind.name, {**own, **_settings(provider, device, options)})]
    content = unsigned(options.path) if provider == "openvino" else None
    try:
        session = ort.InferenceSession(content or path, settings, providers=given, enable_fallback=0)
    except Exception as error:  # onnxruntime's own exceptions have no public base class
        reason = str(error).strip().splitlines()[-1][:200]  # the first lines are places in the provider's code
        raise DetectorError(
            f"{path}: model.provider: {provider} does not run it: {reason}; leave model.provider out"
        ) from error
    return session, _placement(session, options, provider, device)


def _devices(provider: str, kind: _Kind) -> dict[str, ort.OrtEpDevice]:
    """A plugin's devices by name; none if the provider is a part of this build of onnxruntime.

    Raises:
        BackendUnavailableError: there is neither, or the plugin has no device here.
    """
    is_plugin = bool(kind.plugin) and find_spec(kind.plugin) is not None
    if is_plugin:
        _register(provider, kind.plugin)
    found = [device for device in ort.get_ep_devices() if device.ep_name == kind.name]
    if found or kind.name in ort.get_available_providers():
        kinds = [device.ep_metadata.get("ov_device") or device.device.type.name for device in found]
        return {
            name if kinds.count(name) == 1 else f"{name}.{kinds[:number].count(name)}": device
            for number, (name, device) in enumerate(zip(kinds, found))
        }
    if not is_plugin:
        raise BackendUnavailableError(f"model.provider: {provider} is not installed: {kind.install}")
    reason = f": {kind.elsewhere}" if kind.elsewhere else ""
    raise BackendUnavailableError(f"model.provider: {provider} is installed, and has no device on this machine{reason}")


@cache
def _register(provider: str, plugin: str) -> None:
    """Raises:
    BackendUnavailableError: the plugin cannot be loaded.
    """
    try:
        ort.register_execution_provider_library(provider, import_module(plugin).get_library_path())
    except Exception as error:  # of the plugin's package, or of onnxruntime
        raise BackendUnavailableError(f"model.provider: {provider} cannot be loaded: {first_line(error)}") from error


def _devices_of_build(provider: str) -> list[str]:
    """Names of devices of a provider that is a part of onnxruntime."""
    if provider != "openvino":
        return ["GPU"]
    from onnxruntime.capi import _pybind_state

    return list(_pybind_state.get_available_openvino_device_ids())


def _chosen(provider: str, names: Sequence[str], options: Options) -> str:
    """The name of the device; without one in `options` the CPU, or else that of the GPU's number.

    Raises:
        BackendUnavailableError: it is not there.
    """
    wanted = options.provider_device
    if wanted is None:
        wanted = "CPU" if "CPU" in names else names[options.device] if options.device < len(names) else "GPU"
    if wanted not in names:
        raise BackendUnavailableError(
            f"model.provider: {provider} has no device {wanted} on this machine: set model.provider_device to "
            f"{' or '.join(names)}"
        )
    return wanted


def _settings(provider: str, device: str, options: Options) -> dict[str, str]:
    """OpenVINO would compute in bfloat16 where the CPU can, which moves boxes by more than a pixel."""
    if provider != "openvino":
        return {}
    rows: dict[str, str | int] = {}
    if device == "CPU" or options.precision == "fp32":
        rows["INFERENCE_PRECISION_HINT"] = "f32"
    if device == "CPU" and options.threads:
        rows["INFERENCE_NUM_THREADS"] = options.threads
    return {"load_config": json.dumps({device: rows})} if rows else {}


def _placement(session: ort.InferenceSession, options: Options, provider: str, device: str) -> Placement:
    """Raises:
    DetectorError: the provider got no node, which onnxruntime does not take for an error.
    """
    names = {kind.name: name for name, kind in _KINDS.items()} | {CPU_PROVIDER: "cpu"}
    nodes: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        of = part.get_nodes()
        nodes[names.get(part.ep_name, part.ep_name)] += len(of)
        if part.ep_name != _KINDS[provider].name:
            left.update(node.op_type for node in of)
    if not nodes[provider]:
        raise DetectorError(
            f"{options.path}: model.provider: {provider} takes none of its {nodes.total()} nodes on {device}: leave "
            "model.provider out"
        )
    notes: tuple[str, ...] = ()
    if left:
        kinds = ", ".join(f"{count} {name}" for name, count in left.most_common(5))
        notes = (f"{left.total()} of {nodes.total()} nodes run on the CPU and not on {provider}: {kinds}",)
    return Placement(provider, device, tuple(nodes.most_common()), notes)
