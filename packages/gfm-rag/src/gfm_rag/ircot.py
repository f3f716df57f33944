"""Retrieval in several steps (IRCoT): a language model thinks aloud, and each thought is the next query."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence

from gfm_rag.retrieved import RetrievedDocument, Retriever, check_question

log = logging.getLogger(__name__)

Messages = list[dict[str, str]]
ChatModel = Callable[[Messages], str]

_FINISHED = "So the answer is:"  # of the official prompt [code]


@dataclasses.dataclass(frozen=True)
class ChatPrompt:
    """How a question and its documents are put to a language model.

    Args:
        system_prompt: the first message.
        doc_prompt: a document, with {title} and {content}.
        question_prompt: the question, with {question}; the thoughts so far follow it.
        examples: {"input", "response"} pairs, put as messages of user and assistant.

    Raises:
        ValueError: a prompt with other fields, or an example without one of the two.
    """

    system_prompt: str
    doc_prompt: str = "Title: {title}\n{content}"
    question_prompt: str = "Question: {question}\nThought: "
    examples: Sequence[Mapping[str, str]] = ()

    def __post_init__(self) -> None:
        for name, fields in (("doc_prompt", ("title", "content")), ("question_prompt", ("question",))):
            try:
                getattr(self, name).format(**dict.fromkeys(fields, ""))
            except (KeyError, IndexError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"{name} may hold the fields {', '.join(f'{{{field}}}' for field in fields)} and no other braces "
                    f"than {{{{ and }}}}, got {getattr(self, name)!r}"
                ) from error
        for number, example in enumerate(self.examples):
            if not {"input", "response"} <= set(example):
                raise ValueError(f"example {number} must have input and response, got {', '.join(example)}")

    def messages(self, question: str, documents: Sequence[RetrievedDocument], thoughts: Sequence[str] = ()) -> Messages:
        """The conversation: system, examples, then documents, question and thoughts in one message."""
        found = [{"role": "system", "content": self.system_prompt}]
        for example in self.examples:
            found.append({"role": "user", "content": example["input"]})
            found.append({"role": "assistant", "content": example["response"]})
        context = "\n".join(
            self.doc_prompt.format(title=document.title, content=document.content) for document in documents
        )
        asked = self.question_prompt.format(question=question) + " ".join(thoughts)
        return [*found, {"role": "user", "content": f"{context}\n{asked}"}]


REASONING_PROMPT = ChatPrompt(
    "You answer a question that needs facts from several documents. Write the next single sentence of the reasoning, "
    "using only the documents given. If the documents suffice for the final answer, write a sentence that begins with "
    f'"{_FINISHED}".'
)
ANSWER_PROMPT = ChatPrompt(
    'Answer the question from the documents. Reason briefly after "Thought: ", then end with "Answer: " and a short, '
    "definitive answer without further detail."
)


@dataclasses.dataclass(frozen=True)
class IRCoTResult:
    """What several steps gave.

    Args:
        documents: best norm_score first.
        thoughts: in order.
    """

    documents: list[RetrievedDocument]
    thoughts: list[str]

    @property
    def response(self) -> str:
        """The thoughts in one text."""
        return " ".join(self.thoughts)


def ircot(
    retriever: Retriever,
    question: str,
    llm: ChatModel,
    max_steps: int = 2,
    top_k: int = 10,
    prompt: ChatPrompt | None = None,
) -> IRCoTResult:
    """Retrieves, lets the model think, retrieves for the thought, and so on.

    A document found twice keeps its larger norm_score. The loop ends after a thought with "So the answer is:", or
    after `max_steps` thoughts, the last of which is still retrieved for [code]. An empty reply, for which nothing can
    be retrieved, ends it with what was found so far, and a warning [ours]. The paper's steps: 2 on HotpotQA, 4 on
    MuSiQue, 2 on 2Wiki, with `top_k` 10.

    Args:
        retriever: of documents.
        question: in words.
        llm: messages, [{"role", "content"}], to a reply.
        max_steps: thoughts at most.
        top_k: documents kept.
        prompt: of the thoughts; None = ours (the official prompts are not copied).

    Raises:
        ValueError: an empty question, or a number below 1.
        TypeError: a model that cannot be called, or a reply that is no string. What `llm` raises goes through.
    """
    check_question(question, top_k)
    if not callable(llm):
        raise TypeError(f"llm must be a function of messages to a reply, got {type(llm).__name__}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    chosen = prompt or REASONING_PROMPT
    documents = list(retriever.retrieve(question, top_k=top_k))
    thoughts: list[str] = []
    for step in range(max_steps):
        thought = llm(chosen.messages(question, documents, thoughts))
        if not isinstance(thought, str):
            raise TypeError(f"llm must give a string, got {type(thought).__name__} in step {step + 1}")
        if not thought.strip():
            log.warning("the language model gave an empty thought in step %d of %d: stopping", step + 1, max_steps)
            break
        thoughts.append(thought)
        if _FINISHED in thoughts[-1]:
            break
        documents = _merge(documents, retriever.retrieve(thoughts[-1], top_k=top_k), top_k)
    return IRCoTResult(documents, thoughts)


def _merge(
    documents: Sequence[RetrievedDocument], more: Sequence[RetrievedDocument], top_k: int
) -> list[RetrievedDocument]:
    best: dict[str, RetrievedDocument] = {}
    for document in (*documents, *more):
        if document.title not in best or document.norm_score > best[document.title].norm_score:
            best[document.title] = document
    return sorted(best.values(), key=lambda document: -document.norm_score)[:top_k]
