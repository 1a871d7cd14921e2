"""Commands that read runs and say what is in them."""
