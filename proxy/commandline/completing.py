"""Names of groups for the shell that completes a command line.

Owns: which names are offered; what bash does to a word with a colon. Must not know: how a shell shows them.

Anybody who reaches the broker can name a group, and what a shell inserts it will run: a name with anything in it that
a shell reads is not offered.
"""

import os
import re
from collections.abc import MutableMapping
from io import StringIO
from itertools import pairwise

import typer

SECONDS = 2.0
"""How long somebody who has pressed the tabulator waits for names."""

_PLAIN = re.compile(r"[\w.+@%,:][\w.+@%,:/=-]*")  # No letter of it means anything to a shell; nor is it an option.
_CUTS = re.compile("[:=]+")  # Of bash's COMP_WORDBREAKS, what stands inside our words.
_INSTRUCTION, _BASH = "_GROUP_SIDECAR_COMPLETE", "complete_bash"
_HELD_BACK = "_GROUP_SIDECAR_HELD_BACK"


def group_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """The groups whose names begin so, as those tell who were named so far; none where they cannot be asked."""
    before = os.environ.get(_HELD_BACK, "")
    try:
        names = _asked(ctx.params)
    except Exception:  # noqa: BLE001 - whatever it is, it must not be written into somebody's command line
        return []
    wanted = before + incomplete
    return [name[len(before) :] for name in names if name.startswith(wanted) and _PLAIN.fullmatch(name)]


def mend_bash_words(environ: MutableMapping[str, str]) -> None:
    """Puts words together again that bash has cut at a colon or an equals sign, where it asks for completions.

    Bash has `--sidecar host:9464` as four words. Of the word under the cursor it replaces what stands behind the last
    cut: what stands before is held back, and has to be left out of what is offered.
    """
    if environ.get(_INSTRUCTION) != _BASH:
        return
    words, cursor = environ["COMP_WORDS"].split("\n"), int(environ["COMP_CWORD"])
    whole = words[:1]
    for before, word in pairwise(words[: cursor + 1]):
        if len(whole) > 1 and (_CUTS.fullmatch(word) or _CUTS.fullmatch(before)):
            whole[-1] += word
        else:
            whole.append(word)
    *whole, last = whole
    held_back = last[: len(last) - len(_CUTS.split(last)[-1])]
    if held_back.startswith("--") and held_back.endswith("="):
        whole.append(held_back[:-1])
    else:
        environ[_HELD_BACK] = held_back
    environ["COMP_WORDS"] = "\n".join([*whole, last.removeprefix(held_back)])
    environ["COMP_CWORD"] = str(len(whole))


def _asked(flags: dict[str, object]) -> list[str]:
    import trio

    from group_sidecar.proxy.commandline.asking import asking, run
    from group_sidecar.proxy.commandline.source import source_of

    async def listed() -> list[str]:
        with trio.fail_after(SECONDS):
            async with asking(source) as query:
                return [group.group for group in (await query.groups()).groups]

    source = source_of(flags, StringIO())
    return run(listed)
