"""Trains the demo model from nothing on drawn streets and writes demo.onnx (about ten minutes on two cores).

    pip install torch onnx onnxruntime      # beside an installed Lookout
    python models/train_demo.py             # writes models/demo.onnx

The network has the layout of YOLOv8 (channel-major output of cx, cy, w, h and class scores over strides 8, 16
and 32) at a tenth of its size. Assignment and loss follow TOOD's task alignment (Feng et al., 2021) and
complete IoU (Zheng et al., 2020).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from daemon.sources.scene import LABELS, Scene  # noqa: E402
from detectors.letterbox import InputSpec, fit, preprocess  # noqa: E402

SIZE = 320
STRIDES = (8, 16, 32)
SPEC = InputSpec(SIZE, SIZE)
SHAPES = ((640, 360), (640, 480), (480, 270), (320, 320), (960, 540))


class Conv(nn.Sequential):
    """Convolution, batch norm, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(inplace=True),
        )


class Block(nn.Module):
    """A small cross-stage block: half of the channels pass by, half go through two convolutions."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.split = Conv(inputs, outputs, 1)
        self.inner = nn.Sequential(Conv(half, half), Conv(half, half))
        self.join = Conv(outputs + half, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, worked = self.split(x).chunk(2, 1)
        return self.join(torch.cat((kept, worked, worked + self.inner(worked)), 1))


class Network(nn.Module):
    """Backbone, feature pyramid and one head per stride; forward gives distances and class logits."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), Block(32, 32))
        self.down3 = nn.Sequential(Conv(32, 48, 3, 2), Block(48, 48))
        self.down4 = nn.Sequential(Conv(48, 80, 3, 2), Block(80, 80))
        self.down5 = nn.Sequential(Conv(80, 112, 3, 2), Block(112, 112))
        self.up4 = Block(112 + 80, 80)
        self.up3 = Block(80 + 48, 48)
        self.heads = nn.ModuleList(
            nn.Sequential(Conv(width, 48), Conv(48, 48), nn.Conv2d(48, 4 + classes, 1)) for width in (48, 80, 112)
        )
        for head in self.heads:
            nn.init.constant_(head[-1].bias[4:], -4.0)  # start from "nothing here"

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """images (b, 3, SIZE, SIZE) to boxes (b, n, 4) xyxy in pixels and class logits (b, n, classes)."""
        p3 = self.down3(self.stem(images))
        p4 = self.down4(p3)
        p5 = self.down5(p4)
        n4 = self.up4(torch.cat((functional.interpolate(p5, scale_factor=2.0), p4), 1))
        n3 = self.up3(torch.cat((functional.interpolate(n4, scale_factor=2.0), p3), 1))
        raw = torch.cat([head(level).flatten(2) for head, level in zip(self.heads, (n3, n4, p5))], 2).transpose(1, 2)
        distance = functional.softplus(raw[..., :4]) * _strides(images)[:, None] * 2
        centre = _centres(images)
        return torch.cat((centre - distance[..., :2], centre + distance[..., 2:]), -1), raw[..., 4:]


class Exported(nn.Module):
    """The network as YOLOv8 exports it: (b, 4 + classes, n), boxes as cx, cy, w, h in pixels, scores 0-1."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        boxes, logits = self.network(images)
        low, high = boxes[..., :2], boxes[..., 2:]
        return torch.cat(((low + high) / 2, high - low, logits.sigmoid()), -1).transpose(1, 2)


def _centres(like: Tensor) -> Tensor:
    grids = []
    for stride in STRIDES:
        axis = (torch.arange(SIZE // stride, dtype=like.dtype) + 0.5) * stride
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        grids.append(torch.stack((x.flatten(), y.flatten()), 1))
    return torch.cat(grids)


def _strides(like: Tensor) -> Tensor:
    return torch.cat([torch.full(((SIZE // s) ** 2,), float(s), dtype=like.dtype) for s in STRIDES])


def complete_iou(a: Tensor, b: Tensor, penalties: bool = True) -> Tensor:
    """IoU of boxes xyxy (..., 4), with CIoU's centre and shape penalties."""
    inter = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    size_a, size_b = a[..., 2:] - a[..., :2], b[..., 2:] - b[..., :2]
    iou = inter / (size_a.prod(-1) + size_b.prod(-1) - inter + 1e-7)
    if not penalties:
        return iou
    hull = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    offset = ((a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) ** 2).sum(-1) / 4
    angle = torch.atan(size_a[..., 0] / (size_a[..., 1] + 1e-7)) - torch.atan(size_b[..., 0] / (size_b[..., 1] + 1e-7))
    v = (4 / torch.pi**2) * angle**2
    alpha = v / (v - iou + 1 + 1e-7)
    return iou - offset / ((hull**2).sum(-1) + 1e-7) - alpha.detach() * v


