"""What every generator promises: its YAML, its table, its seed, its parameters and its messages."""

from dataclasses import fields
from math import sqrt
from typing import Any

import numpy as np
import pytest
import yaml

from harness import workload
from harness.errors import BadInput
from harness.schema import JOBS, names
from harness.tables import validate
from harness.workload import common, paper_mix
from workload_helpers import CONF, SD, column, servers

SMALL = {"paper_mix": {"preemptors": 60}, "diurnal": {"days": 1.0}, "spot": {"days": 4.0, "history_days": 1.0, "max_gang_share": 1.0},
         "gangs": {"jobs": 60}}


# Every generator


def test_the_generators_are_the_modules_with_generate():
    assert set(workload.generators()) >= {"diurnal", "paper_mix", "trace"}
    assert all(hasattr(m, "Params") and hasattr(m, "generate") for m in workload.generators().values())


@pytest.mark.parametrize("name", sorted(workload.generators()))
def test_its_yaml_has_every_parameter_with_its_default(name: str):
    section = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert section.pop("generator") == name
    module = workload.generators()[name]
    assert list(section) == [f.name for f in fields(module.Params)]
    assert workload.parameters(name, section) == module.Params()


@pytest.mark.parametrize("name", sorted(workload.generators()))
def test_its_docstring_names_every_parameter(name: str):
    params = workload.generators()[name].Params
    entries = [line.split(":")[0] for line in params.__doc__.splitlines() if ":" in line]
    assert {word for entry in entries for word in entry.strip().split(", ")} >= {f.name for f in fields(params)}


@pytest.mark.parametrize("name", SMALL)
def test_it_makes_a_valid_sorted_table_of_all_columns(name: str):
    table = workload.load(name, SMALL[name], servers(4), 1)
    assert table.column_names == names(JOBS)
    assert [f.type for f in table.schema] == [c.type for c in JOBS]
    assert validate(table, JOBS, name) == []
    assert (np.diff(column(table, "submit_time")) >= 0).all()


@pytest.mark.parametrize("name", SMALL)
def test_equal_seeds_give_equal_tables_and_other_seeds_others(name: str):
    first = workload.load(name, SMALL[name], servers(4), 5)
    np.random.default_rng().random()
    np.random.seed(1)
    assert first.equals(workload.load(name, SMALL[name], servers(4), 5))
    assert not first.equals(workload.load(name, SMALL[name], servers(4), 6))


def other(value: Any, key: str) -> Any:
    """Another legal value of this parameter."""
    special = {
        "batch_cards": [4] if not isinstance(value, list) or len(value) == 1 else [4, 2], "online_cards": [4], "batch_load": 1.5,
        "batch_card_weights": [0.5, 0.5], "training_instances": [1, 1, 1], "training_instance_weights": [1.0, 0.0, 0.0],
        "service_cards": [1, 2], "checkpoint_interval_s": 60.0, "batch_checkpoint_interval_s": 60.0, "start_weekday": 5,
        "training_network_domain": "rack", "load": 0.9, "guaranteed_share": 0.5, "none_share": 0.5, "cores_per_card": 3,
        "training_cards": 4, "weekend_factor": 0.1, "hour": [1.0] * 24, "weekday": [1.0] * 7, "size8_tilt": [1.0] * 24,
        "hp_day": [0.1, 0.1], "spot_day": [0.1, 0.1], "hp_long_duration_s": [1e5, 1e6], "spot_duration": [7.0, 1.0, 1e5],
        "hp_short_durations": [[1, 60, 1.0]], "hp_short_sizes": {"1x1": 1.0}, "hp_long_sizes": {"1x1": 1.0}, "spot_sizes": {"1x1": 1.0},
        "spot_restart_cost_s": [1.0, 2.0], "max_gang_share": 0.5, "spot_checkpoint_interval_s": 60.0,
        "instances": [1, 2, 4, 8, 16, 24], "instance_weights": [1, 1, 1, 1, 1, 1], "network_domain": "rack", "network_mode": "required",
        "tenants": 3,
    }
    if key in special:
        return special[key]
    return not value if isinstance(value, bool) else value * 0.5 if isinstance(value, float) and value else value + 1


TOGETHER = {"batch_card_weights": {"batch_cards": [1, 2]}, "online_card_weights": {"online_cards": [1, 2]}, "tenant_skew": {"tenants": 3},
            "training_network_domain": {"training_network_mode": "preferred"}, "weekend_factor": {"start_weekday": 5},
            "noise_time_s": {"noise": 0.3}}
"""What else must be set for a parameter to matter."""


@pytest.mark.parametrize("name, key", [(n, f.name) for n in SMALL for f in fields(workload.generators()[n].Params)
                                       if f.name not in ("training_network_mode",)])
def test_every_parameter_has_an_effect(name: str, key: str):
    given = dict(SMALL[name])
    default = getattr(workload.generators()[name].Params(), key)
    if key == "online_card_weights" or name == "paper_mix" and key == "batch_card_weights":
        given |= {**TOGETHER[key], key: [0.9, 0.1]}
        changed = {key: [0.1, 0.9]}
    elif key == "training_network_domain":
        changed = {key: "rack", **TOGETHER[key]}
    else:
        given |= {} if name == "diurnal" and key == "batch_card_weights" else TOGETHER.get(key, {})
        changed = {key: other(given.get(key, default), key)}
    cluster = servers(16)
    before, after = workload.load(name, given, cluster, 3), workload.load(name, {**given, **changed}, cluster, 3)
    assert not before.equals(after)


def test_streams_are_independent():
    a, b = (common.generator(3, s).random(10_000) for s in (common.Stream.BATCH_ARRIVAL, common.Stream.BATCH_DURATION))
    assert abs(np.corrcoef(a, b)[0, 1]) < SD / sqrt(10_000)


