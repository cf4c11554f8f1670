"""Methods for counts and graphs: topics and clusters of several views."""