def assign(boxes: Tensor, scores: Tensor, truth: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Task-aligned assignment for one picture: chosen anchors, the truth of each, and its soft score."""
    centres = _centres(boxes)
    inside = ((centres[None] > truth[:, None, :2]) & (centres[None] < truth[:, None, 2:])).all(-1)
    iou = complete_iou(truth[:, None], boxes[None], penalties=False).clamp(min=0)
    align = scores[:, labels].t() ** 0.5 * iou**6 * inside
    top = align.topk(10, dim=1)
    chosen = torch.zeros_like(align).scatter_(1, top.indices, 1.0) * (align > 0)
    align, iou = align * chosen, iou * chosen
    soft = align / (align.amax(1, keepdim=True) + 1e-9) * iou.amax(1, keepdim=True)
    best = align.argmax(0)
    anchors = chosen.any(0).nonzero().squeeze(1)
    return anchors, best[anchors], soft[best[anchors], anchors]


def loss_of(boxes: Tensor, logits: Tensor, truths: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Sum of the classification and box losses over a batch, per unit of soft score."""
    target = torch.zeros_like(logits)
    box_loss, weight = logits.sum() * 0, 1e-3
    for index, (truth, labels) in enumerate(truths):
        with torch.no_grad():
            anchors, which, soft = assign(boxes[index], logits[index].sigmoid(), truth, labels)
        target[index, anchors, labels[which]] = soft
        box_loss = box_loss + ((1 - complete_iou(boxes[index, anchors], truth[which])) * soft).sum()
        weight += float(soft.sum())
    class_loss = functional.binary_cross_entropy_with_logits(logits, target, reduction="sum")
    return (class_loss * 0.5 + box_loss * 5.0) / weight


def sample(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One random frame of a random street as (input (3, SIZE, SIZE), boxes (n, 4) in input pixels, labels)."""
    width, height = SHAPES[int(rng.integers(len(SHAPES)))]
    scene = Scene(width, height, seed=int(rng.integers(2**31)), objects=int(rng.integers(1, 8)))
    number = int(rng.integers(2000))
    image = scene.draw(number)
    if rng.random() < 0.3:
        image = cv2.GaussianBlur(image, (3, 3), 0)
    if rng.random() < 0.3:  # what a video codec leaves behind
        _, coded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(40, 90))])
        image = cv2.imdecode(coded, cv2.IMREAD_COLOR)
    box = fit(width, height, SPEC)
    truth = scene.truth(number)
    corners = np.array([known.xyxy for known in truth], dtype=np.float32)
    scale = np.array([box.width / width, box.height / height] * 2, dtype=np.float32)
    corners = corners * scale + np.array([box.left, box.top] * 2, dtype=np.float32)
    return preprocess(image, SPEC), corners, np.array([LABELS.index(known.label) for known in truth])


def train(steps: int, batch: int, seed: int) -> Network:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = Network(len(LABELS)).train()
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
    )
    average.use_buffers = True
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    started = time.monotonic()
    for step in range(steps):
        rows = [sample(rng) for _ in range(batch)]
        images = torch.from_numpy(np.stack([row[0] for row in rows]))
        truths = [(torch.from_numpy(row[1]), torch.from_numpy(row[2])) for row in rows]
        loss = loss_of(*network(images), truths)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        average.update_parameters(network)
        if step % 25 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {loss.item():6.3f}  {time.monotonic() - started:5.0f} s", flush=True)
    return average.module.eval()


def export(network: Network, path: Path) -> None:
    """ONNX, opset 17, dynamic batch, labels and stride in the metadata under ultralytics' names."""
    torch.onnx.export(
        Exported(network).eval(),
        (torch.zeros(1, 3, SIZE, SIZE),),
        str(path),
        input_names=["images"],
        output_names=["output0"],
        dynamic_axes={"images": {0: "batch"}, "output0": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    model = onnx.load(path)
    names = dict(enumerate(LABELS))
    onnx.helper.set_model_props(
        model,
        {
            "task": "detect",
            "stride": str(max(STRIDES)),
            "names": str(names),
            "author": "Lookout",
            "licence": "Apache-2.0",
        },
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "demo.onnx")
    args = parser.parse_args()
    network = train(args.steps, args.batch, args.seed)
    export(network, args.out)
    parameters = sum(weight.numel() for weight in network.parameters())
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB, {parameters} parameters")


if __name__ == "__main__":
    main()
