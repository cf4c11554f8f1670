"""Reports on fits: draws as a DataTree, alignment, diagnostics, held-out scores, HTML pages."""
