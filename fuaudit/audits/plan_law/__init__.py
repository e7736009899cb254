"""Level 5, the law of plans at full size: known laws, tests by betting against them, and bounds.

``statistics`` reads numbers off plans, ``laws`` says how these numbers are distributed if plans are drawn on the
retained data, ``betting`` tests the one against the other, ``simulate`` draws and rewrites plans by the ten
thousand, and ``audit`` puts them together.
"""
