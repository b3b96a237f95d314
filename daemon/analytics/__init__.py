"""A result becomes meaning: tracks, rules, events and counts, as stages of the pipeline. docs/decisions.md says why."""
