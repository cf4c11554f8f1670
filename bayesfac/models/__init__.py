"""The methods: one file each, in a folder for each kind of data. Importing this package registers them.

Methods for several labels are in a wing of their own, `bayesfac/labels/models/`.
"""

from importlib import import_module
from pkgutil import walk_packages

for _wing in (__name__, "bayesfac.labels.models"):
    for _found in walk_packages(import_module(_wing).__path__, f"{_wing}."):
        if not _found.name.rpartition(".")[2].startswith("_"):
            import_module(_found.name)
