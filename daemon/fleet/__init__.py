"""Several daemons share sources: each source has exactly one owner. docs/fleet.md has the promises.

A member.

Where several daemons share sources, `fleet/member.py` decides in a thread that never blocks. It beats for the
keeper of the lease, and reacts to a lost lease at once. The records of the fleet come from a thread that follows
them (`record_follower.py`). Calls to the coordinator go one at a time through another one
(`coordinator_caller.py`): one that hangs holds up nothing else.

- A turn compares what is wanted with what runs. A source that is wanted and free is claimed, granted with its epoch
  (`grants.py`), and added through `changes`. A source that goes elsewhere is removed through `changes`. Its grant
  ends when its last message is sent, and only then is its claim released.
- The keeper (`keeper.py`) is a process of its own, because threads of a busy daemon may wait long for a turn. It
  shares a page of memory with the daemon (`lease_page.py`), so that the fence reads the lease in well under a
  microsecond. It renews only while the member beats. Its input ends when the daemon dies, and it ends the lease at
  once. A keeper that dies or hangs is replaced (`kept_lease.py`); meanwhile the lease holds as long as was
  confirmed. After a pause a keeper says nothing before the coordinator has answered, or has not.
- Kubernetes has no transactions and ends no lease by itself. Each claim changes one object at the version that was
  read. An ownership names the uid of the owner's membership, and means nothing once that membership's Lease is
  gone. Members delete a Lease that they have not seen renewed, at the version that they saw.
- Answers that are lost. A claim and a release can be repeated. A source that the records call this member's, and
  that it neither runs nor wants, is released.
- Requests that come late. A request that was repeated may arrive a second time, when the source is claimed again.
  So a release names each claim by the revision that created it, and ends no later one.
- Claims that are gone. A source may run here while the records do not show its claim for 10 s
  (`missing_claims.py`). Then the member asks the coordinator. If the claim is no more, the source is stopped and
  claimed anew.
- Batches. Sources are added many at a time. A change that is refused is tried in halves, so that one bad source is
  found and refused with its reason, and the others run.
- A lost lease takes all grants at once, and all sources are removed. The daemon then joins anew. A change that is
  under way checks its grant when it is applied, so a source cannot come back with an old epoch.
- The end. The member says that it is leaving. The sources end and the last message is sent before the lease is
  given up. All of that is within the time limit of the stop.
- Capacity (`description.py`) is measured at the start, as `lookout check` does. A member that loses frames for half
  a minute (`daemon/control/overload.py`) says so, and gives what it did as its capacity for ten minutes.

The placer.

Each member of a fleet has a placer, and the coordinator elects one (`fleet/placer.py`). docs/fleet.md has its
promises.

- Pure. `place` (`fleet/placement.py`) takes all records and returns the wants that are to change. It knows no
  clock, no chance and no connection. It is idempotent: after its wants are written it returns none. Tests run it
  over random fleets.
- Arrays. Sources are rows, members are columns, and resources are the last axis (`fleet/arrangement.py`,
  `fleet/demand.py`). A source that stays costs one row. The scores of a source for all members are computed only if
  it has no place.
- Firm load. Sources are placed in falling priority. The load of all sources of the present priority and higher ones
  is what a source cannot displace. So a source that waits once need not be tried again.
- Two limits. A member is filled up to a share of its capacity, and keeps its sources up to all of it. Between the
  two a video may change without a move.
- Two placers at once are harmless. A want is written in a transaction that fails if the want or the source has
  changed since the records that it is based on.
- Losses are noted by every placer, because the one that leads may be on the member that is lost. The next one
  counts those that nobody has counted. A source is placed before its member's loss is counted.
- A mistake of the placer does not end the daemon. Its cameras go on, the failure is a figure, and it tries again.
"""
