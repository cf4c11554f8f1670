"""Methods for tensors: cells with three or more labels each."""
