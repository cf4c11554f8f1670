"""Several labels for each row: methods, data, laws, measures, comparators."""
