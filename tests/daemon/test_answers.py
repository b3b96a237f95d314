"""Answers of the HTTP API."""

from __future__ import annotations

import json
import os

from daemon.http.answers import json_answer


def test_a_reason_that_names_a_file_whose_name_is_no_utf_8_is_answered() -> None:
    reason = f"{os.fsdecode(bytes([0xFF]))}.yaml: no such file"
    assert json.loads(bytes(json_answer({"reason": reason}, 422).body)) == {"reason": reason}
