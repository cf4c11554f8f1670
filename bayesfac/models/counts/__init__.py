"""Methods for counts: users times items, where what is not listed is a zero."""
