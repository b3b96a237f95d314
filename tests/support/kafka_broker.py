"""A Kafka of one broker in a process of its own: librdkafka's mock cluster, steered by lines of standard input.

It says its port, and "done" after each line: down, up, topic NAME PARTITIONS, error API CODE.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import confluent_kafka

_PRODUCER = 0


def _library() -> ctypes.CDLL:
    """librdkafka as the wheel of confluent-kafka brings it."""
    (file,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    found = ctypes.CDLL(str(file))
    for name, result, arguments in (
        ("rd_kafka_conf_new", ctypes.c_void_p, []),
        ("rd_kafka_new", ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("rd_kafka_mock_cluster_new", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [ctypes.c_void_p]),
        ("rd_kafka_mock_broker_set_down", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
        ("rd_kafka_mock_topic_create", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    found.rd_kafka_mock_push_request_errors.restype = None
    return found


def main() -> None:
    library, fault = _library(), ctypes.create_string_buffer(512)
    handle = library.rd_kafka_new(_PRODUCER, library.rd_kafka_conf_new(), fault, len(fault))
    assert handle, fault.value
    cluster = library.rd_kafka_mock_cluster_new(handle, 1)
    verbs: dict[str, Callable[..., object]] = {
        "down": lambda: library.rd_kafka_mock_broker_set_down(cluster, 1),
        "up": lambda: library.rd_kafka_mock_broker_set_up(cluster, 1),
        "topic": lambda name, count: library.rd_kafka_mock_topic_create(cluster, name.encode(), int(count), 1),
        "error": lambda api, code: library.rd_kafka_mock_push_request_errors(
            ctypes.c_void_p(cluster), ctypes.c_int16(int(api)), ctypes.c_size_t(1), ctypes.c_int(int(code))
        ),
    }
    _say(library.rd_kafka_mock_cluster_bootstraps(cluster).decode().rpartition(":")[2])
    for line in sys.stdin:
        verb, *arguments = line.split()
        result = verbs[verb](*arguments)
        _say(f"{line.strip()}: error {result}" if result else "done")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
