"""optuna-dashboard: it shows a study of `optimize()` in a browser (`lazybo dashboard study.db` starts it too)."""

import json
import threading
import urllib.request
from wsgiref.simple_server import make_server

from optuna.storages import RDBStorage
from optuna_dashboard import wsgi

import lazybo

storage = RDBStorage("sqlite:///study.db")
space = {"x": (-5.0, 5.0), "kind": ["a", "b"]}
study = lazybo.optimize(
    lambda x, kind: (x - 1) ** 2 + (kind == "b"), space, n_trials=12, seed=0, storage=storage, study_name="bowl"
)
server = make_server("127.0.0.1", 0, wsgi(storage))
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}/api/studies"
with urllib.request.urlopen(address) as answer:
    (listed,) = json.load(answer)["study_summaries"]
with urllib.request.urlopen(f"{address}/{listed['study_id']}?after=0") as answer:
    shown = json.load(answer)
server.shutdown()

assert listed["study_name"] == "bowl"
assert len(shown["trials"]) == 12
assert [trial["number"] for trial in shown["best_trials"]] == [study.best_trial.number]
