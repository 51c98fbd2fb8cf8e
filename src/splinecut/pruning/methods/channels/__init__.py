"""Methods that remove channels."""
