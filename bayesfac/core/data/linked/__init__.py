"""Several matrices that share labels."""
