from __future__ import annotations

import numpy as np
import torch

from headway.analysis.comparison import uniform_sources
from headway.analysis.results import Results
from headway.analysis.rundata import Group, RunData
from headway.runs import State
from headway.selection import Actor, ActorConfig
from tests.analysis.made import controlled, made, together

ONES = np.ones((3, 4))


def sources(*runs: RunData) -> dict[str, str]:
    """Whose runs of Uniform serve whom, by the protocol's label."""
    found = uniform_sources(together(*runs).groups())
    return {group.protocol: source.protocol for group, source in found.items()}


def test_a_group_with_another_floor_takes_the_runs_of_another() -> None:
    found = sources(controlled(ONES, method="uniform"), controlled(ONES, floor_unit="sample"))
    assert found == {"released, epochs=3, floor_unit=sample": "released, epochs=3"}


def test_every_constant_of_a_signal_and_the_entropy_weight_may_differ() -> None:
    changes = {"beta": 0.5, "beta_v": 0.6, "floor": 0.1, "gate_level": 9.0, "entropy_weight": 0.2}
    for name, value in changes.items():
        runs = (controlled(ONES, method="uniform"), controlled(ONES, **{name: value}))
        assert len(sources(*runs)) == 1, name


def test_epochs_that_do_not_count_may_differ() -> None:
    uniform = controlled(np.ones((500, 10)), method="uniform", condition="curriculum")
    for epochs in (500, 400):
        other = controlled(np.ones((epochs, 10)), condition="curriculum", floor=1e-6)
        assert sources(uniform, other) == {"released, floor=1e-06": "released"}, epochs


def test_nothing_else_may_differ() -> None:
    for other in (
        controlled(ONES, learning_rate=0.1),
        controlled(ONES, batch_size=8),
        controlled(ONES, dataset="digits"),
        controlled(np.ones((4, 4))),
    ):
        assert sources(controlled(ONES, method="uniform"), other) == {}, other.label


def test_who_has_uniform_borrows_nothing() -> None:
    own = controlled(ONES, method="uniform", floor_unit="sample")
    assert sources(controlled(ONES, method="uniform"), own, controlled(ONES, floor_unit="sample")) == {}


def test_only_finished_runs_are_lent() -> None:
    whole = controlled(ONES, method="uniform")
    stopped = made(whole.spec, State.INTERRUPTED, **whole.columns)
    assert sources(stopped, controlled(ONES, floor_unit="sample")) == {}


def test_the_plainest_protocol_lends() -> None:
    found = sources(
        controlled(ONES, method="uniform", floor=0.5),
        controlled(ONES, method="uniform"),
        controlled(ONES, floor_unit="sample"),
    )
    assert list(found.values()) == ["released, epochs=3"]


def test_more_common_seeds_count_more_than_a_plain_protocol() -> None:
    found = sources(
        controlled(ONES, method="uniform"),
        *(controlled(ONES, method="uniform", floor=0.5, seed=seed) for seed in range(2)),
        *(controlled(ONES, floor_unit="sample", seed=seed) for seed in range(2)),
    )
    assert list(found.values()) == ["released, epochs=3, floor=0.5"]


def test_without_any_entropy_uniform_is_another_one() -> None:
    assert sources(controlled(ONES, method="uniform"), controlled(ONES, entropy_weight=0)) == {}
    assert sources(controlled(ONES, method="uniform", entropy_weight=0), controlled(ONES)) == {}


def test_the_weight_of_the_entropy_hardly_matters_to_uniform() -> None:
    """The policies of real actors after as many batches as an epoch of MNIST has."""
    policies = []
    for weight in (0.01, 0.05, 0.2):
        actor = Actor(ActorConfig(4, entropy_weight=weight), torch.Generator().manual_seed(0))
        for _ in range(234):
            actor.draw(256)
            actor.learn(torch.zeros(256))
        policies.append(actor.probabilities())
    for policy in policies:
        torch.testing.assert_close(policy, policies[1], atol=5e-4, rtol=0)


def test_no_runs_lend_nothing() -> None:
    groups: dict[Group, Results] = {}
    assert uniform_sources(groups) == {}


def test_uniform_that_an_actor_drew_serves_where_there_is_no_other() -> None:
    former, own = (controlled(ONES, method="uniform", uniform=by, seed=0) for by in ("actor", "arms"))
    borrower = controlled(ONES, floor_unit="sample")
    assert list(sources(former, borrower).values()) == ["released, epochs=3, uniform=actor"]
    assert list(sources(former, own, borrower).values()) == ["released, epochs=3"]


def test_later_fields_of_other_methods_part_nothing() -> None:
    others = [controlled(ONES, method="delta_loss", delta_empty=empty) for empty in ("skip", "stop")]
    for other in others:
        assert len(sources(controlled(ONES, method="uniform"), other)) == (other.protocol != "released, epochs=3")
