"""Records: they survive the way to disk and back, and every broken rule is named to the reader."""

import copy
import json
import math
from dataclasses import is_dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from results import records
from results.records import (
    ClaimResult,
    ClusterRef,
    Host,
    Interval,
    Metric,
    Number,
    PaperPlace,
    PaperValue,
    PointResult,
    Provenance,
    Record,
    RecordedEvent,
    RecordedTimeline,
    RecordError,
    read_record,
    schema,
    validation,
    write_record,
)
from results.records.errors import InvalidResultsError

SCHEMA = json.loads((validation.SCHEMAS / "record-2.schema.json").read_text(encoding="utf-8"))
DIGEST = "0123456789abcdef" * 4


def example():
    """A record in which every field of the schema occurs, the optional ones too."""
    made_by = Provenance(
        commit="0a" * 20,
        dirty=False,
        versions={"python": "3.11.7", "ptdp": "0.1.0", "torch": "2.13.0+cu130"},
        host=Host("Linux 6.1.0", "x86_64", "AMD EPYC", 16, 2**37, ("NVIDIA A100-SXM4-80GB",), 8),
        command=("reproduce", "fig_interleaved"),
        seed=1234,
        started="2021-11-14T09:00:00Z",
        duration_s=12.5,
        cluster=ClusterRef("selene", DIGEST),
        code_digest=DIGEST,
        environment={"cpu_governor": "performance"},
    )
    points = (
        PointResult(
            key="interleaved/B=12",
            series="interleaved",
            label="B = 12",
            parameters={"p": 12, "B": 12, "schedule": "interleaved", "scatter_gather": True, "v": None, "x": 0.5},
            status="ok",
            reason=None,
            fingerprint=DIGEST,
            metrics={
                "throughput_per_gpu": Metric(1.09e14, "FLOP/s", "simulated"),
                "step_time": Metric(2.0, "s", "measured", (1.9, 2.0, 2.1), Interval(1.8, 2.2, 0.9)),
            },
            paper={"throughput_per_gpu": PaperValue(1.11e14, "FLOP/s", "plot", 1e12)},
            timelines=(RecordedTimeline("emulated", ((RecordedEvent("F", 0, 0, 0.0, 0.5),), ())),),
        ),
        PointResult(
            "out/B=60", "out", "", {}, "oom", "needs 90 GB", DIGEST, {"step_time": Metric(None, "s", "measured")}
        ),
    )
    claim = ClaimResult(
        id="interleaving_helps",
        sentence="The interleaved schedule improves throughput by 10+%.",
        place="Section 2.2.2",
        fidelity="simulated",
        tolerance="gain >= 10% at the smallest batch",
        verdict="paper inconsistent",
        explanation="Figure 12 shows +45% to +8%.",
        numbers={"gain": Number(0.45, "1", "derived"), "paper_gain": Number(0.1, "1", "paper")},
        by="paper",
        rule="up to",
        set_with=("gemm_plateau",),
    )
    return Record(
        kind="artifact",
        id="fig_interleaved",
        title="Interleaved schedule",
        paper=PaperPlace("Figure 12", "5.3.2"),
        fidelity="simulated",
        scale="paper",
        state="complete",
        provenance=made_by,
        points=points,
        claims=(claim,),
        notes=("175 milliards de paramètres",),
    )


def minimal():
    host = Host("Linux", "x86_64", None, None, None)
    made_by = Provenance(None, None, {}, host, (), None, "2021-11-14T09:00:00.123456Z", 0)
    return Record("benchmark", "gemm", "GEMM", None, "measured", "laptop", "partial", made_by)


# The schema


def test_the_schema_is_valid():
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def objects(schema):
    """Every subschema that describes an object by itself (those of if, then and else only add to one)."""
    if isinstance(schema, list):
        return [nested for item in schema for nested in objects(item)]
    if not isinstance(schema, dict):
        return []
    here = [schema] if "additionalProperties" in schema or "object" in schema.get("type", ()) else []
    return here + [
        inner for key, item in schema.items() if key not in ("if", "then", "else") for inner in objects(item)
    ]


def test_the_schema_is_closed():
    schemas = objects(SCHEMA)
    assert len(schemas) > 10
    assert all(schema["additionalProperties"] is False for schema in schemas)


def test_the_schema_s_file_is_what_the_classes_say():
    assert schema.FILE.read_text(encoding="utf-8") == schema.text(), "write it: python -m results.records.schema"
    assert json.loads(schema.text()) == SCHEMA
    assert list(example().to_json()) == list(SCHEMA["properties"])
    assert SCHEMA["properties"]["schema"]["const"] == records.SCHEMA


