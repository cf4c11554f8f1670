"""Methods for tensors: each cell has three or more labels."""
