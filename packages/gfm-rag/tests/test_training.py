"""Both stages of training, on tiny graphs that can be learnt."""

from __future__ import annotations

import json
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from gfm_rag import GFMConfig, GNNRetriever, HashingEncoder, KGIndex, QueryGNN
from gfm_rag.prepared_graphs import PreparedGraphs, scratch_folder
from gfm_rag.training_data import GraphBatches, GraphPool, QuestionGraph, TripleGraph

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

CITIES = 12


def country_index(cities: int = CITIES) -> KGIndex:
    """People live in cities, cities lie in countries."""
    triples, documents = [], {}
    for i in range(cities):
        triples += [(f"person {i}", "lives in", f"city {i}"), (f"city {i}", "lies in", f"country {i % 4}")]
        documents[f"Person {i}"] = [f"person {i}", f"city {i}"]
        documents[f"City {i}"] = [f"city {i}", f"country {i % 4}"]
    return KGIndex.from_triples(triples, documents, {title: f"About {title}." for title in documents})


def country_questions(cities: int = CITIES) -> list[dict[str, Any]]:
    return [
        {
            "id": str(i),
            "question": f"In which country does person {i} live?",
            "answer": f"country {i % 4}",
            "supporting_facts": [f"Person {i}", f"City {i}"],
        }
        for i in range(cities)
    ]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    country_index().save(tmp_path / "index")
    (tmp_path / "qa.json").write_text(json.dumps(country_questions()))
    return tmp_path


SMALL = ["--encoder", "hashing-32", "--hidden_size", "16", "--num_layers", "2", "--use_cpu", "--learning_rate", "0.01",
         "--logging_strategy", "no", "--disable_tqdm", "true"]  # fmt: skip


def pretrain_flags(folder: Path, *more: str) -> list[str]:
    return ["--index", str(folder / "index"), "--output_dir", str(folder / "stage1"), "--max_steps", "10",
            "--num_negatives", "8", "--validation_share", "0.2", *SMALL, *more]  # fmt: skip


def finetune_flags(folder: Path, *more: str) -> list[str]:
    return ["--index", str(folder / "index"), "--questions", str(folder / "qa.json"), "--output_dir",
            str(folder / "stage2"), "--num_train_epochs", "4", *SMALL, *more]  # fmt: skip


