"""The container of labelled rows, and how it is read and scaled."""
