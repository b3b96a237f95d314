"""A result becomes meaning: tracks, rules, events and counts, as stages of the pipeline.

Tracking.

`Analytics` (`pipeline/stages.py`) makes the stages before and after the filter for the labels of a model. It keeps
the state of sources itself, so the state outlives the model. `changes.py` checks a new configuration against the
labels first, and puts it into effect with the filters.

- Before the filter. The tracker needs weak boxes. The detector's threshold is the lowest `floor` of all tracked
  sources, and the filter lets weak boxes of confirmed tracks through. The tracker's step has all boxes and ids at
  hand, so it removes the other weak boxes and notes the threshold in `Detections`. The filter of the same threshold
  then has nothing to remove; one of a higher threshold, during a reload, still does.
- One call for a batch (`analytics/tracker.py`; `numpy_step.py` is the reference, `compiled_step.py` the same in
  loops for numba, equal to the last bit). The tracks of all sources of a batch are columns of one array. Several
  frames of one source are so many calls, in order. Only operations on single elements are used, and sums over none,
  so that the other sources in the arrays change no bit of a result.
- Overlap first (`analytics/association.py`). Comparisons in padded arrays find the pairs that overlap. All else
  works on the list of pairs: one order for all three steps, and rounds in which each track and box that are each
  other's best become a pair.
- Not ByteTrack's. Two frames without a box do not keep a track from weak boxes, because detectors miss boxes at
  random. Almost all process noise is acceleration: with ByteTrack's own noise, bursts of lost frames cost many more
  ids. The overlap that is asked for falls with the time since a track was seen, and boxes become wider. A track is
  also compared where it was last seen. After a gap pairs are ordered by overlap and `shape_iou`, so objects that
  cross meanwhile swap ids less often; between near frames `shape_iou` would cost ids of people who are half hidden.
  A width and a height change for 0.2 s of a step at most, because their velocities say little after that.
- Time is the source's own (`analytics/source_time.py`), the same for the tracker, rules and attributes, and never
  goes back. A new connection to a camera may begin a new timeline, so over a reconnect the time of capture counts.
  Recordings keep to their own times, because they are captured at any speed. Limits in seconds are at least three
  of the source's own intervals, as the last eight steps have them.
- The tracker decides who is there. It tells rules with each frame what has become of tracks (`TrackNews`): the
  boxes of one that is confirmed now, which ids are lost, and which never come back. Rules have no limit of their
  own. A path begins with a track's first box, so rules look at the boxes before in the frames that they remember,
  as if they had known. Times of events are of these frames, and `confirmed_seq` is of the newest.

Rules.

A rule is evaluated in `analytics/`: `rules.py` has the stage and the rules of all sources, `source_rules.py` those
of one source, and `zones.py`, `lines.py`, `gates.py` and `objects.py` one kind each. Nothing in them knows a model
or a lane, so their state outlives both. A lock for each source lets other threads change its rules between two
frames.

- Paths, not points. A rule gets the straight path from the anchor in the last frame to the anchor in this one.
  `daemon/geometry.py` finds crossings with exact signs. A point on a line counts as moved a tiny bit, by the same
  rule everywhere, so each change of sides is one crossing. A zone then knows whether an anchor is inside from the
  number of crossings.
- Crossings are summed. A line adds up the crossings since the anchor was last outside of its band. It does not
  compare sides, because a line that ends somewhere has none.
- Cost. Most tracks are far from every edge. Each track has a circle in which no rule can change, and a time before
  which none can. A rule works for a track only when one of the two is left. Edges beyond the reach of the path are
  not tested. With numba a broad phase does this for all tracks of a frame in one call (`broad_phase.py`, compiled
  in `compiled_broad_phase.py`). Its table stands for the circles. It tells the rules only of tracks that cross an
  edge, or leave the band of a line, or whose time is over, and how far they are from each outline then. Where
  rounding may decide, exact arithmetic in Python does. Events are equal.
- A process of their own (`analytics/process/`), for daemons with several capture processes. Rules change no frame,
  so a lane only sends tracks (`remote.py`), and `main.py` has the rules of all sources in one thread. A pipe keeps
  the order of batches, changes, states and marks. A mark is answered when all before it is done and its events are
  delivered. So a reload and a removed source wait for their last events. The message that a source has ended comes
  behind its events. A full pipe lets lanes wait, and nothing is lost. The daemon ends if the process does, because
  nobody else knows what its rules know; a process that hangs is found by its marks. Pictures of events need the
  frame in a lane's hand, so rules stay in the lanes where pictures are made.
- Time is a timeline that begins at the source's first frame and never goes back. It keeps the longest gaps, so an
  event can name the longest one since it began.

Events.

A rule gives its event to `EventPublisher` (`analytics/events.py`) in the lane's thread. Of rules in another
process, the thread `rules` does it, some milliseconds after the batch's results. When the rules have seen the
batch, each of its events gets its number, is counted, and goes to the outbox and to the journal's queue, before the
results of the batch. Nothing there waits for a disk, and one lock keeps numbers, outbox and queue in the same
order.

- Numbers grow over restarts. The journal reserves them a million ahead, so the numbers of events that were
  published and not written are not used again. Without a journal a run begins at the milliseconds of the time of
  day. `id` has the instance as well.
- The journal (`analytics/journal.py`) is SQLite with a write-ahead log: a kill leaves it whole. An event and its
  total are written in one transaction. Totals are written as increments, so a journal that was away for a while, on
  a full disk, gets them later.
- Totals come from events alone, and so does occupancy: each stay in a zone has an event that begins it and one that
  ends it.
- Owners. In a fleet the totals of a source are those of one ownership: nothing is restored from the journal,
  because other daemons may have counted since.
- Pictures (`analytics/snapshots.py`): an event asks for its frame's picture before the frame comes to the lane's
  `on_result`, where the pixels are at hand.
"""
