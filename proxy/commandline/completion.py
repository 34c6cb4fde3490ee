"""Completes names of groups in a shell.

Every client of the broker can choose group names, and the shell may run the text that it inserts. So a name with
characters that are special to a shell is not offered.
"""

import os
import re
from collections.abc import MutableMapping
from io import StringIO
from itertools import pairwise

import typer

SECONDS = 2.0
"""Maximum time that a user waits for names after pressing the tab key."""

_PLAIN = re.compile(r"[\w.+@%,:][\w.+@%,:/=-]*")  # A word without characters special to a shell, and no option.
_WORD_BREAKS = re.compile("[:=]+")  # The characters of bash's COMP_WORDBREAKS that words of our commands contain.
_INSTRUCTION, _BASH = "_GROUP_SIDECAR_COMPLETE", "complete_bash"
_HELD_BACK = "_GROUP_SIDECAR_HELD_BACK"


def group_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the groups whose names start with `incomplete`, or an empty list if the target does not answer."""
    held_back = os.environ.get(_HELD_BACK, "")
    try:
        names = _fetch_group_ids(ctx.params)
    except Exception:  # noqa: BLE001 - an error message must not be inserted into the user's command line
        return []
    prefix = held_back + incomplete
    return [name[len(held_back) :] for name in names if name.startswith(prefix) and _PLAIN.fullmatch(name)]


def rejoin_bash_words(environ: MutableMapping[str, str]) -> None:
    """Joins the words that bash has split at a colon or an equals sign when it asks for completions.

    Bash splits `--sidecar host:9464` into four words. Bash replaces only the part of the current word after the last
    split. So the part before the split must be left out of the offered names.
    """
    if environ.get(_INSTRUCTION) != _BASH:
        return
    words, cursor = environ["COMP_WORDS"].split("\n"), int(environ["COMP_CWORD"])
    whole = words[:1]
    for before, word in pairwise(words[: cursor + 1]):
        if len(whole) > 1 and (_WORD_BREAKS.fullmatch(word) or _WORD_BREAKS.fullmatch(before)):
            whole[-1] += word
        else:
            whole.append(word)
    *whole, last = whole
    held_back = last[: len(last) - len(_WORD_BREAKS.split(last)[-1])]
    if held_back.startswith("--") and held_back.endswith("="):
        whole.append(held_back[:-1])
    else:
        environ[_HELD_BACK] = held_back
    environ["COMP_WORDS"] = "\n".join([*whole, last.removeprefix(held_back)])
    environ["COMP_CWORD"] = str(len(whole))


def _fetch_group_ids(flags: dict[str, object]) -> list[str]:
    import trio

    from group_sidecar.proxy.commandline.queries import open_queries, run
    from group_sidecar.proxy.commandline.target import target_of

    async def listed() -> list[str]:
        with trio.fail_after(SECONDS):
            async with open_queries(source) as query:
                return [group.group for group in (await query.groups()).groups]

    source = target_of(flags, StringIO())
    return run(listed)
