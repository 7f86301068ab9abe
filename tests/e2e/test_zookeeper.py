"""ZooKeeper by its three stages, as VarMRI had them, with no change of its source: by the agent."""

from __future__ import annotations

from pathlib import Path

from conftest import Record
from rig import ledger
from rig.recorder import about
from rig.zookeeper import SERVER, ZooKeeper

STAGES = {
    "prepare": f"{SERVER}.PrepRequestProcessor.pRequest",
    "sync": f"{SERVER}.SyncRequestProcessor.flush",
    "final": f"{SERVER}.FinalRequestProcessor.processRequest",
}
CLIENTS, ROUNDS = 3, 100


def test_every_request_is_recorded_in_each_of_its_stages(record: Record, folder: Path) -> None:
    spans = [f"{name}:{method}" for name, method in STAGES.items()]
    with ZooKeeper(folder, *spans) as server:
        recorder = record("-p", server.pid, "--span", "sdk").ready()
        sent = server.load(CLIENTS, ROUNDS).json()
        recorder.interrupt().clean()
        assert server.err.count("tailscope:") == 0, server.err
    requests = sent["writes"] + sent["reads"]
    assert requests == CLIENTS * (4 + 3 * ROUNDS)
    by_stage = dict(ledger.query(recorder.ledger, "SELECT span, count(*) FROM spans GROUP BY span"))
    assert by_stage.keys() == STAGES.keys()
    assert by_stage["prepare"] == by_stage["final"] == requests
    # Writes wait for the log in batches, whose requests are then answered one after the other.
    ((synced,),) = ledger.query(
        recorder.ledger,
        "SELECT count(*) FROM spans AS f JOIN spans AS s ON f.tid = s.tid "
        "AND f.start_ns >= s.start_ns - 1 AND f.start_ns + f.wall_ns <= s.start_ns + s.wall_ns + 1 "
        "WHERE f.span = 'final' AND s.span = 'sync'",
    )
    assert sent["writes"] <= synced <= requests
    # A client writes only when its write before is answered, so no batch has more than one of each.
    assert by_stage["sync"] * CLIENTS >= sent["writes"]
    told = about(recorder.ledger)
    assert told["seen"] == sum(by_stage.values())
    assert sum(told["lost"][k] for k in ("ring_full", "region_full", "threads")) == 0
    ledger.check_books(recorder.ledger)
    assert ledger.explain(recorder.ledger, options=("--span", "sync"))["p50_ns"] > 0
