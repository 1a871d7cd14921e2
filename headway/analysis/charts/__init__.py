"""Charts: each is computed once, as data (`model`), and drawn for print (`drawing`) and by the page (`report`)."""
