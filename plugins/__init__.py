"""The methods of the papers, registered through the same entry points as anybody's."""
