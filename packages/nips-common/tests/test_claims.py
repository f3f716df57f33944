"""Claims and reproductions: verdicts, and the JSON that the gallery reads."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nips_common.claims import Claim, ReproduceBudget, Reproduction, Table, reproduce_main
from nips_common.testing.bad_input import BadInput, bad_inputs

finite = st.floats(allow_nan=False, allow_infinity=False)
claims = st.builds(
    Claim,
    statement=st.text(),
    metric=st.text(),
    baseline=st.none() | finite,
    value=st.none() | finite,
    margin=finite,
    seeds=st.lists(finite).map(tuple),
    verdict=st.sampled_from(["holds", "fails", "not judged at this budget", "not run"]),
    higher_is_better=st.booleans(),
    reason=st.text(),
)
tables = st.builds(
    Table,
    title=st.text(),
    columns=st.lists(st.text()).map(tuple),
    rows=st.lists(st.lists(st.text() | finite).map(tuple)).map(tuple),
)
reproductions = st.builds(
    Reproduction,
    package=st.text(),
    method=st.text(),
    claims=st.lists(claims, max_size=3).map(tuple),
    tables=st.lists(tables, max_size=2).map(tuple),
    notes=st.lists(st.text()).map(tuple),
    plots=st.lists(st.text()).map(tuple),
    seconds=finite,
    budget=st.sampled_from(["quick", "full"]),
    settings=st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | finite | st.text()),
)

SMALL = Reproduction(
    package="dota-clip",
    method="DOTA",
    claims=(Claim.judge("DOTA beats zero-shot", "accuracy", [0.5, 0.5], [0.5, 0.75], 0.02),),
    tables=(Table("Accuracy", ("stream", "accuracy"), (("blur", 0.5), ("noise", 1))),),
    plots=("accuracy.png",),
)


@settings(max_examples=25)
@given(reproductions)
def test_a_reproduction_comes_back_from_json_as_it_was(tmp_path_factory: pytest.TempPathFactory, result) -> None:
    file = tmp_path_factory.getbasetemp() / "reproduction.json"
    result.to_json(file)
    assert Reproduction.from_json(file) == result


def test_the_json_is_plain_and_holds_every_field(tmp_path: Path) -> None:
    SMALL.to_json(tmp_path / "reproduction.json")
    data = json.loads((tmp_path / "reproduction.json").read_text())
    assert list(data) == [field.name for field in dataclasses.fields(Reproduction)]
    assert data["claims"] == [
        {
            "statement": "DOTA beats zero-shot",
            "metric": "accuracy",
            "baseline": 0.5,
            "value": 0.625,
            "margin": 0.02,
            "seeds": [0.5, 0.75],
            "verdict": "holds",
            "higher_is_better": True,
            "reason": "",
        }
    ]
    assert data["tables"] == [
        {"title": "Accuracy", "columns": ["stream", "accuracy"], "rows": [["blur", 0.5], ["noise", 1]]}
    ]


@pytest.mark.parametrize(
    ("baseline", "value", "margin", "higher", "verdict"),
    [
        ([0.5], [0.6], 0.05, True, "holds"),
        ([0.5], [0.6], 0.2, True, "fails"),
        ([0.70], [0.72], 0.02, True, "holds"),  # 0.72 - 0.70 is 0.020000000000000018
        ([0.2], [0.3], 0.1, True, "holds"),  # 0.3 - 0.2 is 0.09999999999999998
        ([0.6], [0.5], 0.0, True, "fails"),
        ([0.5], [0.5], 0.0, True, "holds"),
        ([3.0], [2.0], 0.5, False, "holds"),
        ([2.0], [3.0], 0.5, False, "fails"),
        ([0.5, 0.7], [0.5, 0.9], 0.1, True, "holds"),
        ([0.5], [0.45], -0.1, True, "holds"),
    ],
)
def test_a_claim_holds_if_the_mean_gain_reaches_the_margin(baseline, value, margin, higher, verdict) -> None:
    claim = Claim.judge("s", "m", baseline, value, margin, higher_is_better=higher)
    assert claim.verdict == verdict
    assert claim.baseline == pytest.approx(sum(baseline) / len(baseline))
    assert claim.value == pytest.approx(sum(value) / len(value))
    assert claim.seeds == tuple(value)


def test_a_budget_that_cannot_decide_keeps_the_numbers() -> None:
    claim = Claim.judge("s", "m", [0.5], [0.9], 0.1, judged=False, reason="one seed")
    assert (claim.verdict, claim.value, claim.reason) == ("not judged at this budget", 0.9, "one seed")


@pytest.mark.parametrize(("baseline", "value"), [(0.5, math.nan), (math.inf, 0.5), (math.nan, math.nan)])
def test_numbers_that_are_not_finite_fail_and_are_told_as_words(tmp_path: Path, baseline: float, value: float) -> None:
    claim = Claim.judge("s", "m", [baseline], [value], 0.1, reason="lost")
    assert (claim.verdict, claim.baseline, claim.value, claim.seeds) == ("fails", None, None, ())
    assert claim.reason == f"{baseline} -> {value}"
    dataclasses.replace(SMALL, claims=(claim,)).to_json(tmp_path / "r.json")
    assert Reproduction.from_json(tmp_path / "r.json").claims == (claim,)


def test_a_claim_without_any_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Claim.judge("s", "m", [], [], 0.1)


def _read(folder: Path, change) -> None:
    SMALL.to_json(folder / "r.json")
    data = json.loads((folder / "r.json").read_text())
    change(data)
    (folder / "r.json").write_text(json.dumps(data))
    Reproduction.from_json(folder / "r.json")


def _write(folder: Path, **changes) -> None:
    dataclasses.replace(SMALL, **changes).to_json(folder / "r.json")


@bad_inputs(
    [
        BadInput(
            "unknown and missing",
            lambda f: _read(f, lambda d: (d.pop("method"), d.update(plot=[], extra=1))),
            ("r.json: unknown: extra, plot; missing: method",),
        ),
        BadInput(
            "claim key",
            lambda f: _read(f, lambda d: d["claims"][0].pop("margin")),
            ("r.json.claims[0]: missing: margin",),
        ),
        BadInput(
            "verdict",
            lambda f: _read(f, lambda d: d["claims"][0].update(verdict="yes")),
            ("claims[0].verdict", "'yes'", "holds"),
        ),
        BadInput(
            "text for a number",
            lambda f: _read(f, lambda d: d["claims"][0].update(value="1")),
            ("claims[0].value", "'1'"),
        ),
        BadInput(
            "a number for text", lambda f: _read(f, lambda d: d.update(package=3)), ("r.json.package must be str", "3")
        ),
        BadInput("text for a list", lambda f: _read(f, lambda d: d.update(notes="abc")), ("r.json.notes", "'abc'")),
        BadInput(
            "null in a row",
            lambda f: _read(f, lambda d: d["tables"][0]["rows"][1].append(None)),
            ("rows[1][2]", "None"),
        ),
        BadInput(
            "a flag for a number", lambda f: _read(f, lambda d: d.update(seconds=True)), ("r.json.seconds", "True")
        ),
        BadInput(
            "a number for a flag",
            lambda f: _read(f, lambda d: d["claims"][0].update(higher_is_better=1)),
            ("higher_is_better",),
        ),
        BadInput("budget", lambda f: _read(f, lambda d: d.update(budget="large")), ("budget", "'large'", "quick")),
        BadInput(
            "NaN in the file", lambda f: _read(f, lambda d: d.update(seconds=math.nan)), ("r.json: not valid JSON",)
        ),
        BadInput("written NaN", lambda f: _write(f, seconds=math.nan), ("r.json.seconds", "finite", "nan")),
        BadInput(
            "written infinity in a table",
            lambda f: _write(f, tables=(Table("t", ("a",), ((1.0,), (math.inf,))),)),
            ("r.json.tables[0].rows[1][0]", "finite", "inf"),
        ),
        BadInput("written NaN in the settings", lambda f: _write(f, settings={"lr": math.nan}), ("r.json", "JSON")),
        BadInput("written object", lambda f: _write(f, settings={"path": Path("x")}), ("r.json", "JSON")),
    ]
)
def test_bad_input(case: BadInput, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_a_refused_reproduction_leaves_the_old_file(tmp_path: Path) -> None:
    SMALL.to_json(tmp_path / "r.json")
    with pytest.raises(ValueError, match="finite"):
        _write(tmp_path, seconds=math.inf)
    assert Reproduction.from_json(tmp_path / "r.json") == SMALL


def test_the_program_writes_the_result_with_its_budget_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[ReproduceBudget] = []

    def experiment(budget: ReproduceBudget, folder: Path) -> Reproduction:
        asked.append(budget)
        assert not (folder / "reproduction.json").exists()
        (folder / "accuracy.png").write_bytes(b"png")
        return SMALL

    out = tmp_path / "deep" / "dota-clip"
    for options, budget in ([], "quick"), (["--full"], "full"):
        reproduce_main(experiment, ["--out", str(out), *options])
        result = Reproduction.from_json(out / "reproduction.json")
        assert asked[-1] == result.budget == budget
        assert 0 <= result.seconds < 60
        assert result.claims == SMALL.claims
        assert capsys.readouterr().out == "holds: DOTA beats zero-shot (accuracy: 0.5 -> 0.625)\n"


def test_a_failed_experiment_leaves_no_result_of_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SMALL.to_json(tmp_path / "reproduction.json")

    def experiment(budget: ReproduceBudget, folder: Path) -> Reproduction:
        raise ValueError("the data set is empty")

    with pytest.raises(SystemExit) as caught:
        reproduce_main(experiment, ["--out", str(tmp_path)])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "reproduce: error: the data set is empty\n"
    assert not (tmp_path / "reproduction.json").exists()


def test_a_plot_that_was_not_drawn_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        reproduce_main(lambda budget, folder: SMALL, ["--out", str(tmp_path)])
    assert caught.value.code == 2
    assert "lacks the plots ['accuracy.png']" in capsys.readouterr().err
