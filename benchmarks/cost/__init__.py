"""What scores cost: a plain training step against one with scores, here and in other libraries."""
