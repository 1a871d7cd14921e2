"""Charts: each is computed once, as data (`model`), and drawn for print (`drawing`) and for the page (`page`)."""
