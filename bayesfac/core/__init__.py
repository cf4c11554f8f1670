"""The vocabulary that every layer shares; imports nothing else of bayesfac."""

import sys
import warnings

# NumPyro imports this module, which in a notebook without ipywidgets warns that its bars are plain text.
# Bars of bayesfac are plain text anyway (`inference.result.bar`)
if "ipykernel" in sys.modules:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        import tqdm.auto  # noqa: F401
