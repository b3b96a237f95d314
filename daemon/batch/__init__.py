"""Archives of recordings, analysed losslessly, by one process or by many that share the clips: one result a clip.

`lookout batch` runs a daemon inside its own process (`batch/player.py`): one with a lossless board, and sources
that come and go through `control/changes.py`. Nobody subscribes to it. `ResultSink` is one more `Sink` of its
publisher.

- Results are functions of the recording. `writer.py` replaces the fields that differ from run to run. An event
  waits for the frame that confirms it, because its place in the stream depends on how frames met in a batch. A
  result with a drop that another run would not have is none.
- The order of the end (`worker.py`): the file is whole and on the disk; the claim holds by this machine's clock;
  the file gets its name; a transaction under the claim records it. Where the last step finds the claim lost,
  another worker has written the same bytes to the same name, or has its own folder, and then the file is removed.
- Stores (`store.py`) are a port: a journal beside the results for one process, and etcd for many. One contract
  suite runs over both, and over the one in memory that tests of the worker use.
- Attempts are counted when a clip is claimed, so that a clip that kills the process counts too. A clip that is
  given back is not counted.
"""
