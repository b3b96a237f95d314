"""Controls the running daemon: changes of its configuration, and each source's share of the machine.

One thread (`control/changes.py`) makes all changes of sources and of the model, whether SIGHUP or HTTP asks. Steps
that take long or may be refused come first and touch nothing: reading, comparing (`control/reload.py`), making the
captures, opening the model, and starting the process of rules for the first of them. The last of them writes the
sources, where a change is to outlive the process (`source_store.py`). The steps after that cannot be refused. So a
change is made whole or not at all, and a reload behind it reads the sources that it has written.

- Sources (`control/sources.py`). Removing one stops its capture and waits until its last frame's message is on its
  way. Only then do its place on the board, its account and its last status go. A capture that blocks in a library
  is left behind: from then on nothing that it does counts, and its unsettled frames are counted as `removed`. A
  source that comes back goes on with its account and its numbers. The ledger keeps the accounts of sources that are
  gone up to a limit. With capture processes a source is added to the one that has the fewest.
- The model (`lanes.py`). A process of its own (`model_trial.py`) opens it and looks at a picture, and only then
  does the daemon open it: a model may crash, or never return from its first run. Other changes go on meanwhile. The
  change that wants the model continues when the model is there, and is given up after `model.open_timeout_s`. The
  new lanes are made while the old ones work. The old lanes retire, so that they take nothing more from the board,
  and then the new ones start. Each source has one frame from which the new model looks. The last lane of a detector
  closes it, so no detector is closed under a lane. A source has one batch in flight whichever lane has it, so order
  needs nothing more. A result carries the model that made it.
"""
