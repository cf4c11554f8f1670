"""The methods: one file each, in a folder for each kind of data. Importing this package registers them."""

from importlib import import_module
from pkgutil import walk_packages

for _found in walk_packages(__path__, f"{__name__}."):
    if not _found.name.rpartition(".")[2].startswith("_"):
        import_module(_found.name)
