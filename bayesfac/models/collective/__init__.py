"""Methods for several matrices that share users, items and other kinds of labels."""
