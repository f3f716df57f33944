"""Graphs for training, made once from their index folders: few stay in memory, many go to files read batch by batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gfm_rag.graph_data import make_graph
from gfm_rag.training_data import GraphPool, QuestionGraph, TrainingGraph, TripleGraph
from nips_common.artifacts import load_folder, save_folder

if TYPE_CHECKING:
    from torch_geometric.data import Data

_KIND = "gfm-rag training graph"


class PreparedGraphs:
    """Graphs that were made already, in the order in which they were added.

    Args:
        folder: where their tensors are written, to be read when a batch asks for them; None keeps them in memory.
        in_memory: graphs held at a time once they come from files.
    """

    def __init__(self, folder: Path | None = None, in_memory: int = 1) -> None:
        self._folder, self._in_memory = folder, in_memory
        self._graphs: list[TrainingGraph] = []
        self.sizes: list[int] = []

    def add(self, graph: TrainingGraph, keep: bool = True) -> None:
        """Takes a graph, of which nothing stays in memory with a folder; only its size is noted without `keep`."""
        if keep and self._folder is None:
            self._graphs.append(graph)
        elif keep:
            write_graph(self._place(len(self.sizes)), graph)
        self.sizes.append(len(graph))

    def pool(self) -> GraphPool:
        """The graphs for a Trainer."""
        if self._folder is None:
            return GraphPool(self._graphs)
        folders = [self._place(number) for number in range(len(self.sizes))]
        return GraphPool([partial(read_graph, folder) for folder in folders], self.sizes, self._in_memory)

    def _place(self, number: int) -> Path:
        return Path(str(self._folder)) / str(number)


@contextmanager
def scratch_folder(output: Path, process: int) -> Iterator[Path]:
    """A folder in `output` for the files of one process, gone afterwards; what a killed run left there goes first."""
    existed, folder = output.exists(), output / f"_graphs-{process}"  # push_to_hub leaves out what begins so
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not existed:
            with suppress(OSError):  # it holds something by now
                output.rmdir()


def write_graph(folder: Path, graph: TrainingGraph) -> None:
    """Writes a graph's tensors; masks as the places where they are true.

    Args:
        folder: to make.
        graph: of triples, whose known edges have the nodes and relations of its graph; or of questions.
    """
    data = graph.graph
    sizes = {"num_nodes": int(data.num_nodes), "num_relations": int(data.num_relations), "num_documents": 0}
    tensors = {"edge_index": data.edge_index, "edge_type": data.edge_type, "rel_emb": data.rel_emb}
    if isinstance(graph, TripleGraph):
        tensors["triples"] = graph.triples
        if graph.known is not None:
            tensors |= {"known_edge_index": graph.known.edge_index, "known_edge_type": graph.known.edge_type}
    else:
        matrix = graph.entity_to_document.coalesce()
        sizes["num_documents"] = matrix.shape[1]
        tensors |= {
            "matrix_indices": matrix.indices(), "matrix_values": matrix.values(),
            "question_embeddings": graph.question_embeddings, "start": graph.start_mask.nonzero(),
            "target": graph.target_mask.nonzero(), "document": graph.document_mask.nonzero(),
        }  # fmt: skip
    save_folder(folder, _KIND, sizes, tensors)


def read_graph(folder: Path) -> TrainingGraph:
    """Reads what `write_graph` wrote."""
    sizes, tensors = load_folder(folder, _KIND)
    nodes, documents = sizes["num_nodes"], sizes["num_documents"]

    def data(prefix: str = "") -> Data:
        edges = {name: tensors[prefix + name] for name in ("edge_index", "edge_type")}
        return make_graph(**edges, rel_emb=tensors["rel_emb"], num_nodes=nodes, num_relations=sizes["num_relations"])

    if "triples" in tensors:
        return TripleGraph(data(), tensors["triples"], data("known_") if "known_edge_index" in tensors else None)
    embeddings = tensors["question_embeddings"]
    matrix = torch.sparse_coo_tensor(
        tensors["matrix_indices"],
        tensors["matrix_values"],
        (nodes, documents),
        is_coalesced=True,
        check_invariants=True,
    )
    masks = (
        _mask(tensors[name], (len(embeddings), size))
        for name, size in (("start", nodes), ("target", nodes), ("document", documents))
    )
    return QuestionGraph(data(), matrix, embeddings, *masks)


def _mask(places: Tensor, shape: tuple[int, int]) -> Tensor:
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[places[:, 0], places[:, 1]] = True
    return mask
