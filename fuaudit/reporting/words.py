"""The sentences of a report. What was seen is said; what follows from it in law is not.

No sentence here draws such a conclusion: a test reads them for the words that would.
"""

from __future__ import annotations

from fuaudit.reporting.contents import Checked, Contents, Statistic
from fuaudit.verification.finding import NON_ADAPTIVE, ResidualCopy, Subject, Verdict

MARKS = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✕",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_APPLICABLE: "\u2013",
    Verdict.ERROR: "!",
}
LABELS = {verdict: verdict.value.replace("_", " ").lower() for verdict in Verdict}

SUBJECTS = {Subject.ALGORITHM: "the method", Subject.RUN: "this run"}

HEADLINES = {
    Verdict.PASS: "Every required check passed, within the limits stated below.",
    Verdict.FAIL: "The evidence refutes the claim.",
    Verdict.INCONCLUSIVE: "The evidence does not decide the question.",
    Verdict.NOT_APPLICABLE: "The question does not arise for this run.",
    Verdict.ERROR: "An audit broke off: this is no result.",
}

MEANINGS = {
    Verdict.PASS: "Passed: what was asked holds, within the scope that the check states.",
    Verdict.FAIL: "Failed: it does not hold, by a counterexample or at the stated error rate.",
    Verdict.INCONCLUSIVE: "Inconclusive: evidence or power is missing. This is not a pass.",
    Verdict.NOT_APPLICABLE: "Not applicable: the question does not arise for this run. This is not a pass.",
    Verdict.ERROR: "Error: the audit itself broke. This is not a pass.",
}

ATTACKS = (
    ("i", "Attribute and membership inference"),
    ("ii", "Exfiltration"),
    ("iii", "Regurgitation of training data"),
    ("iv", "Model inversion"),
    ("v", "Reconstruction"),
)
"""Classes of EDPB Opinion 28/2024, paragraph 55. No audit here attacks a model."""

RECOMPUTED = {
    "integrity": "the digest of every file, and the chain of the ledger",
    "replay": "stored models, from the retained data: all of them, or where the check says so a part",
    "stress": "kept rounds of other plans, with and without the data in question",
    "provenance": "the keys, and the plan or model that the method makes of the parent's",
    "enumeration": "the law of the method on small federations, in exact fractions",
    "lineage": "every file of the run that holds models or figures",
    "model-law": "repeated unlearning and repeated retraining, with controls",
    "plan-law": "draws of the method at full size, without training, beside those of a proved method",
    "assumptions": "the assumptions of the method's own claim that can be read off a run",
}
"""What an audit worked out itself where it came to a decision."""