def test_the_two_stages_learn_and_leave_models_that_load(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gfm_rag.train import run

    first = run("pretrain", pretrain_flags(folders))
    assert 0 < first["eval_mrr"] <= 1
    pretrained = QueryGNN.from_pretrained(folders / "stage1")
    assert pretrained.config == GFMConfig(16, (16, 16), 32)
    metrics = run("finetune", finetune_flags(folders, "--init", str(folders / "stage1")))
    assert metrics["eval_entity_mrr"] > 0.9
    model = GNNRetriever.from_pretrained(folders / "stage2")
    assert model.config == pretrained.config
    printed = capsys.readouterr().out
    assert '"steps": 10' in printed
    assert f'"parameters": {sum(p.numel() for p in model.parameters())}' in printed


def test_fine_tuning_lowers_the_loss_it_minimises(tmp_path: Path) -> None:
    from transformers import TrainingArguments

    from gfm_rag import EmbeddingLinker, prepare_questions
    from gfm_rag.entity_matcher import EntityMatcher
    from gfm_rag.trainers import FinetuneTrainer

    index, encoder = country_index(), HashingEncoder(32)
    items = prepare_questions(index, country_questions(), EntityMatcher(index.entities), EmbeddingLinker(encoder))
    data = QuestionGraph.from_index(index, items, encoder)
    assert data.start_mask.sum(1).tolist() == [1] * CITIES
    torch.manual_seed(0)
    model = GNNRetriever(GFMConfig(16, (16, 16), 32))
    options: dict[str, Any] = {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
    args = TrainingArguments(
        tmp_path,
        use_cpu=True,
        num_train_epochs=10,
        per_device_train_batch_size=4,
        learning_rate=0.01,
        report_to="none",
        **options,
    )
    trainer = FinetuneTrainer(model, args, GraphPool([data]), GraphPool([data]), document_loss=0.1)
    everything = {"batch": GraphBatches([CITIES], CITIES)[0]}
    before, ranks = trainer.compute_loss(model, everything).item(), trainer.judge(model.eval(), data)
    trainer.train()
    assert trainer.compute_loss(model, everything).item() < 0.7 * before
    assert trainer.judge(model.eval(), data)["entity_mrr"] > ranks["entity_mrr"]


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gfm_rag.train import run

    assert run("finetune", finetune_flags(folders, "--dry_run")) == {}
    plan = json.loads(capsys.readouterr().out)
    assert (plan["rows"], plan["steps"], plan["graphs"]) == (11, 12, 1)
    assert not (folders / "stage2").exists()


def test_a_file_of_settings_and_a_preset_are_read(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gfm_rag.train import parse

    settings = {"index": [str(folders / "index")], "output_dir": str(folders / "out"), "num_negatives": 5}
    (folders / "settings.json").write_text(json.dumps(settings))
    stage, args = parse("pretrain", [str(folders / "settings.json")])
    assert (stage.num_negatives, args.max_steps, args.per_device_train_batch_size) == (5, 30_000, 4)
    stage, args = parse("pretrain", ["--preset", "official-config", "--index", "x", "--output_dir", "y"])
    assert (stage.num_negatives, args.per_device_train_batch_size, args.learning_rate) == (256, 8, 5e-4)
    assert (args.weight_decay, args.max_grad_norm, args.seed) == (0.01, 0.0, 1024)


def test_a_file_may_name_the_preset_and_leave_values_out(tmp_path: Path) -> None:
    from gfm_rag.train import parse

    file = tmp_path / "settings.yaml"
    file.write_text("preset: official-config\nindex: [a, b]\noutput_dir: out\ninit:\nremove_one_hop: true\n")
    stage, args = parse("pretrain", [str(file)])
    assert (stage.index, stage.init, stage.remove_one_hop, stage.num_negatives) == (["a", "b"], None, True, 256)
    assert args.per_device_train_batch_size == 8
    file.write_text("- index\n")
    with pytest.raises(ValueError, match=r"settings\.yaml: expected names with values, got list"):
        parse("pretrain", [str(file)])
    file.write_text("index: [a\n")
    with pytest.raises(ValueError, match=r"settings\.yaml: not YAML"):
        parse("pretrain", [str(file)])
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(ValueError, match=r"settings\.json"):
        parse("pretrain", [str(tmp_path / "settings.json")])


def test_validation_ranks_a_random_sample_of_what_was_held_back(folders: Path) -> None:
    from gfm_rag.train import run

    whole, sample = (
        run("pretrain", [*pretrain_flags(folders), "--max_steps", "2", "--fast_test", count, "--overwrite"])
        for count in ("0", "1")
    )
    assert set(whole) - {"epoch"} == {"eval_mr", "eval_mrr", "eval_hits@1", "eval_hits@3", "eval_hits@10"}
    # one triple has two ranks, of its tail and its head; the five that are held back have ten
    assert (2 * sample["eval_mr"]).is_integer()
    assert round(10 * whole["eval_mr"], 3).is_integer()
    assert whole["eval_mr"] != sample["eval_mr"]


def test_the_same_seed_trains_the_same_model(folders: Path) -> None:
    from gfm_rag.train import run

    weights = []
    for name in ("a", "b"):
        run("pretrain", [*pretrain_flags(folders), "--output_dir", str(folders / name), "--max_steps", "4"])
        weights.append(QueryGNN.from_pretrained(folders / name).state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_every_batch_is_of_one_graph_and_an_epoch_holds_every_row_once() -> None:
    batches = GraphBatches([5, 3, 7], 2, seed=1)
    seen = [(batch.graph, row) for batch in batches for row in batch.rows.tolist()]  # type: ignore[attr-defined]
    assert sorted(seen) == [(graph, row) for graph, size in enumerate([5, 3, 7]) for row in range(size)]
    graphs = [batch.graph for batch in batches]  # type: ignore[attr-defined]
    assert len([1 for a, b in pairwise(graphs) if a != b]) == 2  # one graph after the other
    first = [batch.rows.tolist() for batch in batches]  # type: ignore[attr-defined]
    batches.set_epoch(1)
    assert [batch.rows.tolist() for batch in batches] != first  # type: ignore[attr-defined]
    batches.set_epoch(0)
    assert [batch.rows.tolist() for batch in batches] == first  # type: ignore[attr-defined]


def test_a_pool_loads_graphs_when_they_are_asked_for() -> None:
    loaded: list[str] = []
    graph = TripleGraph.of(country_index().graph(HashingEncoder(4)))

    def load(name: str) -> Any:
        def call() -> TripleGraph:
            loaded.append(name)
            return graph

        return call

    pool = GraphPool([load("a"), load("b")], sizes=[24, 24])
    assert loaded == []
    pool.get(1)
    pool.get(1)
    pool.get(0)
    assert loaded == ["b", "a"]


def test_a_pool_keeps_the_graphs_asked_for_last() -> None:
    loaded: list[int] = []
    graph = TripleGraph.of(country_index().graph(HashingEncoder(4)))

    def load(number: int) -> Any:
        return lambda: loaded.append(number) or graph

    pool = GraphPool([load(number) for number in range(4)], sizes=[24] * 4, in_memory=2)
    for number in (0, 1, 0, 2, 0, 1, 3):
        pool.get(number)
    assert loaded == [0, 1, 2, 1, 3]
    with pytest.raises(ValueError, match="at least 1 graph must be in memory at a time, got 0"):
        GraphPool([graph], in_memory=0)


@pytest.fixture
def five_folders(tmp_path: Path) -> list[str]:
    """Flags of five indexes of different sizes."""
    flags: dict[str, list[str]] = {"--index": [], "--questions": []}
    for number in range(5):
        country_index(CITIES - number).save(tmp_path / f"index-{number}")
        (tmp_path / f"qa-{number}.json").write_text(json.dumps(country_questions(CITIES - number)))
        flags["--index"].append(str(tmp_path / f"index-{number}"))
        flags["--questions"].append(str(tmp_path / f"qa-{number}.json"))
    return ["--index", *flags["--index"], "--questions", *flags["--questions"]]


def many_flags(stage: str, five: list[str], out: Path, *more: str) -> list[str]:
    given = five if stage == "finetune" else five[: five.index("--questions")]
    length = ["--num_train_epochs", "2"] if stage == "finetune" else ["--max_steps", "60", "--num_negatives", "8"]
    return [*given, "--output_dir", str(out), *length, *SMALL, *more]


@pytest.mark.parametrize("stage", ["pretrain", "finetune"])
def test_graphs_are_loaded_on_demand_few_at_a_time_and_train_the_same_model(
    stage: str, five_folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gfm_rag.train import run

    made: list[weakref.ref[Any]] = []
    held: list[int] = []
    get, load, add = GraphPool.get, KGIndex.load, PreparedGraphs.add

    def count() -> None:
        held.append(len({id(found) for ref in made if (found := ref()) is not None}))

    def counted_get(pool: GraphPool, number: int) -> Any:
        made.append(weakref.ref(graph := get(pool, number)))
        count()
        return graph

    def counted_load(folder: Any) -> KGIndex:
        count()
        made.append(weakref.ref(index := load(folder)))
        return index

    def counted_add(graphs: PreparedGraphs, graph: Any, keep: bool = True) -> None:
        made.append(weakref.ref(graph))
        add(graphs, graph, keep)

    monkeypatch.setattr(GraphPool, "get", counted_get)
    monkeypatch.setattr(KGIndex, "load", counted_load)
    monkeypatch.setattr(PreparedGraphs, "add", counted_add)
    few = run(stage, many_flags(stage, five_folders, tmp_path / "few", "--graphs_in_memory", "1"))
    assert held[:5] == [0] * 5  # nothing of the indexes before is left while one is read
    assert len(held) > 20
    assert max(held) == 2  # a graph to train on and one to validate on
    assert [path.name for path in (tmp_path / "few").glob("_*")] == []
    held.clear()
    all_of_them = run(stage, many_flags(stage, five_folders, tmp_path / "all", "--graphs_in_memory", "5"))
    assert held[:5] == [0, 2, 4, 6, 8]
    assert max(held) == 10
    assert few == all_of_them
    kind = QueryGNN if stage == "pretrain" else GNNRetriever
    first, second = (kind.from_pretrained(tmp_path / name).state_dict() for name in ("few", "all"))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_run_that_ends_early_leaves_no_graphs_behind(five_folders: list[str], tmp_path: Path) -> None:
    from gfm_rag.train import run

    flags = many_flags("finetune", five_folders, tmp_path / "out", "--graphs_in_memory", "2")
    (tmp_path / "qa-4.json").write_text(json.dumps([{"question": "?", "supporting_facts": ["nothing"]}]))
    with pytest.raises(ValueError, match=r"qa-4\.json: too few questions \(1\) to hold some back"):
        run("finetune", flags)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="graphs_in_memory must be at least 1, got 0"):
        run("finetune", [*flags, "--graphs_in_memory", "0"])
    dry = run(
        "pretrain", many_flags("pretrain", five_folders, tmp_path / "out", "--dry_run", "--graphs_in_memory", "1")
    )
    assert dry == {}
    assert not (tmp_path / "out").exists()


def test_what_a_killed_run_left_goes_when_the_next_one_begins(tmp_path: Path) -> None:
    (tmp_path / "out" / "_graphs-1" / "train").mkdir(parents=True)
    with scratch_folder(tmp_path / "out", 1) as folder:
        assert folder == tmp_path / "out" / "_graphs-1"
        assert list(folder.iterdir()) == []
    assert list((tmp_path / "out").iterdir()) == []


def test_questions_that_cannot_be_trained_on_are_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    index, encoder = country_index(), HashingEncoder(4)
    good = {**country_questions()[0], "question_entities": ["person 0"], "supporting_entities": ["city 0"]}
    bad = [{**good, key: []} for key in ("question_entities", "supporting_entities", "supporting_facts")]
    assert len(QuestionGraph.from_index(index, [good, *bad], encoder)) == 1
    assert "skipped 3 questions" in caplog.text
    with pytest.raises(ValueError, match="none of 3 questions"):
        QuestionGraph.from_index(index, bad, encoder)


def test_wrong_settings_are_told_before_training(folders: Path) -> None:
    from gfm_rag.train import run

    index = ["--index", str(folders / "index"), "--output_dir", str(folders / "out")]
    (folders / "bad.json").write_text(json.dumps([{"query": "Who?", "supporting_facts": ["City 1"]}] * 2))
    (folders / "text.json").write_text(json.dumps([{"question": "Who?", "supporting_facts": "City 1"}] * 2))
    for stage, flags, words in (
        ("train", [], "pretrain, finetune, got 'train'"),
        ("pretrain", ["--preset", "best", *index], "paper, official-config, got 'best'"),
        ("pretrain", [*index, *SMALL, "--validation_share", "0"], "strictly between 0 and 1, got 0"),
        ("pretrain", [*index, *SMALL, "--num_negatives", "-1"], "num_negatives must be at least 0, got -1"),
        ("pretrain", [*index, *SMALL, "--temperature", "nan"], "temperature must be at least 0, got nan"),
        ("pretrain", [*index, *SMALL, "--num_negatives", "x"], "invalid int value: 'x'"),
        ("pretrain", [*index, *SMALL, "--num_negative", "3"], "--num_negative 3; did you mean --num_negatives"),
        ("pretrain", [*index, *SMALL, "--layers", "3"], "unknown arguments: --layers 3"),
        ("pretrain", index[:2], "the following arguments are required: --output_dir"),
        ("pretrain", [*index, "--bf16"], "--bf16 needs a GPU that knows bfloat16, and none is found; with --use_cpu"),
        ("pretrain", [*index, *SMALL, "--resume"], "--resume: .*out holds no checkpoint to go on from"),
        ("pretrain", [*index, *SMALL, "--resume", "--overwrite"], "give one of them"),
        ("pretrain", [*index[:3], str(folders / "qa.json"), *SMALL], "qa.json is a file: name a folder"),
        ("pretrain", [*index[:3], index[1], "--dry_run", *SMALL], "index holds other files .*: name a new folder"),
        (
            "finetune",
            [*index, *SMALL, "--alpha", "3", "--temperature", "0", "--dry_run"],
            "alpha must be between 0 and 1",
        ),
        ("finetune", [*index, *SMALL, "--alpha", "1.5"], "alpha must be between 0 and 1, got 1.5"),
        ("finetune", [*index, *SMALL], "one file for each of the 1 indexes, got 0"),
        ("finetune", [*index, *SMALL, "--questions", "none.json"], "--questions none.json: no such file"),
        ("pretrain", ["--index", "none", *index[2:], *SMALL], "--index none: no such index folder"),
        (
            "finetune",
            [*index, *SMALL, "--questions", str(folders / "bad.json")],
            "bad.json, entry 1: expected a text un",
        ),
        ("finetune", [*index, *SMALL, "--questions", str(folders / "text.json")], "text.json, entry 1: supporting_fac"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            run(stage, flags)
    GNNRetriever(GFMConfig(8, (8,), 10)).save_pretrained(folders / "other")
    with pytest.raises(ValueError, match="gives 32 dimensions, but the model was made for text_dim=10"):
        run("finetune", finetune_flags(folders, "--init", str(folders / "other")))
    assert not (folders / "out").exists()


def test_flags_override_a_file_and_both_ways_to_name_it_are_known(tmp_path: Path) -> None:
    from gfm_rag.train import parse

    file = tmp_path / "ft.yaml"
    text = "index: [a]\noutput-dir: out\nlearning_rate: 5e-3\nsave_strategy: no\nlr_scheduler_kwargs: {power: 2}\n"
    file.write_text(text + "remove_one_hop: yes\n")
    for flags in ([str(file)], ["--config", str(file)], [f"--config={file}"]):
        stage, args = parse("pretrain", [*flags, "--max_steps", "2", "--index", "b", "c"])
        assert (stage.index, args.max_steps, stage.remove_one_hop) == (["b", "c"], 2, True)
        assert (args.output_dir, args.learning_rate, args.lr_scheduler_kwargs) == ("out", 5e-3, {"power": 2})
        assert (args.save_strategy, args.eval_strategy, args.load_best_model_at_end) == ("no", "epoch", False)
    file.write_text("index: [a]\nepochs: 3\n")
    with pytest.raises(ValueError, match=r"ft\.yaml: unknown name 'epochs'"):
        parse("pretrain", [str(file)])
    with pytest.raises(FileNotFoundError, match=r"none\.yaml: no such file of options"):
        parse("pretrain", ["--config", "none.yaml"])
    with pytest.raises(ValueError, match=r"settings\.txt: a file of options must be one of \.yaml, \.yml, \.json"):
        parse("pretrain", ["--config", "settings.txt"])


@pytest.mark.parametrize(
    ("flags", "save", "validate"),
    [
        ([], ("epoch", 500), ("epoch", None)),
        (["--save_strategy", "steps", "--save_steps", "10"], ("steps", 10), ("steps", 10)),
        (["--eval_strategy=steps", "--eval_steps", "5"], ("steps", 5), ("steps", 5)),
        (["--save-strategy", "steps", "--save_steps", "10", "--eval_steps", "5"], ("steps", 10), ("steps", 5)),
    ],
)
def test_validation_follows_the_checkpoints(flags: list[str], save: Any, validate: Any) -> None:
    from gfm_rag.train import parse

    _, args = parse("pretrain", ["--index", "x", "--output_dir", "y", *flags])
    assert (args.save_strategy, args.save_steps) == save
    assert (args.eval_strategy, args.eval_steps) == validate
    assert args.load_best_model_at_end


def test_help_explains_file_and_preset(capsys: pytest.CaptureFixture[str]) -> None:
    from gfm_rag.train import parse

    with pytest.raises(SystemExit) as ended:
        parse("finetune", ["--help"])
    assert ended.value.code == 0
    told = "".join(capsys.readouterr().out.split())  # lines break at hyphens, too
    for words in (
        "usage: gfm-rag finetune [CONFIG.yaml] --index INDEX ... --questions QA.json ... --output_dir FOLDER",
        "--preset PRESET Batch size, epochs, negatives: paper, or official-config",
        "--config CONFIG YAML or JSON file with any of these names; it may also come first.",
        "minilm (sentence-transformers/all-MiniLM-L6-v2)",
    ):
        assert "".join(words.split()) in told


def test_a_trained_model_is_replaced_only_when_asked_and_then_wholly(
    folders: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from gfm_rag.train import run

    flags = pretrain_flags(folders, "--save_strategy", "steps", "--save_steps", "5")
    run("pretrain", flags)
    assert "mtime" not in caplog.text + capsys.readouterr().err
    before = QueryGNN.from_pretrained(folders / "stage1").config
    assert sorted(path.name for path in (folders / "stage1").glob("checkpoint-*")) == ["checkpoint-10", "checkpoint-5"]
    other = [*flags, "--hidden_size", "8", "--max_steps", "2", "--save_steps", "2"]
    for more in ([], ["--dry_run"]):
        with pytest.raises(ValueError, match=r"stage1 exists and would be replaced: .*--overwrite \(--resume goes on"):
            run("pretrain", [*other, *more])
    assert QueryGNN.from_pretrained(folders / "stage1").config == before
    run("pretrain", [*other, "--overwrite"])
    assert QueryGNN.from_pretrained(folders / "stage1").config.input_dim == 8
    assert [path.name for path in (folders / "stage1").glob("checkpoint-*")] == ["checkpoint-2"]


def test_a_model_keeps_the_name_of_its_encoder_through_both_stages(folders: Path) -> None:
    from gfm_rag.train import run

    run("pretrain", [*pretrain_flags(folders), "--max_steps", "1"])
    assert QueryGNN.from_pretrained(folders / "stage1").encoder == ("hashing-32", "hashing-32")
    of_init = [flag for flag in finetune_flags(folders, "--init", str(folders / "stage1")) if flag != "hashing-32"]
    of_init.remove("--encoder")
    run("finetune", [*of_init, "--num_train_epochs", "1"])  # the encoder of stage 1
    model = GNNRetriever.from_pretrained(folders / "stage2")
    assert model.encoder == ("hashing-32", "hashing-32")
    config = json.loads((folders / "stage1" / "config.json").read_text())
    config["encoder"] = {"name": "bert-32-0123456789ab", "source": "my/encoder"}
    (folders / "stage1" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"trained with the encoder my/encoder .*, got hashing-32 \(hashing-32\)"):
        run("finetune", finetune_flags(folders, "--init", str(folders / "stage1"), "--dry_run", "--overwrite"))


def test_resuming_nothing_leaves_no_folder(folders: Path) -> None:
    from transformers import TrainingArguments

    from gfm_rag import pretrain

    model, graph = QueryGNN(GFMConfig(8, (8,), 4)), TripleGraph.of(country_index().graph(HashingEncoder(4)))
    args = TrainingArguments(folders / "out", use_cpu=True, report_to="none", max_steps=1)
    with pytest.raises(ValueError, match=r"there is no checkpoint to go on from in .*out"):
        pretrain(model, [graph], args, resume=True)
    assert not (folders / "out").exists()


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gfm_rag.training_folder import interruption_told

    for names, words in (
        (["checkpoint-9", "checkpoint-10"], "--resume goes on from checkpoint-10"),
        ([], "no checkpoint"),
    ):
        folder = tmp_path / str(len(names))
        for name in names:
            (folder / name).mkdir(parents=True)
        with pytest.raises(KeyboardInterrupt), interruption_told(folder):
            raise KeyboardInterrupt
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_train_on_batches_of_their_own_from_files_of_their_own(
    five_folders: list[str], tmp_path: Path
) -> None:
    from nips_common.testing.torchrun import run_torchrun

    flags = many_flags("finetune", five_folders, tmp_path / "out", "--graphs_in_memory", "1")
    outputs = run_torchrun("gfm_rag.train", ["finetune", *flags], timeout=300)
    assert '"processes": 2' in outputs[0].stdout
    GNNRetriever.from_pretrained(tmp_path / "out")
    assert list((tmp_path / "out").glob("_*")) == []


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_as_one_that_was_not(folders: Path) -> None:
    import sys

    from nips_common.testing.interrupt import kill_and_resume

    def command(out: str, *more: str) -> list[str]:
        flags = [*pretrain_flags(folders), "--output_dir", str(folders / out), "--max_steps", "20", "--save_strategy",
                 "steps", "--eval_strategy", "steps", "--save_steps", "4", "--eval_steps", "4"]  # fmt: skip
        return [sys.executable, "-m", "gfm_rag.train", "pretrain", *flags, *more]

    kill_and_resume(
        command("killed"), lambda: (folders / "killed" / "checkpoint-8" / "trainer_state.json").exists(),
        resume=command("killed", "--resume"), timeout=300,
    )  # fmt: skip
    import subprocess

    subprocess.run(command("whole"), check=True, capture_output=True, timeout=300)
    first, second = (QueryGNN.from_pretrained(folders / name).state_dict() for name in ("killed", "whole"))
    assert all(torch.equal(first[key], second[key]) for key in first)
