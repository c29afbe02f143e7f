# SPDX-License-Identifier: Apache-2.0
"""Rules for includes: which folder may include which, and no file includes itself by way of others."""

import os
import re

ALL = object()

# Folder: the folders that it may include besides itself, each with its subfolders. The table of
# docs/ARCHITECTURE.md is an outline of this one. A file belongs to the innermost folder that is named here.
_BELOW_DAEMON = {"base", "config", "kernels", "proto", "tiers", "store", "placement", "daemon/access"}
_ENGINE = {name: f"daemon/engine/{name}" for name in ("turns", "mail", "memory", "tables", "sampling", "sessions", "rows", "ops", "lane")}


def _engine(*names):
    return _BELOW_DAEMON | {_ENGINE[name] for name in names}


LAYERS = {
    "base": set(),
    "config": {"base"},
    "kernels/cpu": {"base"},
    "kernels/gpu": {"base", "kernels/cpu"},
    "proto": {"base"},
    "tiers": {"base", "config", "kernels"},
    "store": {"base", "config", "tiers", "kernels"},
    "placement": {"base"},
    # The headers in which the parts of the server declare how much memory they take.
    "daemon/budget": {"base", "config", "store", "tiers", "daemon"},
    "daemon/health": {"base"},  # a client applies it too
    "daemon": _BELOW_DAEMON | {"daemon"},  # its own files only wire the folders
    "daemon/control": _BELOW_DAEMON | {"daemon/health", "daemon/jobs", "daemon/transport", "daemon/engine", "daemon/endurance"},
    "daemon/http": _BELOW_DAEMON | {"daemon/control", "daemon/endurance", "daemon/health", "daemon/transport", "daemon/engine", "daemon/jobs"},
    "daemon/endurance": {"base", "config", "store"},
    "daemon/jobs": _BELOW_DAEMON | {"daemon/engine", "daemon/endurance"},
    "daemon/transport": _BELOW_DAEMON | {"daemon/engine"},
    "daemon/access": {"base", "proto"},
    "daemon/engine": _engine(),
    _ENGINE["lane"]: _engine("turns", "mail", "memory", "tables", "sampling", "sessions", "rows", "ops"),
    _ENGINE["ops"]: _engine("turns", "mail", "memory", "tables", "sampling", "sessions", "rows"),
    _ENGINE["rows"]: _engine("turns", "mail", "memory", "tables", "sampling", "sessions"),
    _ENGINE["sessions"]: _engine("turns", "mail", "memory", "tables"),
    _ENGINE["sampling"]: _engine("tables"),
    _ENGINE["tables"]: _engine("mail", "memory"),
    _ENGINE["memory"]: _engine("turns"),
    _ENGINE["mail"]: _engine(),
    _ENGINE["turns"]: _engine(),
    "client": {"base", "config", "kernels", "proto"},
    "tools": {"base", "config", "proto", "placement", "daemon/budget", "daemon/health", "client", "tools/trial"},
    "tools/trial": {"base", "config", "placement", "store", "daemon/budget"},  # a program of its own
    "docs": {"base", "config", "daemon"},  # the generator of man pages reads their tables
    "examples": {"client"},
    "tests": ALL,
}
# Folder: headers, and folders of headers, that it and its subfolders may not include, although they may include others beside them.
KEPT_OUT = {
    "daemon/control": {"daemon/transport/shm/", "daemon/transport/rpc/", "proto/shm_ring.h"},  # it sees a transport, whichever it is
    "daemon/http": {"daemon/transport/shm/", "daemon/transport/rpc/", "proto/shm_ring.h"},
    "daemon/engine": {"proto/shm_ring.h"},  # the engine sees a channel, whatever the transport
    "daemon/jobs": {"proto/shm_ring.h"},
}
# Our headers that the installed ones include without a folder.
PUBLIC_HEADERS = ("embtier.h", "embtier_err.h", "embtier_types.h")

TOP_FOLDERS = {layer.split("/")[0] for layer in LAYERS}


