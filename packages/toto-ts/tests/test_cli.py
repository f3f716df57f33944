"""The commands, through the real entry point and real files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toto_ts import TotoForecaster
from toto_ts.cli import app

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")


@pytest.fixture
def toto_ts(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command; gives exit code, standard output and standard error."""
    from nips_common.cli import run

    def call(*arguments: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run(app, [str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def checkpoint(make_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_model(labels=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hosts, two targets and a temperature over 60 hours, as CSV."""
    generator = np.random.default_rng(0)
    frames = [
        pd.DataFrame(
            {
                "host": host,
                "when": pd.date_range("2024-01-01", periods=60, freq="h"),
                "cpu": 50 + generator.normal(size=60),
                "latency": 100 + generator.normal(size=60),
                "temperature": 20 + generator.normal(size=60),
            }
        )
        for host in ("a", "b")
    ]
    path = tmp_path_factory.mktemp("data") / "metrics.csv"
    pd.concat(frames).to_csv(path, index=False)
    return path


SERIES = ["--timestamp", "when", "--id", "host", "--targets", "cpu,latency"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_forecast_writes_what_the_forecaster_says(
    toto_ts: Any, checkpoint: Path, table: Path, tmp_path: Path, ending: str
) -> None:
    output = tmp_path / f"out.{ending}"
    arguments = ["--checkpoint", checkpoint, "--input", table, "--output", output, *SERIES, "--horizon", 12]
    code, out, err = toto_ts("forecast", *arguments, "--samples", 8, "--seed", 3, "--device", "cpu")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"series": 2, "targets": ["cpu", "latency"], "rows": 48, "files": [str(output)]}
    written = pd.read_csv(output, parse_dates=["when"]) if ending == "csv" else pd.read_parquet(output)
    from toto_ts import Toto

    expected = TotoForecaster(Toto.from_pretrained(checkpoint)).forecast_df(
        pd.read_csv(table), 12, "host", "when", ["cpu", "latency"], num_samples=8, seed=3
    )
    pd.testing.assert_frame_equal(written, expected, rtol=1e-5, check_dtype=False)


def test_forecast_draws_a_plot_and_uses_the_end_of_the_context(
    toto_ts: Any, checkpoint: Path, table: Path, tmp_path: Path
) -> None:
    files = ["--input", table, "--output", tmp_path / "out.csv", "--plot", tmp_path / "out.png"]
    arguments = [*SERIES, "--horizon", 8, "--samples", 0, "--context", 24]
    code, out, _ = toto_ts("forecast", "--checkpoint", checkpoint, *files, *arguments)
    assert code == 0
    assert json.loads(out)["files"] == [str(tmp_path / "out.csv"), str(tmp_path / "out.png")]
    assert (tmp_path / "out.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    from toto_ts import Toto

    short = pd.read_csv(table).groupby("host").tail(24)
    expected = TotoForecaster(Toto.from_pretrained(checkpoint)).forecast_df(
        short, 8, "host", "when", ["cpu", "latency"], num_samples=None
    )
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["0.9"], expected["0.9"], rtol=1e-5)


def test_forecast_takes_known_futures(toto_ts: Any, checkpoint: Path, table: Path, tmp_path: Path) -> None:
    future = pd.DataFrame(
        {
            "host": np.repeat(["a", "b"], 10),
            "when": np.tile(pd.date_range("2024-01-03 12:00", periods=10, freq="h"), 2),
            "temperature": 25.0,
        }
    )
    future.to_csv(tmp_path / "future.csv", index=False)
    files = ["--input", table, "--future-exog", tmp_path / "future.csv", "--output", tmp_path / "out.csv"]
    code, _, err = toto_ts("forecast", "--checkpoint", checkpoint, *files, *SERIES, "--horizon", 10, "--samples", 4)
    assert (code, err) == (0, "")
    code, _, err = toto_ts("forecast", "--checkpoint", checkpoint, *files, *SERIES, "--horizon", 11)
    assert code == 2
    assert "future_df lacks 1 of 11 stamps of item 'a'" in err


def test_an_output_that_is_the_input_is_refused(toto_ts: Any, checkpoint: Path, table: Path) -> None:
    before = table.read_bytes()
    files = ["--input", table, "--output", table]
    code, _, err = toto_ts("forecast", "--checkpoint", checkpoint, *files, *SERIES, "--horizon", 4)
    assert code == 2
    assert "is an input too, which it would overwrite" in err
    assert table.read_bytes() == before


@pytest.mark.parametrize(("module", "option"), [("pyarrow", "--output=out.parquet"), ("matplotlib", "--plot=out.png")])
def test_a_missing_extra_is_told_before_anything_is_written(
    toto_ts: Any, checkpoint: Path, table: Path, tmp_path: Path, monkeypatch: Any, module: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    files = ["--input", table, "--output", "out.csv", option]
    code, _, err = toto_ts("forecast", "--checkpoint", checkpoint, *files, *SERIES, "--horizon", 4)
    assert code != 0
    assert 'pip install "toto-ts[train]"' in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--input": "nothing.csv"}, "nothing.csv: no such file"),
        ({"--input": "model.safetensors"}, "no such file"),
        ({"--output": "out.json"}, "--output must end in .csv, .tsv, .parquet"),
        ({"--output": "no/where/out.csv"}, "no such folder"),
        ({"--plot": "out.svg"}, "--plot must end in .png"),
        ({"--targets": ","}, "--targets must name at least one column"),
        ({"--targets": "gpu"}, "df lacks the columns ['gpu']"),
        ({"--quantiles": "low"}, "--quantiles must be numbers separated by commas, got 'low'"),
        ({"--quantiles": "0.5,1.5"}, "strictly between 0 and 1, got 1.5"),
        ({"--checkpoint": "nowhere"}, "nowhere: no such folder"),
        ({"--horizon": "0"}, "horizon must be a whole number of at least 1, got 0"),
        ({"--samples": "-1"}, "num_samples must be a whole number of at least 1, got -1"),
        ({"--fill": "median"}, "fill must be one of mean, zero, last, got 'median'"),
        ({"--device": "tpu"}, "device must be one of auto"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_written(
    toto_ts: Any,
    checkpoint: Path,
    table: Path,
    tmp_path: Path,
    changes: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"--checkpoint": checkpoint, "--input": table, "--output": "out.csv", "--horizon": "4", "--samples": "4"}
    options |= dict(zip(SERIES[::2], SERIES[1::2], strict=True))
    code, out, err = toto_ts("forecast", *(part for pair in {**options, **changes}.items() for part in pair))
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_inspect_says_what_a_checkpoint_is(toto_ts: Any, checkpoint: Path, golden: Any, tmp_path: Path) -> None:
    code, out, _ = toto_ts("inspect", "--checkpoint", checkpoint)
    report = json.loads(out)
    assert code == 0
    assert report["config"]["embed_dim"] == 32
    assert report["variate_labels"]
    assert (report["missing"], report["unknown"], report["wrong_shape"]) == ([], [], {})
    fused = golden.model_folder("mixture_last", tmp_path, "mixture_last.fused_names")
    config = json.loads((fused / "config.json").read_text())
    (fused / "config.json").write_text(json.dumps({**config, "num_layers": 2, "pre_xformers_checkpoint": True}))
    report = json.loads(toto_ts("inspect", "--checkpoint", fused)[1])
    assert report["unknown_config_keys"] == ["pre_xformers_checkpoint"]
    assert len(report["unknown"]) == 20
    assert report["unknown"][0] == "model.transformer.layers.2.attention.wO.bias"


def test_the_version_is_printed(toto_ts: Any) -> None:
    from toto_ts import __version__

    assert toto_ts("--version")[1] == f"toto-ts {__version__}\n"


def test_finetune_is_the_training_script(toto_ts: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    code, out, err = toto_ts("finetune", "--config", tmp_path / "cfg.yaml")
    assert (code, out) == (2, "")
    assert "cfg.yaml: no such file" in err