WORDS = {
    "unit": records.UNITS,
    "origin": records.ORIGINS,
    "fidelity": records.FIDELITIES,
    "status": records.STATUSES,
    "verdict": records.VERDICTS,
    "how": records.READINGS,
}
# Of version 1, whose words are settled; and what says other things of checks, trials and sessions under the same names.
OWN_WORDS = {"record-1", "exact-1", "gate-1", "bench-gpu-1"}


def enums(schema):
    """Every list of words in a schema, with the name of what it is of."""
    for name, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if isinstance(value, dict) and "enum" in value and isinstance(name, str):
            yield name, value["enum"]
        if isinstance(value, dict | list):
            yield from enums(value)


def test_the_words_of_every_schema_are_those_of_the_records():
    assert {name: tuple(words) for name, words in enums(SCHEMA) if name in WORDS} == WORDS
    for file in validation.SCHEMAS.glob("*.schema.json"):
        if file.name.removesuffix(".schema.json") not in OWN_WORDS:
            for name, words in enums(json.loads(file.read_text(encoding="utf-8"))):
                assert set(words) <= set(WORDS.get(name, words)), (file.name, name)


# Round trips


@pytest.mark.parametrize("make", [example, minimal])
def test_round_trip(make, tmp_path):
    path = tmp_path / "new" / "folder" / "record.json"
    write_record(make(), path)
    assert read_record(path) == make()
    first = path.read_bytes()
    write_record(read_record(path), path)
    assert path.read_bytes() == first
    assert first.endswith(b"}\n")
    assert first.startswith(b'{\n "schema": "ptdp-record/2",\n "kind": ')


def test_lists_and_numpy_scalars_become_plain():
    metric = Metric(np.float32(0.5), "s", "measured", [np.int64(1), np.float64(2.5)])
    assert metric == Metric(0.5, "s", "measured", (1, 2.5))
    assert [type(sample) for sample in metric.samples or ()] == [int, float]
    point = PointResult("k", "s", "l", {"B": np.int64(3)}, "ok", None, DIGEST)
    assert type(point.parameters["B"]) is int


def test_maps_are_written_in_a_stable_order():
    point = PointResult("k", "s", "l", {"p": 1, "B": 2}, "ok", None, DIGEST)
    assert list(point.to_json()["parameters"]) == ["B", "p"]


def test_text_that_is_not_unicode_survives(tmp_path):
    record = Record(**{**vars(minimal()), "notes": ("\udcff",)})
    write_record(record, tmp_path / "r.json")
    assert read_record(tmp_path / "r.json") == record


words = st.text(min_size=1, max_size=8)
names = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
finite = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
units, origins = st.sampled_from(records.UNITS), st.sampled_from(records.ORIGINS)
fidelities = st.sampled_from(records.FIDELITIES)
samples = st.lists(finite, min_size=1, max_size=3).map(tuple)
intervals = st.none() | st.builds(Interval, finite, finite, st.floats(0.01, 1))
metrics = st.builds(Metric, finite, units, origins, samples, intervals)
paper_values = st.builds(
    PaperValue, finite, units, st.sampled_from(("table", "text", "plot", "script")), st.none() | st.floats(0, 1e9)
)
scalars = st.one_of(st.none(), st.booleans(), st.text(max_size=5), finite)


@st.composite
def points(draw):
    status = draw(st.sampled_from(records.STATUSES))
    values = metrics if status == "ok" else metrics | st.builds(Metric, st.none(), units, origins)
    return PointResult(
        key=draw(words),
        series=draw(st.text(max_size=5)),
        label=draw(st.text(max_size=5)),
        parameters=draw(st.dictionaries(st.sampled_from(["p", "t", "B", "x_1"]), scalars)),
        status=status,
        reason=None if status == "ok" else draw(words),
        fingerprint=draw(digests),
        metrics=draw(st.dictionaries(names, values, max_size=2)),
        paper=draw(st.dictionaries(names, paper_values, max_size=2)),
    )


