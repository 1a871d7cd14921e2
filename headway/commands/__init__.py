"""The `headway` program: one module for each command. It may import every part, and no part imports it."""
