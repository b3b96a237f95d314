"""`python -m tests.kernel_mutants [NAME ..]`: defects put into the kernels, one at a time, each of which the checks of
tests/support/kernels.py must find. Ends with 1, and names them, if some are not found."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np

from detectors.letterbox import IMAGENET, InputSpec
from detectors.trt.kernels import FOLDER
from tests.support.daemon import ROOT
from tests.support.driver import compiled
from tests.support.kernels import (
    CASES,
    KERNELS_ON_CPU,
    ONES,
    CpuRunner,
    check_bgr,
    check_implausible,
    check_nv12,
    check_postprocess,
    check_regions,
    check_shrunk_nv12,
    check_small_nv12,
)

_LIMIT_S = 120
_PRE, _ROWS, _YOLO, _QUERIES, _TASKS = "preprocess.cu", "rows.cuh", "yolo.cuh", "queries.cu", "tasks.cu"
# Name: the file, what is there, and what takes its place.
MUTANTS: dict[str, tuple[str, str, str]] = {
    "chroma half a pixel off across": (_PRE, "{uv_x * 0.5f,", "{(uv_x + 0.5f) * 0.5f - 0.5f,"),
    "chroma on its upper row": (_PRE, "(uv_y + 0.5f) * 0.5f - 0.5f,", "uv_y * 0.5f,"),
    "chroma a row off": (_PRE, "(uv_y + 0.5f) * 0.5f - 0.5f", "(uv_y + 0.5f) * 0.5f + 0.5f"),
    "chroma of the nearest": (_PRE, "{uv_x * 0.5f,", "{floorf(uv_x * 0.5f + 0.5f),"),
    "cells of chroma as large as of luma": (_PRE, "(across + 1) / 2, (down + 1) / 2}", "across, down}"),
    "cells of chroma rounded down": (_PRE, "(across + 1) / 2, (down + 1) / 2}", "(across + 2) / 4, (down + 2) / 4}"),
    "odd width cuts chroma": (_PRE, "(width + p.odd_x + 1) / 2,", "(width + p.odd_x) / 2,"),
    "odd height cuts chroma": (_PRE, "(height + p.odd_y + 1) / 2}", "(height + p.odd_y) / 2}"),
    "an odd column is even": (_PRE, "at.x + p.odd_x", "at.x"),
    "an odd row is even": (_PRE, "at.y + p.odd_y", "at.y"),
    "u and v exchanged": (_PRE, "u = uv[0] - 128.0f, v = uv[1]", "u = uv[1] - 128.0f, v = uv[0]"),
    "a pitch that is the width": (_PRE, "{p.plane0, pitch, width,", "{p.plane0, (unsigned int)width, width,"),
    "beyond the last cell": (_PRE, "(float)(cells - 1)", "(float)cells"),
    "before the first cell": (_PRE, "clamp(centre, 0.0f,", "clamp(centre, -1.0f,"),
    "weights exchanged": (_PRE, "fmaf(b - a, weight, a)", "fmaf(a - b, weight, b)"),
    "cells of two are one": (_PRE, "(plane, place, 2, 2, values)", "(plane, place, 1, 1, values)"),
    "cells of one are two": (_PRE, "(plane, place, 1, 1, values)", "(plane, place, 2, 2, values)"),
    "cells of three are two": (_PRE, "(plane, place, 3, 3, values)", "(plane, place, 2, 2, values)"),
    "other cells are one": (_PRE, "(plane, place, place.across, place.down, values)",
                            "(plane, place, 1, 1, values)"),
    "a quarter turn the other way": (_PRE, "if (p.turns == 1) return {y, right};",
                                     "if (p.turns == 3) return {y, right};"),
    "half a turn mirrors": (_PRE, "return {right, bottom};", "return {right, y};"),
    "black is 0": (_PRE, "(luma - 16.0f)", "luma"),
    "luma stretched like chroma": (_PRE, "255.0f / 219.0f", "255.0f / 224.0f"),
    "chroma stretched like luma": (_PRE, "v *= 255.0f / 224.0f", "v *= 255.0f / 219.0f"),
    "ranges exchanged": (_PRE, "if (!p.full_range)", "if (p.full_range)"),
    "matrices exchanged": (_PRE, "kr = p.bt709 ?", "kr = !p.bt709 ?"),
    "blue of the other matrix": (_PRE, "kb = p.bt709 ?", "kb = !p.bt709 ?"),
    "green without red": (_PRE, "+ 2.0f * kr * (1.0f - kr) * v", ""),
    "colours are not clamped": (_PRE, "clamp(green, 0.0f, 255.0f)", "green"),
    "another pad": (_PRE, "return {pad, pad, pad};", "return {pad, pad, pad + 1.0f};"),
    "no bias": (_PRE, "colours.scale[1], colours.bias[1]", "colours.scale[1], 0.0f"),
    "the bias of another channel": (_PRE, "colours.bias[2]", "colours.bias[0]"),
    "the scale of another channel": (_PRE, "colours.scale[2]", "colours.scale[1]"),
    "pixels by their corners": (_PRE, "(inner_x + 0.5f) * p.scale_x - 0.5f", "inner_x * p.scale_x"),
    "the first column of a cell": (_PRE, "left[channel] += samples", "if (i == 0) left[channel] += samples"),
    "the first row of a cell": (_PRE, "left[channel] += samples", "if (k == 0) left[channel] += samples"),
    "one cell across": (_PRE, "(x.low + 1) * across", "x.low * across"),
    "one cell down": (_PRE, "(y.low + j)", "y.low"),
    "cells beyond the last column": (_PRE, "least((x.low + 1) * across + i, plane.width - 1)",
                                     "((x.low + 1) * across + i)"),
    "cells beyond the last row": (_PRE, "least((y.low + j) * down + k, plane.height - 1)", "((y.low + j) * down + k)"),
    "no partial cell across": (_PRE, "(plane.width + across - 1) / across", "plane.width / across"),
    "no partial cell down": (_PRE, "(plane.height + down - 1) / down", "plane.height / down"),
    "places are moved to far cells": (_PRE, "1.0f / 4096.0f", "0.25f"),
    "the upper row alone": (_PRE, "if (j == 1 && y.weight == 0.0f) break;", "if (j == 1) break;"),
    "the upper row alone, by the weight across": (_PRE, "j == 1 && y.weight", "j == 1 && x.weight"),
    "cells of no weight alone": (_PRE, "if (x.weight != 0.0f)", "if (x.weight == 0.0f)"),
    "cells by the weight down": (_PRE, "if (x.weight != 0.0f)", "if (y.weight != 0.0f)"),
    "cells by their corners": (_PRE, "(place.x + 0.5f) * part_x - 0.5f", "place.x * part_x"),
    "a mean of half": (_PRE, "(part_x * part_y)", "(part_x * part_x)"),
    "as many across as down": (_PRE, "place.across, place.down, values", "place.down, place.down, values"),
    "cells that are not turned": (_PRE, "across = lies ? upright.down : upright.across", "across = upright.across"),
    "square cells": (_PRE, "p.cell_x, p.cell_y}", "p.cell_x, p.cell_x}"),
    "planes in the other order": (_PRE, "rgb ? colour.red : colour.blue", "rgb ? colour.blue : colour.red"),
    "the next picture's plane": (_PRE, "blockIdx.z * 3 * plane", "blockIdx.z * 2 * plane"),
    "bytes are cut off": (_PRE, "(unsigned char)(colour.green + 0.5f)", "(unsigned char)colour.green"),
    "rows of four bytes": (_PRE, "rows + 3 * (", "rows + 4 * ("),
    "beyond capacity": (_ROWS, "if (slot >= limits.capacity) return;", ""),
    "no objectness": (_ROWS, "scores[c * step] * objectness;\n        if (score != score)",
                      "scores[c * step];\n        if (score != score)"),
    "the threshold itself is below": (_ROWS, "if (score >= limits.confidence) take(c, score);",
                                      "if (score > limits.confidence) take(c, score);"),
    "the best must be above": (_ROWS, "!(most >= limits.confidence)", "!(most > limits.confidence)"),
    "the last of equal classes": (_ROWS, "if (score > most) {", "if (score >= most) {"),
    "what is no number is ignored": (_ROWS, "if (score != score) return;", "if (score != score) continue;"),
    "a confidence that is no number": (_YOLO, "if (!(r[4] >= limits.confidence)) return;\n        take({r[0]",
                                       "if (r[4] < limits.confidence) return;\n        take({r[0]"),
    "a class that is no number": (_ROWS, "fabsf(class_id) < 16777216.0f ? (int)class_id : -1", "(int)class_id"),
    "order without the class": (_YOLO, "(unsigned int)row * (unsigned int)o.classes + (unsigned int)c",
                                "(unsigned int)row"),
    "the last of equals first": (_ROWS, "(0xffffffffu - order)", "order"),
    "two zeros": (_ROWS, "__float_as_uint(score + 0.0f)", "__float_as_uint(score)"),
    "sizes without exp": (_YOLO, "expf(r[2]) * stride", "r[2] * stride"),
    "x and y exchanged": (_YOLO, "x = (row - first) % across, y = (row - first) / across",
                          "y = (row - first) % across, x = (row - first) / across"),
    "the last stride": (_YOLO, "stride *= 2;", "stride = stride < 32 ? stride * 2 : 32;"),
    "a corner is a centre": (_ROWS, "cy + h * 0.5f, score", "cy + h, score"),
    "overlap is enough": (_ROWS, "inter > iou * (areas - inter)", "inter >= iou * (areas - inter)"),
    "the union counts twice": (_ROWS, "iou * (areas - inter)", "iou * areas"),
    "classes suppress each other": (_ROWS, "a.class_id == b.class_id && inter", "inter"),
    "not clipped": (_ROWS, "fminf(fmaxf((value - shift) * scale, 0.0f), limit)",
                    "fmaxf((value - shift) * scale, 0.0f)"),
    "clipped to what it is not": (_ROWS, "value != value ? value : fminf", "fminf"),
    "scaled before it is moved": (_ROWS, "(value - shift) * scale", "value * scale - shift"),
    "suppresses where it may not": (_ROWS, "if (Head::rotated || !limits.suppress) continue;", ""),
    "one box more": (_ROWS, "found < limits.max_detections", "found <= limits.max_detections"),
    "looks at all": (_ROWS, "const int most = count < limits.most ? count : limits.most;", "const int most = count;"),
    "boxes of the first picture": (_ROWS, "((long long)kept.batch * limits.max_detections + kept.number) * 6",
                                   "(long long)kept.number * 6"),
    "the dead of the last batch": (_ROWS, "        dead[i] = 0;\n", ""),
    "keys of the last batch": (_ROWS, "        if (i >= count) keys[i] = 0;\n", ""),
    "sorted the other way": (_ROWS, "const bool falling = (i & size) == 0;", "const bool falling = (i & size) != 0;"),
    "what is left out is not counted": (_ROWS, "all > limits.most ? all - limits.most : 0", "0"),
    "corners the wrong way across": (_ROWS, "return width >= 0.0f && height", "return height"),
    "corners the wrong way down": (_ROWS, "height >= 0.0f && width + height", "width + height"),
    "a box of no number": (_ROWS, "width >= 0.0f && height >= 0.0f && width + height <= 3.402823466e38f && ",
                           "!(width < 0.0f) && !(height < 0.0f) && "),
    "sure beyond one": (_ROWS, "score >= 0.0f && score <= 1.0f", "score >= 0.0f"),
    "a class without a label": (_ROWS, "class_id >= 0 && class_id < labels", "class_id >= 0"),
    "a class below the first": (_ROWS, "class_id >= 0 && class_id < labels", "class_id < labels"),
    "nothing is marked": (_ROWS, "results.implausible[batch] = implausible", "results.implausible[batch] = 0"),
    "the first of too many": (_ROWS, "if (all > limits.capacity) keep_strongest<Head>(o, limits, batch);",
                              "if (all > limits.capacity) o.counts[batch] = limits.capacity;"),
    "one too few of the strongest": (_ROWS, ">= last) keep<", "> last) keep<"),
    "a histogram of the last byte": (_ROWS, "histogram[i] = 0;", "histogram[i] += 0;"),
    "no barrier between rounds": (_ROWS, "__syncthreads();  // what the last round suppressed is seen by all\n", ""),
    "no barrier while sorting": (_ROWS, "            __syncthreads();\n            for (int i = threadIdx.x; i < n;",
                                 "            for (int i = threadIdx.x; i < n;"),
    "logits like scores": (_QUERIES, "return bits & 0x80000000u ? ~bits : bits | 0x80000000u;", "return bits;"),
    "two zeros of logits": (_QUERIES, "__float_as_uint(logit + 0.0f)", "__float_as_uint(logit)"),
    "logits are scores": (_QUERIES, "(float)(1.0 / (1.0 + exp(-(double)kept.box.score)))", "kept.box.score"),
    "logits in single precision": (_QUERIES, "(1.0 / (1.0 + exp(-(double)kept.box.score)))",
                                   "((float)(1.0f + tanhf(kept.box.score * 0.5f)) * 0.5f)"),
    "a logit at the threshold": (_QUERIES, "if (logits[c] >= limits.confidence)", "if (logits[c] > limits.confidence)"),
    "logits that are no numbers": (_QUERIES, "if (logits[c] >= limits.confidence)",
                                   "if (!(logits[c] < limits.confidence))"),
    "a class a query": (_QUERIES, "logits = o.values + query * o.classes", "logits = o.values + query"),
    "more boxes than queries are left out": (_QUERIES, "all < limits.most ? all : limits.most", "all"),
    "queries left out are not counted": (_QUERIES, "return beyond(limits, all); }", "return 0; }"),
    "a choice of the model left out": (_QUERIES, "left_out(const Limits&, int) { return 0; }",
                                       "left_out(const Limits& limits, int all) { return beyond(limits, all); }"),
    "shares of the width down": (_QUERIES, "c.y1 * o.height", "c.y1 * o.width"),
    "shares are pixels": (_QUERIES, "c.x2 * o.width", "c.x2"),
    "boxes of another query": (_QUERIES, "shared(o, o.boxes + query * 4,", "shared(o, o.boxes + row * 4,"),
    "a choice at the threshold": (_QUERIES, "if (r[4] >= limits.confidence) take(shared",
                                  "if (r[4] > limits.confidence) take(shared"),
    "decoded at the threshold": (_QUERIES, "if (score >= limits.confidence)", "if (score > limits.confidence)"),
    "half of a class id": (_QUERIES, "if (o.label_bytes == 8) return", "if (false) return"),
    "the row is its class": (_ROWS, "(0xffffffffu - (unsigned int)key) / (unsigned int)o.classes",
                             "(0xffffffffu - (unsigned int)key)"),
    "extras of the first row": (_YOLO, "of(o, batch, row)[5 + o.classes + number]",
                                "of(o, batch, 0)[5 + o.classes + number]"),
    "extras among the classes": (_YOLO, "(long long)(4 + o.classes + number) * o.rows",
                                 "(long long)(4 + number) * o.rows"),
    "rows without extras": (_YOLO, "(6 + o.extras)", "6"),
    "points across and down exchanged": (_TASKS, "within(value(1), place.top, place.scale_y, place.height)",
                                         "within(value(1), place.left, place.scale_x, place.width)"),
    "unsure points": (_TASKS, "values == 3 ? value(2) : 1.0f", "values == 3 ? value(2) : 0.0f"),
    "points of a pair": (_TASKS, "i * values + number", "i * 2 + number"),
    "points of another box": (_TASKS, "results.extras + at * points * 3",
                              "results.extras + (long long)kept.number * points * 3"),
    "variances exchanged": (_TASKS, "a * s * s + b * c * c, (a - b)", "a * c * c + b * s * s, (a - b)"),
    "a covariance of the wrong sign": (_TASKS, "(a - b) * c * s}", "(b - a) * c * s}"),
    "turned the other way": (_TASKS, "c * -x * y /", "c * x * y /"),
    "no distance": (_TASKS, "at_least(near + turned + shape, eps)", "at_least(turned + shape, eps)"),
    "no shape": (_TASKS, "at_least(near + turned + shape, eps)", "at_least(near + turned, eps)"),
    "far apart too soon": (_TASKS, "* 4.04 / 12.0)", "* 1.0 / 12.0)"),
    "small boxes are far apart": (_TASKS, "return large && x * x", "return x * x"),
    "only kept boxes remove others": (_TASKS, "for (int i = 0; i < j; ++i) {",
                                      "for (int i = 0; i < j; ++i) { if (o.dead[base + i]) continue;"),
    "weaker boxes remove stronger ones": (_TASKS, "for (int i = 0; i < j; ++i) {",
                                          "for (int i = 0; i < most; ++i) { if (i == j) continue;"),
    "boxes at an angle of all classes": (_TASKS, "stronger.class_id != own.class_id || ", ""),
    "the same angle twice": (_TASKS, "angle(o, batch, row_of(o, o.keys[base + i]))", "angle(o, batch, i)"),
    "no barrier after shapes": (_TASKS, "        __syncthreads();  // all shapes are there\n", ""),
    "NMS of a model that has done it": (_TASKS, "        if (!limits.suppress) return;\n", ""),
    "upright NMS too": (_ROWS, "if (Head::rotated || !limits.suppress) continue;", "if (!limits.suppress) continue;"),
    "a negative width": (_TASKS, "w = fabsf(kept.box.x2 * place.scale_x)", "w = kept.box.x2 * place.scale_x"),
    "a hull of the width": (_TASKS, "(w * s + h * c) * 0.5f", "(w * c + h * s) * 0.5f"),
    "a hull beyond the picture": (_TASKS, "within(x + across, 0.0f, 1.0f, place.width)", "(x + across)"),
    "sides are not exchanged": (_TASKS, "out[2] = swap ? h : w;", "out[2] = w;"),
    "angles of half a turn": (_TASKS, "modulo(modulo(radians, half_turn), quarter)", "modulo(radians, half_turn)"),
    "negative angles": (_TASKS, "return rest < 0.0f ? rest + by : rest;", "return rest;"),
    "the wrong coefficients": (_TASKS, "out[4 + i] = Layout::extra(o, kept.batch, kept.row, i);",
                               "out[4 + i] = Layout::extra(o, kept.batch, kept.row, 0);"),
    "prototypes of the first picture": (_TASKS, "o.protos + batch * planes", "o.protos"),
    "nothing is a mask, too": (_TASKS, "instance.at(x, y) > 0.0f) bits", "instance.at(x, y) >= 0.0f) bits"),
    "bits from the lowest": (_TASKS, "0x80u >> (x - first)", "1u << (x - first)"),
    "bits beyond the last column": (_TASKS, "x < first + 8 && x < o.proto_width", "x < first + 8"),
    "masks one column wider": (_TASKS, "x < right && y >= top", "x <= right && y >= top"),
    "masks beyond the box": (_TASKS, "y >= top && y < bottom && ", ""),
    "empty masks are full": (_TASKS, "results.full[at] = full;", "results.full[at] = 1;"),
    "a mask in its middle alone": (_TASKS, "begin < pixels && !*found", "begin < 1 && !*found"),
    "a mask without rows between": (_TASKS, "instance.at(x.low, y.high) * y.weight",
                                    "instance.at(x.low, y.low) * y.weight"),
    "a mask without columns between": (_TASKS, "right * x.weight > 0.0f", "left * x.weight > 0.0f"),
    "masks of the last batch": (_ROWS, "        o.counts[batch] = found;\n", ""),
    "no barrier before counting": (_ROWS, "histogram[i] = 0;\n        __syncthreads();", "histogram[i] = 0;"),
}  # fmt: skip


def check(library: Path) -> None:
    """Raises:
    AssertionError: something is wrong.
    """
    runner = CpuRunner(library)
    for spec, half in product(
        (
            InputSpec(96, 96),
            InputSpec(64, 96, fit="corner", rgb=False, scale=ONES),
            InputSpec(64, 96, fit="cover", **IMAGENET),
        ),
        (False, True),
    ):
        assert check_bgr(runner, spec, half=half) < (0.15 if half else 0.05)
    for bt709, full_range, turns in product((False, True), (False, True), range(4)):
        assert check_nv12(runner, bt709=bt709, full_range=full_range, turns=turns) < 0.05
    assert check_small_nv12(runner) < 0.5
    assert max(check_regions(runner, turns) for turns in range(4)) < 0.05
    assert max(check_shrunk_nv12(runner, turns) for turns in range(4)) < 0.05
    check_implausible(runner)
    for head, (wanted, of) in CASES:
        assert min(check_postprocess(runner, head, wanted, seed, **of) for seed in range(2)) > 0


def mutated(name: str, folder: Path) -> Path:
    """The library with one defect."""
    file, old, new = MUTANTS[name]
    for source in FOLDER.glob("*.cu*"):
        text = source.read_text()
        if source.name == file:
            assert old in text, f"{name}: {file} has nothing like {old!r}"
            text = text.replace(old, new, 1)
        (folder / source.name).write_text(text)
    library = folder / "mutant.so"
    flags = ("-O1", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", f"-I{folder}", f"-I{KERNELS_ON_CPU.parent}")
    subprocess.run(["g++", *flags, "-o", str(library), str(KERNELS_ON_CPU)], check=True)
    return library


def is_found(name: str) -> bool:
    """In a process of its own, which it may end, or not let go of."""
    with tempfile.TemporaryDirectory() as folder:
        library = mutated(name, Path(folder))
        command = [sys.executable, "-m", __spec__.name, "--check", str(library)]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0


def main(names: list[str]) -> int:
    if names[:1] == ["--check"]:
        with np.errstate(all="ignore"):
            check(Path(names[1]))
        return 0
    check(compiled(KERNELS_ON_CPU))
    tried = names or [*MUTANTS]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(tried, pool.map(is_found, tried)))
    alive = [name for name, caught in found.items() if not caught]
    sys.stdout.write("".join(f"ALIVE: {name}\n" for name in alive))
    sys.stdout.write(f"{len(tried) - len(alive)} of {len(tried)} mutants are found\n")
    return int(bool(alive))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
