"""Promises of the coordinator over Kubernetes where it differs, or fails. The server is a fake of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
import yaml

from daemon.build import build
from daemon.clock import SystemClock
from daemon.errors import LookoutError
from daemon.fleet.kept_lease import KeptLease
from daemon.fleet.kubernetes_coordinator import KubernetesCoordinator
from daemon.fleet.kubernetes_expiry import Expiry
from daemon.fleet.kubernetes_membership import KubernetesMembership
from daemon.fleet.kubernetes_names import Names, slug
from daemon.fleet.member import CoordinatorAccess
from daemon.fleet.open_coordinator import open_coordinator
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError, NameTakenError
from daemon.fleet.records import MemberRecord, Owned, SourceRecord, StreamFormat, Want
from daemon.fleet_config import FleetConfig
from daemon.seams import Seams
from daemon.system.stop_token import StopToken
from detectors.fake.detector import FakeDetector
from tests.fleet.etcd_server import Certificates
from tests.fleet.kubernetes_server import KubernetesServer
from tests.fleet.test_coordinator_contract import RECORD, SOURCE, A, B, add, join, place
from tests.lifetimes.cameras import make
from tests.lifetimes.rig import LIMITS
from tests.lifetimes.running import config_of
from tests.support.clock import ManualClock
from tests.support.daemon import wait_until

ROOT = Path(__file__).resolve().parents[2]
Opened = Callable[..., KubernetesCoordinator]


class ClosesRenewals(KubernetesCoordinator):
    """Closes the renewals of its memberships as well."""

    def join(self, member: str, record: MemberRecord, ttl_s: float) -> KubernetesMembership:
        membership = super().join(member, record, ttl_s)
        self.renewals = [*getattr(self, "renewals", ()), membership.renewal]
        return membership

    def close(self) -> None:
        super().close()
        for renewal in getattr(self, "renewals", ()):
            renewal.close()


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with closing(KubernetesServer()) as server:
        yield server


@pytest.fixture
def opened(server: KubernetesServer) -> Iterator[Opened]:
    """Opens a coordinator, which the fixture closes."""
    with ExitStack() as stack:

        def open(clock: ManualClock | None = None, **settings: object) -> KubernetesCoordinator:
            given = server.settings("cameras", **settings)  # type: ignore[arg-type]
            return stack.enter_context(closing(ClosesRenewals(given, "one", clock)))

        yield open


# --- the end of a lease -----------------------------------------------------------------------------------------------


def test_a_follower_ends_the_lease_of_a_member_that_is_silent(opened: Opened) -> None:
    coordinator = opened()
    add(coordinator, "a")
    member = coordinator.join(A, RECORD, 1.0)
    place(coordinator, member, {"a": A})
    epoch = member.claim(["a"])["a"]
    views = opened().follow(StopToken())
    assert next(views).owned == {"a": Owned(A, epoch)}
    gone = next(view for view in views if not view.members)
    assert not gone.owned
    assert not gone.left, "that was a loss"
    assert gone.wants == {"a": Want(member=A)}
    with pytest.raises(LeaseLostError):
        member.renewal.renew()


def test_a_lease_is_overdue_after_its_time_without_a_renewal(opened: Opened) -> None:
    """By the time of the observer; the times in the Lease are compared with nothing."""
    clock = ManualClock()
    expiry, member = Expiry(clock), join(opened())
    name = Names("one").member(A)

    def observe() -> None:
        lease = opened()._client.get("leases", name)
        assert lease
        expiry.observe(lease)

    observe()
    clock.advance(29)
    member.update(RECORD)  # is no renewal
    observe()
    assert not expiry.overdue()
    member.renewal.renew()
    observe()
    clock.advance(30)
    assert not expiry.overdue()
    clock.advance(1)
    assert [lease.metadata.name for lease in expiry.overdue()] == [name]
    assert not expiry.overdue(), "not again at once"


def test_a_member_that_was_renewed_meanwhile_is_left_alone(opened: Opened) -> None:
    """An observer that was paused knows an old version."""
    coordinator = opened()
    member = join(coordinator)
    known = coordinator._client.get("leases", Names("one").member(A))
    assert known
    member.renewal.renew()
    assert not coordinator._end(known)
    member.renewal.renew()


def test_the_name_of_a_dead_member_is_free_after_its_time(opened: Opened) -> None:
    clock = ManualClock()
    other = opened(clock)
    old = join(opened())
    with pytest.raises(NameTakenError, match=f"a member {A} is in the fleet already.* within 30 s"):
        join(other)
    clock.advance(20)
    old.renewal.renew()
    clock.advance(20)
    with pytest.raises(NameTakenError):
        join(other)
    clock.advance(31)
    new = join(other)
    new.renewal.renew()
    with pytest.raises(LeaseLostError):
        old.renewal.renew()
    old.renewal.revoke()
    old.leave()
    new.renewal.renew()


@pytest.mark.slow(1)
def test_a_process_of_its_own_renews(opened: Opened) -> None:
    member = opened().join(A, RECORD, 3.0)
    with closing(KeptLease(member.renewal, 3.0, SystemClock())) as lease:
        lease.start()
        wait_until(lambda: lease.beat() or lease.page.renewals >= 2, "the lease is renewed")  # type: ignore[func-returns-value]
        assert lease.state == "renewed"
        member.renewal.revoke()
        wait_until(lambda: lease.beat() or lease.state == "lost", "the lease is lost")  # type: ignore[func-returns-value]


@pytest.mark.slow(1)
def test_daemons_share_sources(opened: Opened, server: KubernetesServer, tmp_path: Path) -> None:
    """Whole daemons in this process, whose leases are kept by processes of their own."""
    coordinator = opened()
    source = SourceRecord(config={"id": "a", "type": "synthetic", "fps": 50, "width": 16, "height": 16, "objects": 1})
    coordinator.put_sources({"a": source}, replace=False)

    def connect() -> KubernetesCoordinator:
        return KubernetesCoordinator(server.settings("cameras"), "one")

    with ExitStack() as stack:
        for name in ("one", "two"):
            settings = FleetConfig(coordinator="kubernetes://", member=name, ttl_s=5.0)
            doors = CoordinatorAccess(connect, lambda renewal, ttl_s: KeptLease(renewal, ttl_s, SystemClock()))
            app = build(
                config_of(fleet=settings),
                Seams(
                    limits=LIMITS,
                    open_detector=lambda _, options: FakeDetector(options, service_s=0.002),
                    make_source=partial(make, folder=tmp_path),
                    coordinator=doors,
                ),
            )
            stack.callback(app.stop)
            app.start()
        wait_until(lambda: len(coordinator.view().members) == 2, "both are members")
        epochs = []
        for name in ("one", "two", "one"):
            coordinator.move(["a"], name)
            wait_until(lambda name=name: _owner(coordinator) == name, f"{name} has it")  # type: ignore[misc]
            epochs.append(coordinator.view().owned["a"].epoch)
    view = coordinator.view()
    assert epochs == sorted({*epochs})
    assert not view.members
    assert not view.owned
    assert view.left.keys() == {"one", "two"}, "they have left, and were not lost"


def _owner(coordinator: KubernetesCoordinator) -> str | None:
    owned = coordinator.view().owned.get("a")
    return owned.member if owned else None


# --- epochs and records -----------------------------------------------------------------------------------------------


def test_epochs_rise_when_the_time_of_day_is_set_back(opened: Opened) -> None:
    clock = ManualClock()
    coordinator = opened(clock)
    add(coordinator, "a")
    epochs = []
    for name in (A, B):
        member = join(coordinator, name)
        place(coordinator, member, {"a": name})
        epochs.append(member.claim(["a"])["a"])
        joined = coordinator.view().joined[name]
        epochs.append(joined)
        member.leave()
        clock.step(-3600)
    assert epochs[0] < epochs[2]
    assert epochs[1] < epochs[3]


def test_a_source_that_is_added_anew_has_nothing_of_the_last_one(opened: Opened) -> None:
    coordinator = opened()
    add(coordinator, "a")
    member = join(coordinator)
    member.refuse({"a": "too large"})
    member.saw({"a": StreamFormat()})
    coordinator.remove_sources(["a"])
    add(coordinator, "a")
    view = coordinator.view()
    assert not view.refused
    assert not view.seen
    assert not view.wants


def test_a_source_that_is_gone_leaves_no_objects(opened: Opened, server: KubernetesServer) -> None:
    coordinator = opened()
    add(coordinator, "owned", "free")
    member = join(coordinator)
    place(coordinator, member, {"owned": A, "free": A})
    member.claim(["owned", "free"])
    member.release(["free"])
    coordinator.remove_sources(["owned", "free"])
    member.release(["owned"])
    assert sorted(name for kind, name in server.engine.objects) == [
        "lookout.one.v1.member.hall-gpu0--" + slug(A).partition("--")[2],
        "lookout.one.v1.placer",
        "lookout.one.v1.state",
    ]


def test_a_record_that_cannot_be_read_is_reported(opened: Opened, server: KubernetesServer) -> None:
    """A member of a release that writes another one lives nevertheless, and keeps its sources."""
    coordinator = opened()
    add(coordinator, "a", "bad")
    member = join(coordinator)
    place(coordinator, member, {"a": A})
    epoch = member.claim(["a"])["a"]
    names = Names("one")
    server.engine.patch("configmaps", names.source("bad"), {"data": {"source": '{"config": 7}'}})
    server.engine.patch("leases", names.member(A), {"metadata": {"annotations": {"lookout/record": "[]"}}})
    view = coordinator.view()
    assert view.problems.keys() == {names.source("bad"), names.member(A)}
    assert not view.members
    assert view.sources == {"a": SOURCE}
    assert view.owned == {"a": Owned(A, epoch)}


def test_losses_end_by_the_time_of_the_observer(opened: Opened) -> None:
    clock = ManualClock()
    coordinator = opened(clock)
    placer = join(coordinator)
    placer.lead()
    placer.hold_down(B, 60)
    assert coordinator.view().held[B].losses == 1
    clock.advance(61)
    view = coordinator.view()
    assert (view.losses, view.held) == ({B: 1}, {})
    clock.advance(3600)
    assert not coordinator.view().losses
    placer.hold_down(B, 0)
    assert coordinator.view().losses == {B: 1}


@pytest.mark.parametrize("text", ["cam-1", "Cam_1", "b/c d", "é", "a" * 300, "a--b", "-"])
def test_names_of_objects_are_those_that_kubernetes_takes(opened: Opened, text: str) -> None:
    coordinator = opened()
    add(coordinator, text, f"{text}x")
    assert coordinator.view().sources.keys() == {text, f"{text}x"}
    assert slug(slug(text)) != slug(text) or slug(text) == text, "a digest is none of a plain name"


# --- the server -------------------------------------------------------------------------------------------------------


def test_changes_that_are_gone_are_listed_anew(opened: Opened, server: KubernetesServer) -> None:
    coordinator, stop = opened(), StopToken()
    views = coordinator.follow(stop)
    next(views)
    with server.engine.changed:  # a watch sees neither of them before the other
        server.engine.compact()
        server.engine.version += 1
    add(coordinator, "a")
    assert next(view for view in views if view.sources).sources == {"a": SOURCE}
    stop.set()
    assert list(views) == []


def test_long_lists_come_in_pages(opened: Opened) -> None:
    coordinator = opened()
    coordinator.put_sources({f"camera-{number}": SOURCE for number in range(501)}, replace=False)
    assert len(coordinator.view().sources) == 501


def test_a_token_that_was_replaced_is_read_anew(opened: Opened, server: KubernetesServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    coordinator = opened(token_file=file)
    for server.token in ("first", "second"):
        file.write_text(f"{server.token}\n")
        coordinator.view()
    server.token = "third"  # noqa: S105
    with pytest.raises(CoordinatorError, match=r"does not accept the token of the service account: Unauthorized$"):
        coordinator.view()
    file.unlink()
    with pytest.raises(CoordinatorError, match=f"{file}: the token of the service account cannot be read"):
        coordinator.view()


def test_a_verb_that_the_role_lacks_is_named(opened: Opened, server: KubernetesServer) -> None:
    server.forbidden.add(("create", "leases"))
    with pytest.raises(CoordinatorError, match=r'cannot create resource "leases": see deploy/.*/rbac.yaml$'):
        join(opened())


def test_a_reader_needs_no_other_verb(opened: Opened, server: KubernetesServer) -> None:
    """A subscriber that follows the members; it cannot end the lease of one."""
    opened().join(A, RECORD, 1.0)
    verbs = ("create", "patch", "delete")
    server.forbidden |= {(verb, kind) for verb in verbs for kind in ("leases", "configmaps")}
    clock, stop = ManualClock(), StopToken()
    views = opened(clock).follow(stop)
    assert next(views).members
    clock.advance(60)
    server.forbidden -= {("create", "configmaps")}
    add(opened(), "a")
    view = next(views)
    assert view.members
    assert view.sources
    stop.set()
    assert list(views) == []


def test_a_server_that_is_away(opened: Opened, server: KubernetesServer) -> None:
    coordinator = opened(limit_s=0.5)
    member = join(coordinator)
    for server.failing in (500, 429):
        with pytest.raises(CoordinatorAwayError, match="the server is about to end"):
            member.renewal.renew()
    server.failing = None
    member.renewal.renew()
    server.silent.set()
    with pytest.raises(CoordinatorAwayError, match=r"Kubernetes at 127.0.0.1:\d+ does not answer in time"):
        member.renewal.renew()
    with pytest.raises(CoordinatorAwayError):
        next(coordinator.follow(StopToken()))
    server.silent.clear()
    member.renewal.renew()
    server.close()
    with pytest.raises(CoordinatorAwayError, match="does not answer: "):
        coordinator.view()


@pytest.mark.needs("openssl")
def test_over_tls(tmp_path: Path) -> None:
    own, foreign = Certificates(tmp_path / "own"), Certificates(tmp_path / "foreign", "another")
    with closing(KubernetesServer(own)) as server:
        with closing(KubernetesCoordinator(server.settings("cameras"), "one")) as coordinator:
            views = coordinator.follow(StopToken())
            next(views)
            add(coordinator, "a")
            assert next(views).sources == {"a": SOURCE}
            views.close()  # type: ignore[attr-defined]
        server._ca = foreign.ca
        coordinator = KubernetesCoordinator(server.settings("cameras"), "one")
        with closing(coordinator), pytest.raises(CoordinatorError, match="its certificate is refused here: "):
            coordinator.view()
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    server._ca = empty
    with pytest.raises(CoordinatorError, match=f"{empty}: holds no certificate in PEM"):
        KubernetesCoordinator(server.settings("cameras"), "one")


def test_outside_of_a_pod_the_way_in_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LookoutError, match=r"works in a pod with a service account: .*kubectl exec"):
        open_coordinator(FleetConfig(coordinator="kubernetes://"))


def test_the_role_has_the_verbs_that_are_used_and_no_other(opened: Opened, server: KubernetesServer) -> None:
    coordinator, stop = opened(), StopToken()
    views = coordinator.follow(stop)
    next(views)
    add(coordinator, "a", "b")
    coordinator.put_sources({"a": SOURCE}, replace=True)
    member = join(coordinator)
    place(coordinator, member, {"a": A})
    member.claim(["a"])
    member.saw({"a": StreamFormat()})
    member.refuse({"b": "no"})
    member.update(RECORD)
    member.hold_down(B, 60)
    member.renewal.renew()
    coordinator.drain(B, "a new card")
    coordinator.undrain(B)
    coordinator.move(["b"], A)
    member.release(["a"])
    coordinator.remove_sources(["a"])
    next(view for view in views if view.owned == {} and "a" not in view.sources)
    stop.set()
    member.leave()
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes-fleet/rbac.yaml").read_text())
    (role,) = (document for document in documents if document["kind"] == "Role")
    granted = {
        (verb, kind, group)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for kind in rule["resources"]
        for group in rule["apiGroups"]
    }
    groups = {"leases": "coordination.k8s.io", "configmaps": ""}
    assert granted == {(verb, kind, groups[kind]) for verb, kind in server.engine.used}