claims = st.builds(
    ClaimResult,
    names,
    words,
    words,
    fidelities,
    st.none() | words,
    st.sampled_from(records.VERDICTS),
    words,
    st.dictionaries(names, st.builds(Number, finite, units, origins), max_size=2),
    st.none() | st.sampled_from(records.record.BY),
    st.none() | words,
    st.lists(words, max_size=2).map(tuple),
)
provenances = st.builds(
    Provenance,
    commit=st.none() | st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    dirty=st.none() | st.booleans(),
    versions=st.dictionaries(names, words, max_size=2),
    host=st.builds(
        Host,
        words,
        words,
        st.none() | words,
        st.none() | st.integers(1),
        st.none() | st.integers(1),
        st.lists(words, max_size=2).map(tuple),
        st.integers(0),
    ),
    command=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    seed=st.none() | st.integers(),
    started=st.datetimes(datetime(1000, 1, 1)).map(lambda time: time.isoformat(timespec="microseconds") + "Z"),
    duration_s=st.floats(0, 1e9),
    cluster=st.none() | st.builds(ClusterRef, words, digests),
    code_digest=st.none() | digests,
)
any_record = st.builds(
    Record,
    kind=st.sampled_from(("artifact", "benchmark", "comparison")),
    id=names,
    title=words,
    paper=st.none() | st.builds(PaperPlace, words, st.none() | words),
    fidelity=fidelities,
    scale=words,
    state=st.sampled_from(("complete", "partial")),
    provenance=provenances,
    points=st.lists(points(), max_size=2, unique_by=lambda point: point.key).map(tuple),
    claims=st.lists(claims, max_size=2, unique_by=lambda claim: claim.id).map(tuple),
    notes=st.lists(words, max_size=2).map(tuple),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(record=any_record)
def test_any_record_survives_a_round_trip(record, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.json"
    write_record(record, path)
    assert read_record(path) == record


# What is refused, and how that reads

ABSENT = object()
OPTIONAL = {"environment", "timelines", "interval", "by", "rule", "set_with"}

with Path(__file__).with_name("broken.txt").open(encoding="utf-8") as table:
    ROWS = [line.strip().split(" | ") for line in table if line.startswith("/")]
# (where to put what, the pointer of the message if it is another, what is needed)
BROKEN = [
    ("/claims/1", example().to_json()["claims"][0], "/claims/1/id", "one that differs from /claims/0/id"),
    *((where, ABSENT if what == "absent" else json.loads(what), None, needs) for where, what, needs in ROWS),
]


def at(document, pointer):
    for part in (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def put(document, pointer, value):
    above, _, last = pointer.rpartition("/")
    document, last = at(document, above), last.replace("~1", "/").replace("~0", "~")
    if value is ABSENT:
        del document[last]
    elif isinstance(document, list):
        document[int(last) : int(last) + 1] = [value]
    else:
        document[last] = value


def parts(value, pointer=""):
    """Every part of a record, with its pointer."""
    yield pointer, value
    inner = vars(value) if is_dataclass(value) else value if isinstance(value, dict) else {}
    for key, part in enumerate(value) if isinstance(value, tuple) else inner.items():
        yield from parts(part, f"{pointer}/{key}")


PARTS = dict(parts(example()))
OBJECTS = [pointer for pointer, part in PARTS.items() if is_dataclass(part)]
for place in OBJECTS:
    required = at(example().to_json(), place).keys() - OPTIONAL
    BROKEN += [(f"{place}/{key}", ABSENT, None, "this key; the object has ") for key in sorted(required)]
BROKEN += [(f"{place}/extra", 1, None, "one of the keys ") for place in OBJECTS]
for pointer, part in PARTS.items():
    if pointer and (is_dataclass(part) or isinstance(part, dict)):
        BROKEN.append((pointer, "{}", None, "object"))
    if "/parameters/" not in pointer and type(part) in (int, float):
        BROKEN.append((pointer, "1", None, "integer" if type(part) is int else "number"))
    if "/parameters/" not in pointer and isinstance(part, str):
        is_a_choice = pointer.rpartition("/")[2] in {*WORDS, "kind", "state", "by"}
        BROKEN.append((pointer, 1, None, part if is_a_choice else "string"))


@pytest.mark.parametrize(
    ("pointer", "value", "shown", "needs"),
    BROKEN,
    ids=lambda value: value if isinstance(value, str) and value.startswith("/") else "",
)
def test_every_broken_rule_is_named(pointer, value, shown, needs, tmp_path):
    document = copy.deepcopy(example().to_json())
    put(document, pointer, value)
    path = tmp_path / "record.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidResultsError) as caught:
        read_record(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {shown or pointer}: found ")
    assert needs in message.partition("; needs ")[2]
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))


def rules(schema):
    """Every keyword that can refuse a document, with the identity of the subschema it stands in."""
    if isinstance(schema, list):
        return {rule for item in schema for rule in rules(item)}
    if not isinstance(schema, dict):
        return set()
    keywords = set(schema) & {
        *("type", "enum", "const", "pattern", "minLength", "minItems", "minimum", "required"),
        "additionalProperties",
    }
    if schema.get("additionalProperties") is not False:
        keywords -= {"additionalProperties"}
    keywords_of = {(id(schema), keyword) for keyword in keywords}
    return keywords_of | {rule for key, item in schema.items() if key != "if" for rule in rules(item)}


def test_no_rule_of_the_schema_goes_untested():
    validator = Draft202012Validator(SCHEMA)
    broken = set()
    for pointer, value, *_ in BROKEN:
        document = example().to_json()
        put(document, pointer, value)
        broken |= {(id(error.schema), error.validator) for error in validator.iter_errors(document)}
    broken |= {(id(error.schema), error.validator) for error in validator.iter_errors([])}
    assert {keyword for _, keyword in rules(SCHEMA) - broken} == set()


def test_a_point_that_is_not_ok_may_lack_a_measured_value():
    document = example().to_json()
    put(document, "/points/1/metrics/step_time", {"value": None, "unit": "s", "origin": "measured"})
    assert Record.from_json(document).points[1].metrics["step_time"].value is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1, column 1: found no valid JSON"),
        (b'{"schema":\n "ptdp', "line 2, column 2: found no valid JSON"),
        (b"\xff", "found no valid JSON ('utf-8' codec"),
        (b"[" * 100_000, "found no valid JSON"),
        (b"1" * 5000, "found no valid JSON"),
        (b"[]", "the document: found []; needs object"),
        (b"NaN", "the document: found NaN; needs object"),
        (b"{}", "/schema: found nothing; needs this key; the object has none"),
    ],
)
def test_what_is_no_record_is_refused(data, says, tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(data)
    with pytest.raises(InvalidResultsError) as caught:
        read_record(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_number_too_large_for_a_float_is_refused():
    text = json.dumps(example().to_json()).replace("1.9,", "1e999,")
    with pytest.raises(RecordError, match=r"samples/0: found inf; needs a finite number"):
        Record.from_json(json.loads(text))


def test_an_absent_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "absent.json")


def test_an_invalid_record_is_not_written(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(RecordError, match=r"r\.json: /kind: found \"figure\"; needs one of"):
        write_record(Record(**{**vars(minimal()), "kind": "figure"}), path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Metric(math.nan, "s", "simulated"), "value=nan is not finite"),
        (lambda: Metric(-math.inf, "s", "simulated"), "value=-inf is not finite"),
        (lambda: Metric(np.float32("nan"), "s", "simulated"), "value=.*nan.* is not finite"),
        (lambda: Metric(True, "s", "simulated"), "value=True is not a number"),
        (lambda: Metric("1", "s", "simulated"), "value='1' is not a number"),
        (lambda: Metric(1, "ms", "simulated"), "unit='ms' is unknown; needs one of 1, count, s"),
        (lambda: Metric(1, "s", "guessed"), "origin='guessed' is unknown"),
        (lambda: Metric(1, "s", "measured"), "samples=None of a measured value"),
        (lambda: Metric(1, "s", "measured", (1, math.inf)), r"samples\[1\]=inf is not finite"),
        (lambda: Number(None, "s", "derived"), "value=None is not a number"),
        (lambda: PaperValue(math.nan, "s", "text"), "value=nan is not finite"),
        (lambda: PaperValue(1, "s", "plot", math.nan), "quantum=nan is not finite"),
        (lambda: PaperValue(1, "s", "eye"), "how='eye' is unknown"),
        (lambda: PointResult("k", "", "", {"x": math.nan}, "ok", None, DIGEST), "parameters.x=nan is not finite"),
        (lambda: PointResult("k", "", "", {}, "fine", None, DIGEST), "status='fine' is unknown"),
        (lambda: PointResult("k", "", "", {}, "ok", "why", DIGEST), "reason='why' of a point whose status is 'ok'"),
        (lambda: PointResult("k", "", "", {}, "oom", None, DIGEST), "reason=None of a point whose status is 'oom'"),
        (lambda: PointResult("k", "", "", {}, "ok", "", DIGEST), "reason='' of a point"),
        (
            lambda: PointResult("k", "", "", {}, "ok", None, DIGEST, {"x": Metric(None, "s", "derived")}),
            "metrics.x=None of a point whose status is 'ok'",
        ),
        (lambda: ClaimResult("c", "s", "p", "measured", None, "yes", "e"), "verdict='yes' is unknown"),
        (lambda: ClaimResult("c", "s", "p", "real", None, "holds", "e"), "fidelity='real' is unknown"),
        (lambda: Provenance(None, None, {}, minimal().provenance.host, (), 0, "", math.inf), "duration_s=inf"),
    ],
)
def test_slips_are_caught_where_they_are_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()
