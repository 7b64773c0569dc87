"""A model as typed objects: every value of the file arrives, and a file that does not fit is refused."""

import dataclasses
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping

import pytest
from conftest import ROOT

import onbeat
from onbeat import schema
from onbeat._decode import decode

PARTS = ["runs", "callbacks", "edges", "junctions", "chains", "end_to_end", "actions", "executors", "endpoints",
         "helpers", "assumptions", "coverage"]


def need_same(value, raw, place):
    """Fails unless an object has every value of its JSON, and its default where JSON has none."""
    if dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            of, name = getattr(value, one.name), one.name.rstrip("_")
            if name in raw:
                need_same(of, raw[name], f"{place}.{name}")
            else:
                assert of in (one.default, None, (), {}), f"{place}.{name}"
        assert set(raw) <= {one.name.rstrip("_") for one in dataclasses.fields(value)}, place
    elif isinstance(value, Mapping):
        assert list(value) == list(raw), place
        for key in raw:
            need_same(value[key], raw[key], f"{place}[{key}]")
    elif isinstance(value, tuple):
        assert len(value) == len(raw), place
        for number, one in enumerate(value):
            need_same(one, raw[number], f"{place}[{number}]")
    else:
        # Sums are decimal text.
        assert str(value) == raw if isinstance(raw, str) else value == raw, place


def test_the_classes_are_as_the_schema_says():
    subprocess.run([sys.executable, os.path.join(ROOT, "scripts/python_schema.py"), "--check"], check=True)
    with open(os.path.join(ROOT, "docs/model.schema.json"), encoding="utf-8") as file:
        parts = set(json.load(file)["properties"]) - {"schema", "evidence"}
    assert parts == set(PARTS) == {name for name in dir(onbeat.Model) if name in parts}


def test_every_value_of_a_model_arrives():
    with open("model.json", encoding="utf-8") as file:
        raw = json.load(file)
    model = onbeat.open("model.json")
    for part in PARTS:
        need_same(tuple(getattr(model, part)), raw.get(part, []), part)
    assert len(model.callbacks) == 9 and len(model.chains) == 2


def test_a_file_is_read_when_it_is_asked_for(tmp_path):
    path = tmp_path / "later.json"
    path.write_text("{}")
    model = onbeat.open(path)
    path.write_bytes(onbeat.open("model.json")._bytes())
    callbacks = model.callbacks
    assert callbacks._made == {}
    assert callbacks[-1].id == model.callback(callbacks[-1].id).id
    assert list(callbacks._made) == [8]


def test_quantiles_are_those_of_the_command():
    model, count = onbeat.open("model.json"), 0
    for one in [*model.callbacks, *model.edges, *model.chains]:
        for field in dataclasses.fields(one):
            dist = getattr(one, field.name)
            if isinstance(dist, schema.Dist):
                count += 1
                assert (dist.quantile(0.5), dist.quantile(0.9), dist.quantile(0.99)) == (dist.p50, dist.p90, dist.p99)
                assert sum(number for _, _, number in dist.filled()) == dist.count
    assert count > 60


def test_buckets_of_older_files_have_the_same_quantiles():
    dist = onbeat.open("model.json").chain("664e").latency_ns
    older = dataclasses.replace(dist, buckets=tuple((low, count) for low, _, count in dist.filled()))
    assert list(older.filled()) == list(dist.filled())


def test_objects_do_not_change_and_pass_between_processes():
    callback = onbeat.open("model.json").callbacks[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        callback.id = "/other"
    with pytest.raises(TypeError):
        callback.per_run["x"] = 1
    assert pickle.loads(pickle.dumps(callback)) == callback


def changed(change):
    """The recorded model with a change, as bytes."""
    value = json.loads(onbeat.open("model.json")._bytes())
    change(value)
    return json.dumps(value).encode()


def exec_count(value):
    value["callbacks"][1]["exec_ns"]["count"] = "many"


def no_latency(value):
    del value["chains"][0]["latency_ns"]


def unknown_type(value):
    value["callbacks"][0]["type"] = "daemon"


def truth_for_number(value):
    value["edges"][0]["lost"] = True


def bad_sum(value):
    value["chains"][0]["latency_ns"]["sum"] = "1" * 5000


def bad_run(value):
    value["callbacks"][0]["per_run"] = {"a\x1bb": 3}


@pytest.mark.parametrize("change, said", [
    (exec_count, "callbacks[1].exec_ns.count is not a whole number"),
    (no_latency, "chains[0] lacks latency_ns"),
    (unknown_type, "callbacks[0].type is 'daemon', which this version of onbeat does not know"),
    (truth_for_number, "edges[0].lost is not a whole number"),
    (bad_sum, "chains[0].latency_ns.sum is not a whole number as text"),
    (bad_run, r"callbacks[0].per_run['a\x1bb'] is not an object"),
    (lambda value: value.update(chains={}), "chains is not a list"),
    (lambda value: value.update(schema="onbeat-model/2"), "its schema is 'onbeat-model/2'"),
])
def test_a_value_that_does_not_fit_is_named(change, said, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(changed(change))
    model = onbeat.open(path)
    with pytest.raises(onbeat.BadFile) as caught:
        for part in PARTS:
            list(getattr(model, part))
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[" * 100_000, b'{"schema":', b"[1]", b'{"schema": NaN}',
                                     b'"' + b"9" * 10 + b'"', b'{"a":1' + b"0" * 5000 + b"}"])
def test_a_file_that_is_not_a_model_is_refused(content, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(onbeat.BadFile) as caught:
        list(onbeat.open(path).callbacks)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("buckets", ["x", "5x", "5 -", "99999999999999", "1 2xé"])
def test_damaged_buckets_are_refused(buckets):
    raw = json.loads(onbeat.open("model.json")._bytes())["chains"][0]["latency_ns"]
    with pytest.raises(onbeat.BadFile):
        decode(schema.Dist, {**raw, "buckets": buckets}, "here").quantile(0.5)


def test_a_name_that_means_none_or_many_is_refused():
    model = onbeat.open("model.json")
    with pytest.raises(onbeat.OnbeatError, match="2 chains have an id that begins with 'chain-'"):
        model.chain("chain-")
    with pytest.raises(onbeat.OnbeatError, match="no callback has an id that ends with '/nobody'"):
        model.callback("/nobody")


def test_a_model_is_saved_whole_or_not_at_all(tmp_path):
    model = onbeat.open_trace("demos/recorded/parking").model
    with pytest.raises(onbeat.OnbeatError, match="not in a file"):
        os.fspath(model)
    saved = model.save(tmp_path / "saved.json")
    assert saved.chains[0] == model.chains[0]
    assert onbeat.diff(model, saved).changed is False
    with pytest.raises(onbeat.OnbeatError, match="cannot write"):
        model.save(tmp_path / "nowhere" / "saved.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(onbeat.OnbeatError, match="cannot write .*folder"):
        model.save(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "saved.json"]