GLOSSARY = {
    ("integrity", "digest"): ("Digest of the run", "SHA-256 over the list of its files and their digests"),
    ("integrity", "events"): ("Events in the ledger", "counted; the hash of each covers the one before"),
    ("integrity", "files"): ("Files", "counted; the SHA-256 of each was computed anew and compared with the manifest"),
    ("replay", "models"): ("Stored models compared", "each computed anew from the retained data"),
    ("replay", "rounds"): ("Rounds executed", "as the run records them; all were executed again"),
    ("replay", "first_difference"): ("First round that differs", "bitwise comparison of stored and recomputed models"),
    ("replay", "differences"): ("Stored models that differ", "bitwise comparison of stored and recomputed models"),
    ("replay", "stretches"): ("Stretches between stored models", "counted from the rounds that the run stores"),
    ("replay", "stretches_replayed"): (
        "Stretches replayed",
        "drawn without replacement by the audit's key; each from the model stored before it, compared bit for bit",
    ),
    ("replay", "chosen_by"): ("Who asked for a spot check", "the spec, or the auditor with --spot-check"),
    ("replay", "detection"): (
        "Probability of seeing one forged stretch",
        "hypergeometric, exact: stretches replayed over all stretches",
    ),
    ("replay", "detection_asked"): ("Probability that a pass needs", "set in the spec; 1 asks for all stretches"),
    ("replay", "detection_of_more"): (
        "Probability of seeing one of several forged stretches",
        "hypergeometric; the number of forged stretches before each colon",
    ),
    ("stress", "plans"): ("Stress plans", "those of many candidate keys that keep most rounds with the target in them"),
    ("stress", "kept_rounds"): ("Kept rounds", "counted over all stress plans; each executed on both sets of data"),
    ("stress", "faults"): ("Plans with a difference", "bitwise comparison of the models after the kept rounds"),
    ("provenance", "nothing_to_forget"): (
        "Did the parent draw what was to be forgotten?",
        "every draw of the parent's plan was looked at, and what its config says that rounds depend on",
    ),
    ("provenance", "links"): ("Links of the lineage checked", "counted; each step from a run to its child is checked"),
    ("enumeration", "leaves"): ("Outcomes enumerated", "counted over all federations; the spec bounds them"),
    ("enumeration", "law"): ("Law of the draws", "as the learner of the run declares it"),
    ("enumeration", "proved"): ("Small federations without a difference", "all draws enumerated, exact fractions"),
    ("enumeration", "refuted"): ("Small federations with a difference", "all draws enumerated, exact fractions"),
    ("enumeration", "too_large"): ("Small federations not enumerated", "their size exceeds the budget of the spec"),
    ("enumeration", "total_variation"): (
        "Total variation from retraining",
        "half the sum of all differences of probabilities, in exact fractions; where it is not 0, on the smallest "
        "federation that differs",
    ),
    ("lineage", "other_copies"): (
        "Other places that may hold the contribution",
        "counted from the plans of all ancestors at hand, the rounds they stored, and the keys of runs beside this one",
    ),
    ("lineage", "equal_rows"): (
        "Retained rows that equal rows in question",
        "by their inputs where those at hand open their leaves, and by receipts; near copies are not looked for",
    ),
    ("lineage", "compared_rows"): (
        "Rows in question that retained ones were compared with",
        "those at hand that open their leaves, and those of receipts; each counted once",
    ),
    ("lineage", "regenerated"): ("Files regenerated", "computed anew without the rows in question; compared bytewise"),
    ("lineage", "models"): ("Stored models compared within a tolerance", "this platform is not the run's"),
    **{
        (audit, name): text
        for audit in ("replay", "lineage")
        for name, text in {
            "gap": (
                "Largest gap",
                "between stored and recomputed models: largest difference over the largest entry of a tensor",
            ),
            "tolerance": ("Tolerance", "set in the spec, in units of the machine epsilon; never fitted to the run"),
            "bit_equal": (
                "Share of numbers that agree in every bit",
                "the rest agrees within the tolerance; below it, numbers can carry something that nothing here judges",
            ),
            "share": ("Share of that which would have been seen", "twice the tolerance over the line above"),
            "effect": (
                "What the data in question does, at least",
                "smallest gap between the parent's draws executed with it and without it, over all stored models",
            ),
        }.items()
    },
    ("plan-law", "plans"): (
        "Plans drawn",
        "counted; each is drawn with a key of its own and then changed by the method, and nothing is trained",
    ),
    ("plan-law", "equal"): (
        "Plans equal to those of a proved method",
        "counted up to the first that differs; both were given the same plans and the same new keys",
    ),
    ("plan-law", "differs_below"): (
        "Distance from the law of retraining, below",
        "total variation, at confidence 1 - alpha: 1 - alpha ** (1 / plans), where all plans are equal",
    ),
    ("plan-law", "own_plan"): (
        "The run's own plan beside that of a proved method",
        "made again from the keys of the lineage, draw for draw and in the initial model",
    ),
    ("plan-law", "alpha"): (
        "Error rate alpha",
        "fixed in the spec; bounds the chance that the test rejects equal laws, and that a stated rate is too small",
    ),
    ("plan-law", "plans_with_target"): (
        "Plans that still hold what was to be forgotten",
        "every draw was looked at; one such plan is a counterexample",
    ),
    ("plan-law", "alpha_bounds"): (
        "Error rate of all stated bounds together",
        "bounds the chance that any of the bounds stated beside the tests is wrong: the sum of their error rates",
    ),
    ("plan-law", "p_value"): (
        "p-value of the law of plans",
        "one over the largest wealth of a bettor against the known law; valid at any stopping",
    ),
    ("plan-law", "rejected_at"): (
        "Law rejected at plan",
        "first plan at which the wealth reaches one over alpha",
    ),
    ("plan-law", "recomputed"): (
        "Plans that the last request changed",
        "counted; how many there should be is no part of exactness, so it is not tested",
    ),
    ("plan-law", "first_involved"): (
        "Plans whose training drew what the first request names",
        "counted before anything was to be forgotten; a control of the simulation",
    ),
    ("plan-law", "first_involved_exact"): (
        "The probability of that",
        "exact, from the law of training; the count above over the plans drawn should be near it",
    ),
    ("plan-law", "rounds_redrawn_mean"): (
        "Rounds drawn anew, on average",
        "mean over all plans and requests; a measure of cost, not tested",
    ),
    ("plan-law", "untouched_below"): (
        "The method leaves plans as they were at a rate below",
        "an upper bound at confidence 1 - alpha, from plans that would have shown it",
    ),
    ("assumptions", "met"): ("Assumptions that hold", "each read off this run and its ancestors at hand"),
    ("assumptions", "not_met"): (
        "Assumptions that do not hold",
        "each read off this run and its ancestors; with one of them, the method's own claim is not about this run",
    ),
    ("assumptions", "on_trust"): ("Assumptions that no run can show", "named under what was taken on trust"),
    ("model-law", "pairs"): (
        "Pairs of runs",
        "each pair trains one original and two retrained runs, all with fresh keys; an editor's pairs one run more",
    ),
    ("model-law", "runs"): ("Training runs", "counted over all arms"),
    ("model-law", "stopping"): (
        "The number of pairs was",
        "fixed in advance, or left to a decision; the test by betting allows either",
    ),
    ("model-law", "alpha"): (
        "Error rate alpha",
        "set in the spec; bounds the chance that all tests of the subject together reject equal laws",
    ),
    ("model-law", "alpha_betting"): ("Part of alpha for the test by betting", "fixed in advance"),
    ("model-law", "alpha_batch"): (
        "Part of alpha for the batch tests",
        "fixed in advance; none where the pairs were not of a fixed number, so that no batch test was made",
    ),
    ("model-law", "alpha_bounds"): (
        "Error rate of all stated bounds together",
        "bounds the chance that any of the bounds stated beside the tests is wrong: the sum of their error rates",
    ),
    ("model-law", "p_value"): ("p-value of the subject", "one over the largest wealth reached; valid at any stopping"),
    ("model-law", "rejected_at"): (
        "Subject rejected at pair",
        "first pair at which the wealth reaches one over its part of alpha",
    ),
    ("model-law", "batch_p_value"): (
        "p-value of the batch tests of the subject",
        "MMD, energy distance, Kolmogorov-Smirnov and a classifier, combined; pairs swapped at random",
    ),
    ("model-law", "untouched_rejected_at"): (
        "Untouched models rejected at pair",
        "first pair at which the wealth reaches one over its part of alpha",
    ),
    ("model-law", "untouched_batch_p_value"): (
        "p-value of the batch tests of untouched models",
        "as that of the subject; this control should be rejected",
    ),
    ("model-law", "detectable_rate"): (
        "Smallest detectable rate",
        "simulated: the share of planted untouched models from which on a lower limit of the power, at confidence .9, "
        "is at least .9; it comes from resamples of the audit's runs, so that confidence is approximate",
    ),
    ("model-law", "pairs_needed"): (
        "Pairs that would show the effect of the spec",
        "extrapolated: log wealth is taken to grow with the square of the rate of untouched models",
    ),
    ("model-law", "total_variation_at_least"): (
        "Total variation of the models' laws, at least",
        "an anytime-valid lower bound at confidence 1 - alpha; there is no upper bound",
    ),
    ("model-law", "thresholds_at_most"): (
        "Advantage of a threshold on one statistic, at most",
        "Dvoretzky-Kiefer-Wolfowitz bands over all statistics at once, confidence 1 - alpha; no bound on other "
        "adversaries; none where the data ended the pairs",
    ),
    ("model-law", "thresholds_ceiling"): (
        "The least such bound that so many pairs allow",
        "the width of the bands: what would be stated if no difference were observed at all",
    ),
    ("model-law", "epsilon_at_least"): (
        "Epsilon of unlearning, at least",
        "at delta 1e-5, in the statistics; threshold chosen on half of the pairs, Clopper-Pearson limits on the other, "
        "confidence 1 - alpha; none where the data ended the pairs",
    ),
    ("model-law", "epsilon_ceiling"): (
        "The largest such bound that so many pairs allow",
        "what would be stated if every run of the held-out half were told rightly",
    ),
    ("model-law", "untouched_epsilon_at_least"): (
        "Epsilon of leaving the model untouched, at least",
        "as that of the subject, for the untouched control",
    ),
    ("model-law", "without_p_value"): (
        "p-value against the same editor on runs that never had the target",
        "one over the largest wealth reached; beside the comparison with retraining, it decides nothing",
    ),
    ("model-law", "without_rejected_at"): (
        "Told from the same editor without the target at pair",
        "first pair at which that wealth reaches one over its part of alpha",
    ),
}
"""Statistics of the audits that ship with fuaudit: their names in words, and how each was obtained."""