# Bad parameters


@pytest.mark.parametrize("name, given, words", [
    ("nothing", {}, ("workload.generator=nothing", "paper_mix")),
    ("paper_mix", {"preemtors": 3}, ("workload.preemtors", "preemptors", "online_share")),
    ("paper_mix", {"preemptors": "many"}, ("workload.preemptors=many", "whole number")),
    ("paper_mix", {"preemptors": 1.5}, ("workload.preemptors=1.5", "whole number")),
    ("paper_mix", {"preemptors": True}, ("workload.preemptors=True", "whole number")),
    ("paper_mix", {"preemptors": None}, ("workload.preemptors=None", "whole number")),
    ("paper_mix", {"preemptors": -1}, ("workload.preemptors=-1", ">= 0")),
    ("paper_mix", {"batch_cards": 2}, ("workload.batch_cards=2", "list")),
    ("paper_mix", {"batch_cards": [1, "x"]}, ("workload.batch_cards[1]=x", "whole number")),
    ("paper_mix", {"batch_cards": []}, ("workload.batch_cards", "at least one")),
    ("paper_mix", {"batch_cards": [1, 2]}, ("workload.batch_card_weights", "1 weights", "2 values")),
    ("paper_mix", {"batch_cards": [16]}, ("workload.batch_cards=[16]", "1 to 8")),
    ("paper_mix", {"batch_card_weights": [0.0]}, ("workload.batch_card_weights", "above 0")),
    ("paper_mix", {"online_share": 1.0}, ("workload.online_share=1.0", "> 0 and < 1")),
    ("paper_mix", {"batch_load": float("nan")}, ("workload.batch_load=nan", ">= 0")),
    ("paper_mix", {"batch_load": float("inf")}, ("workload.batch_load=inf", ">= 0")),
    ("paper_mix", {"guaranteed_share": 0.6, "none_share": 0.6}, ("workload.none_share", "more than 1")),
    ("paper_mix", {"batch_priority": 2**31}, ("workload.batch_priority=2147483648", "<=")),
    ("paper_mix", {"batch_duration_s": 1e-6}, ("jobs, more than",)),
    ("diurnal", {"load": 0.1}, ("workload.load=0.1", "workload.online_share")),
    ("diurnal", {"start_weekday": 7}, ("workload.start_weekday=7", "<= 6")),
    ("diurnal", {"training_network_domain": "row"}, ("workload.training_network_domain=row", "rack")),
    ("diurnal", {"training_network_domain": "rack"}, ("workload.training_network_mode=none", "preferred")),
    ("diurnal", {"training_preemptible": "yes"}, ("workload.training_preemptible=yes", "true or false")),
    ("spot", {"hp_load": -1}, ("workload.hp_load=-1", ">= 0")),
    ("spot", {"hour": [1.0]}, ("workload.hour=[1.0]", "24 numbers")),
    ("spot", {"hp_day": [0.4, 1.0]}, ("workload.hp_day[1]=1.0", "< 1")),
    ("spot", {"spot_sizes": {"8": 1}}, ("workload.spot_sizes.8", "4x8")),
    ("spot", {"hp_long_sizes": {"1x16": 1}}, ("workload.hp_long_sizes", "no size fits")),
    ("spot", {"hp_short_durations": [[60, 1, 1]]}, ("workload.hp_short_durations", "0 < from < to")),
    ("spot", {"hp_long_duration_s": [5, 5]}, ("workload.hp_long_duration_s", "ascending")),
    ("spot", {"hp_load": 1e9}, ("more than",)),
    ("fitted", {}, ("workload.classes=[]", "workload=openb_fitted")),
    ("fitted", {"kind": "services", "classes": [{}]}, ("workload.kind=services", "jobs or requests")),
    ("fitted", {"classes": [{"per_hour": 1}]}, ("workload.classes[0]", "no name")),
    ("fitted", {"classes": [{"name": "a", "per_hour": -1}]}, ("workload.classes[0].per_hour=-1", ">= 0")),
    ("fitted", {"classes": [{"name": "a", "per_hour": 1, "hour": [1]}]}, ("workload.classes[0].hour", "0 or 24")),
    ("fitted", {"classes": [{"name": "a", "per_hour": 1, "speed": 1}]}, ("workload.speed", "no such parameter")),
    ("fitted", {"classes": [{"name": "a", "per_hour": 1}]}, ("jobs need durations",)),
    ("fitted", {"kind": "requests", "classes": [{"name": "a", "per_hour": 1}]}, ("workload.classes[0].prompt", "31 ascending")),
    ("trace", {}, ("workload.path", "traces/paper_mix.parquet")),
    ("trace", {"path": 3}, ("workload.path=3", "text or null")),
])
def test_bad_parameters_give_one_line(name: str, given: dict[str, Any], words: tuple[str, ...]):
    with pytest.raises(BadInput) as error:
        workload.load(name, given, servers(4), 0)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_negative_seed_and_a_cluster_without_gpus_are_bad_input():
    with pytest.raises(BadInput, match="seed=-1"):
        workload.load("paper_mix", {}, servers(4), -1)
    for name in SMALL:
        with pytest.raises(BadInput, match="no GPU"):
            workload.load(name, {}, servers(4, gpus=0), 0)


def test_whole_numbers_pass_for_floats_and_back():
    params = workload.parameters("paper_mix", {"warmup_s": 60, "preemptors": 1e3, "generator": "paper_mix"})
    assert params == paper_mix.Params(warmup_s=60.0, preemptors=1000)
    assert isinstance(params.warmup_s, float) and isinstance(params.preemptors, int)
