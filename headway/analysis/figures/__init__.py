"""Figures: every one of the paper's, and some more. Each kind is a function that takes axes and gives them back."""