INTERVALS = {
    "model-law": (
        "Advantage of the best threshold on one statistic, between",
        "Dvoretzky-Kiefer-Wolfowitz bands over all statistics at once, confidence 1 - alpha",
    ),
}
"""What the interval of a finding confines, by audit, and how it was obtained."""

TRUST = (
    "The run folder was made by whoever operated the training. Digests do not show who that was, nor that no second "
    "history was kept."
)
DISCLAIMER = (
    "This report states what was measured and how. It draws no legal conclusion: whether a duty exists and is "
    "fulfilled is for people to judge."
)
NOT_GIVEN = "none was given: nothing compares a model in use with this run"
LAST_ROUND = 2**31 - 1
"""Stands in the findings for the end of a plan: nothing changed."""


def number(value: Statistic) -> str:
    """A figure as text; what is not there is said."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def statistics(check: Checked) -> list[tuple[str, str, str]]:
    """Rows of a check's figures: what, how much, and how it was obtained."""
    rows = []
    for key, value in check.statistic.items():
        unknown = (key.replace("_", " "), f"as reported by the audit {check.audit!r}")
        label, how = GLOSSARY.get((check.audit, key), unknown)
        text = "never" if value is None and key.endswith("rejected_at") else number(value)
        if key == "nothing_to_forget":  # "yes" and "no" there answer another question
            text = text.partition(": ")[2] or text
        rows.append((label, text, how))
    if check.interval is not None:
        low, high = map(number, check.interval)
        unknown = ("Interval of the main figure", f"as reported by the audit {check.audit!r}")
        label, how = INTERVALS.get(check.audit, unknown)
        rows.append((label, f"{low} to {high}", how))
    return rows


