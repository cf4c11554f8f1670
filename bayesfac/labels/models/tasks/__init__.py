"""Methods for several tasks, views and labels at once."""
