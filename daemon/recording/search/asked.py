"""The question: a source, rules as the configuration has them, and a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daemon.config.text import hook
from daemon.errors import ConfigError, LookoutError
from daemon.recording.records import FileFacts
from daemon.rule_checks import check_rules
from daemon.rule_config import RuleConfig
from daemon.validation import convert

LOOK_BACK_NS = 3_600_000_000_000


class SearchError(LookoutError):
    """The question cannot be answered; the message says why."""


@dataclass(frozen=True)
class Asked:
    """
    Attributes:
        rules: checked.
        begin, end: UTC ns; an event belongs to the time of the frame that confirms it.
        look_back_ns: how far before the time the begin of a track that is in it is looked for.
    """

    source: str
    rules: Sequence[RuleConfig]
    begin: int
    end: int
    look_back_ns: int = LOOK_BACK_NS

    def overlaps(self, facts: FileFacts) -> bool:
        """Whether a file may have something of the time; one that is being written has more than the index knows."""
        return (facts.end > self.begin or facts.reason is None) and facts.begin < self.end


def rule_from(raw: object, where: str = "rule") -> RuleConfig:
    """A rule as the configuration of a source has it.

    Args:
        where: the path of the rule, for messages.

    Raises:
        ConfigError: it is wrong; the message begins with the path of the key.
    """
    kind: Any = RuleConfig
    rule: RuleConfig = convert(raw, kind, hook, where)
    try:
        check_rules([rule], "")
    except ConfigError as error:
        raise ConfigError(str(error).replace("rules[0]", where, 1)) from error
    return rule
