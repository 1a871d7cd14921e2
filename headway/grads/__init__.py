"""Per-sample gradient reductions during the ordinary backward pass."""

# The rules register themselves when their modules are imported.
from headway.grads import conv, linear, normalisation
from headway.grads.compound import Stacked
from headway.grads.engine import Engine
from headway.grads.layout import Layout
from headway.grads.persample import Dense, Outer, PerSample, RankOne, Reduction, Rows
from headway.grads.registry import Rule, register_rule, rule_for, unregister_rule

__all__ = [
    "Dense",
    "Engine",
    "Layout",
    "Outer",
    "PerSample",
    "RankOne",
    "Reduction",
    "Rows",
    "Rule",
    "Stacked",
    "conv",
    "linear",
    "normalisation",
    "register_rule",
    "rule_for",
    "unregister_rule",
]
