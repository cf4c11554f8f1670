"""A fit and what one does with it: predict, add rows, update, recommend, plot, save."""
