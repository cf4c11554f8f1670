"""Methods for labelled rows with one or several views of features."""
