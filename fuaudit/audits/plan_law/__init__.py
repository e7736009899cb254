"""Level 5, the law of plans at full size: known laws, tests by betting against them, and bounds.

``simulate`` draws and rewrites plans by the ten thousand. ``comparison`` runs a proved method beside them.
``plan_statistics`` reads numbers off plans. ``known_laws`` bets on these numbers against their exact laws. ``outcome``
says what that amounts to, and ``audit`` puts all together.
"""
