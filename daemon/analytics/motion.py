"""A Kalman filter of boxes with constant velocity, for many tracks at once.

Process and measurement noise of each dimension are independent. So the filter of eight states is exactly four filters
of two states (position and velocity of centre x, centre y, width and height), and no matrix is inverted. Only
additions, multiplications and divisions of single elements are used: a track's numbers do not depend on other tracks.

A track is a column of float64. Rows 0-3 are positions, 4-7 velocities a second, 8-11 variances of positions, 12-15
covariances, 16-19 variances of velocities.

The noise is relative to the size of the box, and white in continuous time, so two short steps add the same noise as one
long step. Measured boxes are off by 1/20 of the size, as in ByteTrack. Almost all of the process noise is acceleration,
of a walking person rather than of a ball: so some wrong boxes do not turn a track that is then hidden.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

ROWS = 20
_POSITION, _VELOCITY = slice(0, 4), slice(4, 8)
_P00, _P01, _P11 = slice(8, 12), slice(12, 16), slice(16, 20)
MEASUREMENT_NOISE = (1 / 20) ** 2  # variance of a measured box, in sizes squared
POSITION_NOISE = 0.002  # sizes squared a second
VELOCITY_NOISE = 1.5  # sizes squared a second cubed
FIRST_POSITION = (2 / 20) ** 2
FIRST_VELOCITY = (10 * 30 / 160) ** 2
MIN_SIZE = 1.0  # pixels, of the noise
MAX_RESIZE_S = 0.2  # of a step, in which the size goes on to change


def measured(xyxy: npt.NDArray[np.float32]) -> Array:
    """Centre x, centre y, width and height, (4, n), of corners (n, 4)."""
    left, top, right, bottom = xyxy.T.astype(np.float64)
    return np.stack(((left + right) * 0.5, (top + bottom) * 0.5, right - left, bottom - top))


def corners(positions: Array) -> Array:
    """Left, top, right and bottom, (4, n), of the first four rows of tracks."""
    half = np.maximum(positions[2:4], 0.0) * 0.5
    return np.concatenate((positions[:2] - half, positions[:2] + half))


def begin(boxes: Array) -> Array:
    """New tracks, (20, n), from boxes (4, n) of `measured`."""
    tracks = np.zeros((ROWS, boxes.shape[1]))
    squared = _squared_sizes(boxes)
    tracks[_POSITION] = boxes
    tracks[_P00] = FIRST_POSITION * squared
    tracks[_P11] = FIRST_VELOCITY * squared
    return tracks


def predict(tracks: Array, seconds: Array, lost: npt.NDArray[np.bool_]) -> None:
    """Move tracks forward in place.

    Args:
        seconds: (n,) source time.
        lost: (n,) tracks that were not in the last analysed frame; their size stays as it is.
    """
    tracks[6:8] *= ~lost
    squared = _squared_sizes(tracks)
    noise = VELOCITY_NOISE * squared * seconds
    tracks[:2] += tracks[4:6] * seconds
    tracks[2:4] += tracks[6:8] * np.minimum(seconds, MAX_RESIZE_S)
    tracks[_P00] += seconds * (2.0 * tracks[_P01] + seconds * (tracks[_P11] + noise * (1 / 3)))
    tracks[_P00] += POSITION_NOISE * squared * seconds
    tracks[_P01] += seconds * (tracks[_P11] + noise * 0.5)
    tracks[_P11] += noise


def correct(tracks: Array, boxes: Array) -> Array:
    """Tracks (20, n) after each has been measured as one of the boxes (4, n)."""
    p00, p01, p11 = tracks[_P00], tracks[_P01], tracks[_P11]
    total = p00 + MEASUREMENT_NOISE * _squared_sizes(tracks)
    gain, velocity_gain = p00 / total, p01 / total
    error = boxes - tracks[_POSITION]
    return np.concatenate(
        (
            tracks[_POSITION] + gain * error,
            tracks[_VELOCITY] + velocity_gain * error,
            p00 - gain * p00,
            p01 - gain * p01,
            p11 - velocity_gain * p01,
        )
    )


def scale(tracks: Array, across: float, down: float) -> None:
    """Bring tracks, in place, into a picture of another size."""
    factors = np.array((across, down, across, down))[:, None]
    for rows in (_POSITION, _VELOCITY):
        tracks[rows] *= factors
    for rows in (_P00, _P01, _P11):
        tracks[rows] *= factors * factors


def _squared_sizes(boxes: Array) -> Array:
    """Width, height, width and height, squared."""
    sizes = np.maximum(boxes[2:4], MIN_SIZE)
    sizes *= sizes
    return np.concatenate((sizes, sizes))
