"""onnxruntime: the CPU backend, and other accelerators through its execution providers."""

from __future__ import annotations

from dataclasses import dataclass

CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class Placement:
    """Where a session runs.

    Attributes:
        provider: as in `Options.provider`.
        device: of the provider, such as "CPU" or "GPU.1".
        nodes: how many nodes each provider got; none of the CPU provider alone.
        notes: for `ModelInfo.notes`.
    """

    provider: str = "cpu"
    device: str = "CPU"
    nodes: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()

    def precision(self, own: str, wanted: str) -> str | None:
        """The arithmetic for a file's own precision, None if the wanted one is not to be had.

        OpenVINO computes in halves on all devices but the CPU, and on these converts.
        """
        converts = self.provider == "openvino" and self.device != "CPU" and own in ("fp32", "fp16")
        if wanted == "auto":
            return "fp16" if converts else own
        return wanted if wanted == own or (converts and wanted == "fp16") else None


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]
