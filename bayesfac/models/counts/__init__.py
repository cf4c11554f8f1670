"""Methods for counts of users and items; a pair that is not listed has the count zero."""
