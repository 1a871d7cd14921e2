"""Protocols: every choice on which the numbers of an experiment depend. Needs no torch."""
