"""Methods for ratings: users times items, most cells missing."""