def layer_of(path):
    """The innermost of LAYERS that @path lies in, or None."""
    parts = path.split("/")[:-1]
    folders = ("/".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((folder for folder in folders if folder in LAYERS), None)


def included_file(path, name, quoted, tree_paths, paths_of_name):
    """The path in the tree that an #include in @path reaches, or None if it reaches no file of ours."""
    if ".." in name.split("/"):
        name = os.path.normpath(os.path.join(os.path.dirname(path), name))
    beside = os.path.join(os.path.dirname(path), name)
    if "/" in name:
        if beside in tree_paths and name.split("/")[0] not in TOP_FOLDERS:
            return beside
        return name if name.split("/")[0] in TOP_FOLDERS else None
    if beside in tree_paths:
        return beside
    if quoted or name in PUBLIC_HEADERS:
        return paths_of_name.get(name)
    return None


def includes_of(tree):
    """(file, line, included name, its path in the tree) of each #include of a file of ours."""
    tree_paths = set(tree.paths)
    paths_of_name = {os.path.basename(p): p for p in tree.c_files()}
    directive = re.compile(r'\s*#\s*include(?:_next)?\s*(["<])([^">]+)[">]')
    for path in tree.c_files():
        for number, line in tree.lines(path):
            found = directive.match(line)
            target = found and included_file(path, found[2], found[1] == '"', tree_paths, paths_of_name)
            if target:
                yield path, number, found[2], target


def check_kept_out(tree):
    """No folder includes a header that is kept out of it, or lies in a folder that is."""
    for path, number, _, target in includes_of(tree):
        for folder, kept in KEPT_OUT.items():
            if (target in kept or f"{os.path.dirname(target)}/" in kept) and path.startswith(f"{folder}/"):
                yield f"{path}:{number}: {folder}/ may not include {target}, although it may include others of its folder"


def arrows(tree):
    """(file, line, included name, its path in the tree) of each #include that leads uphill."""
    for path, number, name, target_path in includes_of(tree):
        layer, target = layer_of(path), layer_of(target_path) or os.path.dirname(target_path)
        allowed = LAYERS.get(layer, ALL)
        # The public headers include two of base's without a folder, as they lie when installed.
        if allowed is ALL or (layer == "examples" and name in PUBLIC_HEADERS):
            continue
        if target != layer and not any(f"{target}/".startswith(f"{one}/") for one in allowed):
            yield path, number, name, target_path


def arrows_found(tree):
    """Includes that lead uphill: {file: [the files that it includes]}."""
    found = {}
    for path, _, _, target in arrows(tree):
        found.setdefault(path, set()).add(target)
    return {path: sorted(targets) for path, targets in found.items()}


def check_includes(tree):
    """A folder includes only the folders below it."""
    for path in tree.c_files():
        if layer_of(path) is None:
            yield f"{path}:1: this folder has no place in the layers; one of: {', '.join(LAYERS)}"
    for path, number, name, target in arrows(tree):
        layer = layer_of(path)
        below = ", ".join(sorted(LAYERS[layer])) or "nothing of ours"
        target_layer = layer_of(target) or os.path.dirname(target)
        yield f"{path}:{number}: {layer}/ includes {target_layer}/ ({name}); it may include {below}"
    yield from check_kept_out(tree)


def cycles(graph):
    """The sets of more than one node of @graph, {node: nodes}, that reach each other (Tarjan)."""
    order, lowest, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            together = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(together) > 1:
                found.append(frozenset(together))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def cycles_found(tree):
    """Cycles of includes: {the first of its files: all of them}. A header and its implementation count as one file, and so do x_impl
    and x_loops."""
    graph = {}
    for path, _, _, target in includes_of(tree):
        one, other = (re.sub("_(impl|loops)$", "", os.path.splitext(p)[0]) for p in (path, target))
        if not path.startswith("tests/"):
            graph.setdefault(one, set()).add(other)
            graph[one].discard(one)
    return {min(cycle): sorted(cycle) for cycle in cycles(graph)}


def check_cycles(tree):
    """No file includes itself by way of others."""
    for first, cycle in sorted(cycles_found(tree).items()):
        yield f"{first}.h:1: these include each other: {', '.join(cycle)}"
