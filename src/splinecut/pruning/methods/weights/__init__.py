"""Methods that remove single weights."""