def lead(contents: Contents) -> str:
    """What the verdict means here, in one or two sentences."""
    if contents.verdict is Verdict.PASS:
        return contents.claim.shows.format(request=target(contents))
    if contents.verdict is Verdict.FAIL:
        return "At least one check found a counterexample, or a difference at its stated error rate."
    if contents.verdict is Verdict.ERROR:
        return "Nothing can be concluded until the audit that broke has run to its end."
    return "This is neither a pass nor a fail, and must not be read as either."


def target(contents: Contents) -> str:
    """What was to be forgotten."""
    return contents.request or "the data in question"


def tallies(contents: Contents) -> list[tuple[str, str]]:
    """How the checks came out, for the method and for the run."""
    rows = []
    for subject, words in SUBJECTS.items():
        counts = [(contents.count(verdict, subject), LABELS[verdict]) for verdict in Verdict]
        found = ", ".join(f"{count} {label}" for count, label in counts if count)
        rows.append((f"Checks of {words}", found or "none"))
    return rows


def facts(contents: Contents) -> list[tuple[str, str]]:
    """What was audited, against what."""
    method = contents.unlearner
    rows = [("Claim examined", contents.title), ("To be forgotten", contents.request or "nothing: a training run")]
    rows += [("Who is meant", "; ".join(contents.meant))] if contents.meant else []
    if method is not None:
        rows.append(("Method", f"{method.name}, {method.origin}"))
        rows.append(("The method's own claim", method.guarantee or "none"))
    return [*rows, *_identity(contents), *tallies(contents), *_error_rates(contents)]


def _identity(contents: Contents) -> list[tuple[str, str]]:
    """Which policy, which model, and which of how many verifications."""
    spec = f"{contents.spec}: {contents.origin or 'origin not recorded'}, SHA-256 {contents.spec_digest}"
    used = {True: "it is the model of this run", False: "it is another model", None: "it could not be compared"}
    served = f"SHA-256 of its file {contents.served}: {used[contents.same]}" if contents.served else NOT_GIVEN
    rows = [("Spec", spec), ("Model in use", served)]
    rows += [("Model of this run", f"SHA-256 of its numbers {contents.model}")] if contents.model else []
    return rows + ([("Verifications", contents.standing)] if contents.standing else [])


