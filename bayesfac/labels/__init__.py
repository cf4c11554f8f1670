"""Several labels for each row: methods, data, laws, measures, comparators."""

from bayesfac.labels import hooks as hooks
