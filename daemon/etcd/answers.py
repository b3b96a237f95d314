"""Answers of etcd. Numbers are texts in its JSON, and bytes are base64: decoders take both."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


class Header(msgspec.Struct):
    """Attributes:
    cluster_id: another one after a restore from a backup.
    """

    cluster_id: int = 0
    revision: int = 0


class KeyValue(msgspec.Struct):
    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeAnswer(msgspec.Struct):
    """Attributes:
    more: there are more keys than the limit.
    """

    header: Header = msgspec.field(default_factory=Header)
    kvs: list[KeyValue] = []
    count: int = 0
    more: bool = False


class DeleteAnswer(msgspec.Struct):
    deleted: int = 0


class OperationAnswer(msgspec.Struct):
    """Of one operation; the field of its kind is set."""

    response_range: RangeAnswer | None = None
    response_delete_range: DeleteAnswer | None = None
    response_txn: TxnAnswer | None = None

    @property
    def kvs(self) -> list[KeyValue]:
        """Keys that a range has found."""
        return self.response_range.kvs if self.response_range else []


class TxnAnswer(msgspec.Struct):
    header: Header = msgspec.field(default_factory=Header)
    succeeded: bool = False
    responses: list[OperationAnswer] = []

    def nested(self) -> list[TxnAnswer]:
        """Answers of the transactions within this one."""
        return [operation.response_txn or TxnAnswer() for operation in self.responses]


class PutAnswer(msgspec.Struct):
    header: Header = msgspec.field(default_factory=Header)


class GrantAnswer(msgspec.Struct):
    """Attributes:
    ttl: seconds.
    """

    header: Header = msgspec.field(default_factory=Header)
    lease: int = msgspec.field(default=0, name="ID")
    ttl: int = msgspec.field(default=0, name="TTL")


class KeepAlive(msgspec.Struct):
    result: GrantAnswer = msgspec.field(default_factory=GrantAnswer)


class TokenAnswer(msgspec.Struct):
    token: str


class Event(msgspec.Struct):
    """Attributes:
    kind: PUT or DELETE; a deleted key has no value, and its last mod_revision is the deletion's.
    """

    kv: KeyValue
    kind: str = msgspec.field(default="PUT", name="type")


class WatchAnswer(msgspec.Struct):
    header: Header = msgspec.field(default_factory=Header)
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    events: list[Event] = []


class StreamError(msgspec.Struct):
    message: str = ""
    grpc_code: int = 0


class WatchLine(msgspec.Struct):
    result: WatchAnswer | None = None
    error: StreamError | None = None


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind, strict=False)