def _error_rates(contents: Contents) -> list[tuple[str, str]]:
    """What all checks together have spent; nothing where no check tests anything."""
    allowed, tests, bounds = (contents.error_rates.get(name) for name in ("allowed", "tests", "bounds"))
    if not tests and not bounds:
        return []
    limit = f", of {number(allowed)} that the spec allows" if allowed else ""
    return [
        ("Chance of a false alarm", f"at most {number(tests)}, all tests of all checks together{limit}"),
        ("Chance that a stated bound is wrong", f"at most {number(bounds)}, all bounds of all checks together"),
    ]


def recomputed(contents: Contents) -> list[str]:
    """What the audits worked out themselves, by those that came to a decision."""
    decided = [check.audit for check in contents.checks if check.verdict in (Verdict.PASS, Verdict.FAIL)]
    texts = [RECOMPUTED.get(audit, f"what the audit {audit!r} looks at") for audit in dict.fromkeys(decided)]
    return [text[0].upper() + text[1:] + "." for text in texts]


def trusted(contents: Contents) -> list[str]:
    """What was taken on trust, each once; audits name non-adaptive requests in words of their own."""
    texts = (text for check in contents.checks for text in check.assumptions)
    return [TRUST, *dict.fromkeys(NON_ADAPTIVE if "non-adaptive" in text else text for text in texts)]


def person(contents: Contents) -> list[tuple[str, str]]:
    """For the person concerned: questions and answers in plain words."""
    if not contents.request:
        return [
            ("What was asked?", "Nothing. This is a training run; no request to forget belongs to it."),
            ("What does this page decide?", DISCLAIMER),
        ]
    return [
        (
            "What was asked?",
            f"That a trained model forget {contents.request}. Such a model learns from the data of many participants, "
            "called clients, in rounds; what it learnt stays in its numbers when the data is removed.",
        ),
        ("What was done?", _done(contents)),
        ("What did the checks find?", _found(contents)),
        ("What may still be there?", _left(contents)),
        ("What does this page decide?", DISCLAIMER),
    ]


def _done(contents: Contents) -> str:
    method, first = contents.unlearner, contents.first_round
    if method is not None and method.kind == "editor":
        return (
            f"The finished model was changed by a method called {method.name!r}. It was not trained again from the "
            "remaining data."
        )
    name = f"a method called {method.name!r}" if method is not None else "a method"
    if first is None or first >= LAST_ROUND:
        return (
            f"The operator used {name}. It changed nothing in the course of the training: the model stayed as it was."
        )
    kept = "Everything was drawn and computed anew."
    if first >= 1:
        before = f"Rounds before round {first} were kept" if first > 1 else "No whole round was kept"
        kept = f"{before}; the first change lies in round {first}."
    return (
        f"The operator used {name}. Such a method changes the record of the training; the model is then computed from "
        f"the remaining data. {kept}"
    )


def _found(contents: Contents) -> str:
    required = [check for check in contents.checks if check.required]
    passed = sum(check.verdict is Verdict.PASS for check in required)
    begin = f"{contents.claim.question} "
    if contents.verdict is Verdict.PASS:
        forgotten = contents.of("provenance")
        never = forgotten and str(forgotten.statistic.get("nothing_to_forget", "")).startswith("yes")
        extra = " The training had never used this data, so this model held nothing of it." if never else ""
        return f"{begin}All {len(required)} checks that had to pass did.{extra}"
    if contents.verdict is Verdict.FAIL:
        return (
            f"{begin}At least one check found that it is not so: {contents.reason} This run gives no ground to say "
            "that the request was carried out."
        )
    return (
        f"{begin}They could not decide it: {contents.reason} Of {len(required)} checks that had to pass, {passed} did. "
        "This run gives no ground to say that the request was carried out."
    )


def _left(contents: Contents) -> str:
    count = sum(copy.holds for copy in copies(contents))
    known = {0: "This audit knows of no other copy", 1: "This audit knows of one other place"}
    text = known.get(count, f"This audit knows of {count} other places")
    where = "" if count == 0 else " that may hold what was learnt from this data; they are listed in section 6"
    return f"{text}{where}. Backups, models that were handed out and copies held by participants were not looked at."


def copies(contents: Contents) -> list[ResidualCopy]:
    """Other places that may hold the contribution, as the audits list them, each once."""
    if not contents.request:
        return []
    return list(dict.fromkeys(copy for check in contents.checks for copy in check.copies))


def undecided(contents: Contents) -> list[Checked]:
    """Checks that came to no decision."""
    return [check for check in contents.checks if check.verdict not in (Verdict.PASS, Verdict.FAIL)]
