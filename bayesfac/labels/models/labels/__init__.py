"""Methods that predict several labels from one view of features."""
