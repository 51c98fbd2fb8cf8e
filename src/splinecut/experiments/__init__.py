"""From a recipe to a record."""
