"""Checks that there is one way to change a group: an event, its rule in `coordinator/rules`, and a named method.

1. Only `coordinator/state/` assigns attributes of a group and of its parts, and changes their containers.
2. Only `coordinator/rules/` calls the named methods that change them.

The tests read the sources of all modules that may hold a group.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWNED = {
    "completeness": ("Completeness",),
    "group": ("Group",),
    "group_cache": ("GroupCache",),
    "group_offsets": ("GroupOffsets",),
    "lifecycle": ("Lifecycle",),
    "logged_state": ("LoggedState",),
    "member": ("Member",),
    "pending_joins": ("PendingJoins",),
    "rebalance": ("Rebalance",),
    "rebalance_tracking": ("RebalanceTracking",),
    "roster": ("Roster",),
}
"""The classes whose attributes only `coordinator/state/` may change, by module."""
OTHERS = frozenset({"self", "partition", "log"})
"""Names of variables that never hold a group or a part of a group, but whose attributes have the same names."""
MUTATORS = frozenset(
    {"add", "append", "clear", "difference_update", "discard", "extend", "insert", "intersection_update", "pop"}
    | {"popitem", "remove", "setdefault", "symmetric_difference_update", "update"}
)
"""Methods of dict, set and list that change their object."""


QUERIES = frozenset(
    {"earliest_timeout", "expired_clients_due", "expired_members", "fallback_reason", "reason", "settled_at", "view"}
    | {"forces_rebalance", "is_decoded", "known", "member_id_of_instance", "predecessor", "static_members"}
)
"""Methods of a group and of its parts that change nothing."""
PARTS = ("completeness", "lifecycle", "logged_state", "pending_joins", "rebalances", "roster")
"""The attributes of a group that are its parts."""


def _attributes(module: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yields the names of the public attributes that these classes of a module of `coordinator/state/` have."""
    tree = ast.parse((ROOT / "coordinator/state" / f"{module}.py").read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name in names]
    assert len(classes) == len(names), module
    for cls in classes:
        for node in ast.walk(cls):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                if isinstance(node.ctx, ast.Store):
                    yield node.attr
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id
            elif isinstance(node, ast.FunctionDef) and any(
                ast.unparse(each) == "property" for each in node.decorator_list
            ):
                yield node.name


def _sources(*owners: str) -> Iterator[Path]:
    """Yields the modules that can hold a group, without those in the folders `owners`."""
    for package in ("coordinator", "policies", "metrics", "proxy"):
        for path in sorted((ROOT / package).rglob("*.py")):
            owned = any(path.is_relative_to(ROOT / owner) for owner in owners)
            if not owned and (package == "coordinator" or "coordinator.state.group " in path.read_text()):
                yield path


def _is_owned(node: ast.expr, attributes: frozenset[str]) -> bool:
    """Whether an expression reads or names an attribute of a group or of one of its parts."""
    if not isinstance(node, ast.Attribute) or node.attr not in attributes:
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id in OTHERS)


def _changed(node: ast.AST, attributes: frozenset[str]) -> ast.expr | None:
    """Returns the expression for the part of a group that a node of the syntax tree changes, or None."""
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        target = node.value if isinstance(node, ast.Subscript) else node
        return node if _is_owned(target, attributes) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
        return node.func if _is_owned(node.func.value, attributes) else None
    return None


def _offenders(source: str, where: str, attributes: frozenset[str]) -> Iterator[str]:
    """Yields a line for each place in a source that changes a group."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if (changed := _changed(node, attributes)) is not None:
                    yield f"{where} {function.name}: {ast.unparse(changed)}"


ATTRIBUTES = frozenset(
    name for module, names in OWNED.items() for name in _attributes(module, names) if not name.startswith("_")
)


def _changing_calls(source: str, where: str) -> Iterator[str]:
    """Yields a line for each call in a source of a method that changes a group or one of its parts."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in QUERIES:
            called = ast.unparse(node.func.value)
            if called == "group" or called.startswith(tuple(f"group.{part}" for part in PARTS)):
                yield f"{where}: {ast.unparse(node.func)}"


def test_only_rules_change_groups() -> None:
    """No module outside of coordinator/rules calls a method that changes a group or one of its parts."""
    sources = _sources("coordinator/state", "coordinator/rules")
    found = [line for path in sources for line in _changing_calls(path.read_text(), path.name)]
    assert not found


def test_changing_calls_are_recognised() -> None:
    """A call of a changing method on a group or on a part is reported, and a call of a query is not."""
    source = """
group.touch(1)
group.roster.record_departure(a)
group.pending_joins.unlogged_members.forget(a)
group.fallback_reason(1)
"""
    assert list(_changing_calls(source, "manager.py")) == [
        "manager.py: group.touch",
        "manager.py: group.roster.record_departure",
        "manager.py: group.pending_joins.unlogged_members.forget",
    ]


def test_only_state_changes_groups() -> None:
    """No module outside of coordinator/state assigns an attribute of a group, or changes a container of one."""
    found = {
        line
        for path in _sources("coordinator/state")
        for line in _offenders(path.read_text(), path.relative_to(ROOT).as_posix(), ATTRIBUTES)
    }
    assert not found


def test_changes_are_recognised() -> None:
    """Each way to change a group in place is reported."""
    source = """
def rule(group, member):
    group.state = 1
    group.generation += 1
    group.first, group.members = 1, {}
    del group.members["a"]
    group.members["a"] = member
    group.left_member_ids.add("a")
    member.seen_at = 1.0
    group.pending_joins.add_join(member)
    facts.append(group.state)
    self.state = 2
"""
    assert sorted(_offenders(source, "rules.py", ATTRIBUTES)) == [
        "rules.py rule: group.generation",
        "rules.py rule: group.left_member_ids.add",
        "rules.py rule: group.members",
        "rules.py rule: group.members['a']",
        "rules.py rule: group.members['a']",
        "rules.py rule: group.state",
        "rules.py rule: member.seen_at",
    ]
