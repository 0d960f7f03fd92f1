"""Ray Serve's choice of a replica for each call. Ray Serve sends this module by its text to each process, so what others
share with it stands in `_affinity`."""

from __future__ import annotations

import math
import time
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from megalith.serve._affinity import Call, Table, enter


class PrefixRouter(RequestRouter):
    """Sends a call to the replica that holds its prefix, unless that one is full or far behind."""

    def initialize_state(self, spread: float = 1.25) -> None:
        self.table = Table(spread)
        self._silent: dict[str, float] = {}
        """Since when a replica has said nothing to what was sent."""
        enter(str(self._deployment_id), self)

    def names(self) -> list[str]:
        return sorted(replica.unique_id for replica in list(self.curr_replicas))

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        names = [each.replica_id.unique_id for each in replicas]
        self.table.keep(names)
        self._silent = {name: since for name, since in self._silent.items() if name in names}

    def on_send_request(self, replica_id: Any) -> None:
        super().on_send_request(replica_id)
        self._silent.setdefault(replica_id.unique_id, time.monotonic())

    def on_new_queue_len_info(self, replica_id: Any, queue_len_info: Any) -> None:
        super().on_new_queue_len_info(replica_id, queue_len_info)
        self._silent.pop(replica_id.unique_id, None)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        by_name = {each.replica_id.unique_id: each for each in candidate_replicas}
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        call = pending_request.args[0] if pending_request.args else None
        if not isinstance(call, Call):
            return [candidate_replicas]
        if call.pin in by_name:
            return [[by_name[call.pin]]]
        loads = {
            name: self.replica_queue_len_cache.get(each.replica_id) or 0 for name, each in by_name.items()
        }
        order = self.table.order(call.key, list(by_name), loads)
        now = time.monotonic()

        def comes_late(name: str) -> tuple[bool, bool]:
            return name in call.avoid, now - self._silent.get(name, math.inf) > 2  # it hangs, perhaps

        return [[by_name[name]] for name in sorted(order, key=comes_late)]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: Any, result: Any) -> None:
        call = pending_request.args[0] if pending_request.args else None
        if isinstance(call, Call) and call.pin is None:
            self.table.took(call.key, replica_id.unique_id)
