"""Model and data hubs fail with long stacks; this turns each into one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

_UNREACHABLE = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError", "ConnectError", "ConnectTimeout")
_LONGEST = 300


def near_matches(name: str, known: Iterable[str]) -> str:
    """A question naming up to three of `known` that begin with or resemble `name`, or an empty string."""
    spelling = {candidate.lower(): candidate for candidate in known}
    longer = [candidate for candidate in spelling if candidate.startswith(name.lower())]
    alike = [candidate for candidate in get_close_matches(name.lower(), spelling, n=3) if candidate not in longer]
    near = [spelling[candidate] for candidate in [*longer, *alike][:3]]
    return f"did you mean {' or '.join(near)}? " if near else ""


def load_failure(what: str, hub_id: str | None, error: BaseException) -> OSError | ValueError:
    """The one-line error to raise in place of `error`, which loading `what` gave.

    Args:
        what: what was loaded, for the message: a name or a folder.
        hub_id: its name on the Hugging Face hub when it comes from there, else None.
        error: the error caught.

    Returns:
        OSError when the hub cannot be reached or has no such entry, otherwise ValueError with the cause in one line.
    """
    names = {type(cause).__name__ for cause in _causes(error)}
    text = one_line(error)
    if hub_id is not None:
        if names & {"RepositoryNotFoundError", "GatedRepoError"}:
            return OSError(f"{what}: no such entry on the Hugging Face hub, or it needs a login (hf auth login)")
        if names.intersection(_UNREACHABLE) or "connect" in text.lower() or "offline" in text.lower():
            return OSError(
                f"{what}: not in the local cache, and the Hugging Face hub cannot be reached (offline?); "
                f"run `hf download {hub_id}` where there is a network, or give a local folder"
            )
    return ValueError(f"cannot load {what}: {text}")


def one_line(error: BaseException) -> str:
    """The message of `error` in one line of at most 300 characters, with its type where it has no message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
