"""Policies fail closed: what a spec can show, what is compared, whose code ran, and what audits may return."""

import shutil
import sys
import tomllib
from dataclasses import MISSING, fields, replace
from datetime import date
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import load_file, save_file
from tests_support import AUDIT_KEY, config, drawn_client, installed, secret

from fuaudit import registry, train, unlearn, verify
from fuaudit.audits.stress import Stress
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, PluginError, UsageError
from fuaudit.plans import Request
from fuaudit.registry import trusting
from fuaudit.reporting import render
from fuaudit.verification.case import Case
from fuaudit.verification.claims import CLAIMS, EVIDENCE
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.model_in_use import _numbers
from fuaudit.verification.spec import BUILT_IN, Check, SpecKeys, builtin_specs, parse_spec, read_spec

OUTSIDE = '''
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Subject, Verdict

OLD = torch.linspace(-1, 1, 650)
WRITES = {
    "inputs": lambda case: case.dataset.inputs.mul_(-1),
    "targets": lambda case: case.dataset.targets.zero_(),
    "test_inputs": lambda case: case.dataset.test_inputs.zero_(),
    "info": lambda case: case.run.info.update(first_change=[1, 0]),
    "parent.info": lambda case: case.parent.info.clear(),
    "document('plan.json')": lambda case: case.run.document("plan.json").clear(),
}


class Adding(nn.Linear):
    """Its answers are those of the trained weights and of old ones beside them."""

    def forward(self, inputs):
        return super().forward(inputs) + inputs @ OLD[:640].reshape(64, 10)


@dataclass(frozen=True)
class Adds:
    """A model that carries another one in its code."""

    def build(self, shape, classes):
        return Adding(64, classes)


@dataclass(frozen=True)
class Free:
    """An audit that returns whatever its word says."""

    evidence: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset()
    word: str = "sound"
    alpha: str = "the first letter"

    def examine(self, case):
        if self.word == "raises":
            raise ValueError("the dog ate the finding")
        if self.word == "nothing":
            return None
        if self.word in WRITES:
            WRITES[self.word](case)
        name = "replay" if self.word == "name" else "free"
        verdict = {"verdict": "PASS", "fails": Verdict.FAIL}.get(self.word, Verdict.PASS)
        finding = Finding(name, Subject.RUN, verdict, "It was looked at.", "Anything else.")
        changes = {
            "nan": {"figures": (Figure("gap", "Gap", float("nan"), "measured"),)},
            "object": {"figures": (Figure("gap", "Gap", object(), "measured"),)},
            "tolerance": {"figures": tuple(Figure(k, k, -5.0, "said") for k in ("tolerance", "alpha", "alpha_bounds"))},
            "rate": {"error_rate": -5.0},
            "spends": {"error_rate": 0.5},
            "qualifies": {"qualification": "It looked at one round only."},
        }
        return replace(finding, **changes.get(self.word, {}))


@dataclass(frozen=True)
class Boasts(Free):
    """Says that it shows everything."""

    evidence: ClassVar[frozenset[str]] = frozenset(
        {"files", "execution", "provenance", "law", "reference", "regeneration", "sampling"}
    )

    def examine(self, case):
        return replace(super().examine(case), audit="boasts")


@dataclass(frozen=True)
class Moody(Free):
    """Breaks where it is asked what it shows."""

    @property
    def evidence(self):
        raise KeyError("evidence")


@dataclass(frozen=True)
class Silent:
    """Declares nothing."""

    def examine(self, case):
        return None
'''

ENTRIES = """
[fuaudit.models]
adds = stranger:Adds
[fuaudit.audits]
free = stranger:Free
boasts = stranger:Boasts
silent = stranger:Silent
moody = stranger:Moody
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A distribution that somebody else installed, with a digest of its code to come."""
    folder = installed(tmp_path / "site", "stranger", OUTSIDE, ENTRIES)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("stranger", None)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A training run and children of it; nobody may edit them."""
    root = tmp_path_factory.mktemp("policy")
    run = train(config(), root / "parent", secret=secret(3))
    request = Request.of(clients=[drawn_client(run)])
    return {"parent": run} | {name: unlearn(run, name, request, root / name) for name in ("fats", "noop", "finetune")}


def table(*uses, asks="exact", **top):
    rows = [{"claim": use, "audit": {"use": use}} if isinstance(use, str) else use for use in uses]
    return {"id": "ours", "asks": asks, "out_of_scope": ["all else"], "check": rows} | top


OF_THE_RUN = ("integrity", "replay", "provenance", "lineage")
LAW = {"claim": "law", "audit": {"use": "plan-law", "plans": 2000}}
PROOFS = {"claim": "proofs", "audit": {"use": "enumeration", "leaves": 6_000}}
EVERYTHING = (*OF_THE_RUN, PROOFS, LAW)


# what a spec can show


@pytest.mark.parametrize("use", ["integrity", "assumptions", "provenance", "stress", "replay"])
def test_one_check_does_not_show_exact_erasure(use):
    with pytest.raises(UsageError, match="asks for exact erasure, but no required check gives evidence of"):
        parse_spec(table(use), "ours.toml")


@pytest.mark.parametrize("left_out", EVERYTHING)
def test_what_is_missing_is_named(left_out):
    word = registry.build("audits", left_out if isinstance(left_out, str) else left_out["audit"]).evidence
    with pytest.raises(UsageError, match=f"evidence of {next(iter(word))} "):
        parse_spec(table(*(use for use in EVERYTHING if use != left_out)), "ours.toml")


def test_evidence_of_supporting_checks_does_not_count():
    rows = [row | {"role": "supporting"} for row in table(*EVERYTHING)["check"]]
    with pytest.raises(UsageError, match="no required check"):
        parse_spec(table(*rows), "ours.toml")


def test_a_replay_that_may_leave_rounds_out_gives_no_evidence():
    partial = {"claim": "models", "audit": {"use": "replay", "stretches": 1, "detection": 0.5}}
    others = [use for use in EVERYTHING if use != "replay"]
    with pytest.raises(UsageError, match="evidence of execution"):
        parse_spec(table(partial, *others), "ours.toml")


@pytest.mark.parametrize("option", [{"effect": 1.0}, {"effect": 0.05, "plans": 2, "alpha": 0.999}])
def test_a_comparison_that_passes_whatever_it_finds_gives_no_evidence(option):
    loose = {"claim": "law", "audit": {"use": "plan-law"} | option}
    with pytest.raises(UsageError, match="evidence of reference"):
        parse_spec(table(loose, *EVERYTHING[:-1]), "ours.toml")


@pytest.mark.parametrize(
    ("left_out", "word"), [("model-law", "sampling"), ("replay", "execution"), ("lineage", "regeneration")]
)
def test_a_bound_needs_sampling_and_a_look_at_the_run_itself(left_out, word):
    uses = [use for use in (*OF_THE_RUN, "model-law") if use != left_out]
    with pytest.raises(UsageError, match=rf"asks for the bound on one violation, .* evidence of {word} "):
        parse_spec(table(*uses, asks="bound"), "ours.toml")


def test_a_claim_that_is_weaker_is_named_for_what_it_is(family):
    """The run alone: nothing is said of the method's law, and nothing of a model without the client."""
    result = verify(family["fats"], parse_spec(table(*OF_THE_RUN, asks="run"), "ours.toml"), key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS"
    assert "evidence for a run that follows its plan" in result.reason
    page = render(result.as_json(), "md").decode()
    assert "It does not show that the method is right." in page
    assert "follows the law of a model trained without" not in page


def test_checks_left_out_by_a_program_make_no_pass(family):
    """A Spec object is no file that was refused, so the conclusion asks again."""
    whole = read_spec("client-erasure")
    one = replace(whole, checks=tuple(check for check in whole.checks if check.audit["use"] == "integrity"))
    result = verify(family["noop"], one, key=AUDIT_KEY, save=False)
    assert result.verdict == "INCONCLUSIVE"
    assert "no evidence of execution" in result.reason
    assert result.as_json()["spec"]["origin"] == "changed from a built-in one by a program"
    assert result.as_json()["spec"]["digest"] != whole.digest


# who may call itself what


def test_the_ids_of_built_in_specs_are_reserved(tmp_path):
    for name in ("client-erasure/1", "client-erasure", "sample-erasure/7", "bounded-difference/1"):
        with pytest.raises(UsageError, match="calls itself"):
            parse_spec(table(*EVERYTHING, id=name), "ours.toml")
    for name in ("Client-Erasure/1", "client-erasure/1 ", "client\u2010erasure/1", "", "a/b"):
        with pytest.raises(UsageError, match="is not a name like"):
            parse_spec(table(*EVERYTHING, id=name), "ours.toml")
    with pytest.raises(UsageError, match="needs the option 'id'"):
        parse_spec({k: v for k, v in table(*EVERYTHING).items() if k != "id"}, "client-erasure/1")


@pytest.mark.parametrize("name", sorted(builtin_specs()))
def test_the_same_bytes_may_have_the_same_name(name, tmp_path):
    copy = shutil.copy(builtin_specs()[name], tmp_path / "mine.toml")
    spec, own = read_spec(copy), read_spec(name)
    assert spec.digest == own.digest
    assert (own.source, spec.source) == (BUILT_IN, "mine.toml, the same as the built-in one")
    changed = (tmp_path / "mine.toml").read_text().replace("2028-12-31", "2029-12-31")
    (tmp_path / "mine.toml").write_text(changed)
    with pytest.raises(UsageError, match="calls itself"):
        read_spec(tmp_path / "mine.toml")


def test_a_pass_names_its_spec(family, tmp_path):
    (tmp_path / "ours.toml").write_text(tomli_w.dumps(table(*EVERYTHING)))
    ours = verify(family["fats"], tmp_path / "ours.toml", key=AUDIT_KEY, save=False)
    digest = read_spec(tmp_path / "ours.toml").digest
    assert ours.verdict == "PASS"
    assert f"Asked by the spec ours (ours.toml, digest {digest[:16]})." in ours.reason
    page = render(ours.as_json(), "md").decode()
    assert f"ours: ours.toml, SHA-256 {digest}" in page
    assert "--spec SPEC.toml" in page


# arguments that nothing is compared with


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"commitment": "ab" * 32}, "--commitment"),
        ({"request": Request.of(clients=[1])}, "--client or --sample"),
        ({"budget": 16}, "--budget"),
        ({"stopping": "decided"}, "--stopping"),
        ({"cache": "cache"}, "--cache"),
    ],
)
def test_an_argument_that_no_check_uses_is_refused(family, arguments, option):
    whole = read_spec("client-erasure")
    spec = replace(
        whole, checks=tuple(check for check in whole.checks if check.audit["use"] in ("integrity", "replay"))
    )
    with pytest.raises(UsageError, match=f"looks at {option}"):
        verify(family["noop"], spec, key=AUDIT_KEY, save=False, **arguments)


def test_audits_changed_after_a_spec_was_read_are_told():
    spec = read_spec("client-erasure")
    assert spec.source == "built-in"
    replay = next(check.built for check in spec.checks if check.audit["use"] == "replay")
    object.__setattr__(replay, "tolerance", 10**9)
    assert spec.source == "changed from a built-in one by a program"


def test_a_wrong_commitment_is_compared_where_a_check_uses_it(family):
    spec = parse_spec(table(*OF_THE_RUN, asks="run"), "ours.toml")
    assert verify(family["fats"], spec, commitment="ab" * 32, key=AUDIT_KEY, save=False).verdict == "FAIL"
    for given in ({"request": Request.of(clients=[1])}, {"parent": family["parent"].path}):
        with pytest.raises(UsageError, match="carries out no request and has no parent"):
            verify(family["parent"], spec, key=AUDIT_KEY, save=False, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dataset": None}, "'dataset' is called 'data'"),
        ({"until_decided": True}, "'until_decided' is called 'stopping'"),
        ({"comitment": "ab" * 32}, "Did you mean 'commitment'"),
        ({"data": [1, 2]}, "data is of type list, neither a folder nor rows (a fuaudit Dataset)"),
        ({"request": {"clients": [1]}}, "request is of type dict, not a Request"),
    ],
)
def test_what_verify_does_not_take_is_refused_in_words(family, given, said):
    with pytest.raises(UsageError) as refused:
        verify(family["fats"], save=False, **given)
    assert said in str(refused.value)


def test_rows_beside_a_folder_of_rows_are_refused(family, tmp_path):
    dataset = registry.build("datasets", "digits").load(None)
    for folder in ("erased",):
        with pytest.raises(UsageError, match="would be ignored"):
            verify(family["fats"], data=dataset, save=False, **{folder: tmp_path})


# having looked at nothing


@pytest.mark.parametrize("options", [{"plans": 0}, {"candidates": 0}, {"plans": 5, "candidates": 4}, {"plans": -1}])
def test_stress_that_looks_at_nothing_is_refused(options):
    with pytest.raises(UsageError, match="looks at nothing"):
        Stress(**options)


def test_no_kept_round_is_no_proof_that_none_is_kept(tmp_path, family):
    """Retraining keeps none. Few candidates have seen too little to say even that it is rare."""
    run = family["parent"]
    child = unlearn(run, "retrain", Request.of(clients=[3]), tmp_path / "child")
    dataset = registry.build("datasets", "digits").load(None)
    case = Case(Evidence(child, run, dataset), Keyed(AUDIT_KEY))
    for candidates, verdict in ((58, "INCONCLUSIVE"), (59, "PASS")):
        finding = Stress(plans=1, candidates=candidates).examine(case)
        assert finding.verdict == verdict
        assert f"None of {candidates} candidate plans keeps a round, so nothing was compared." in finding.shows
        assert "no proof" in finding.shows
        assert finding.bounds_rate == 0.05  # the limit is stated at confidence .95


def test_a_pass_names_the_request_of_which_nothing_was_compared(tmp_path):
    """Of ten clients eight go, so no candidate keeps a round of the first request; plans keep some of the second."""
    learner = {"use": "fats", "rounds": 4, "cohort": 8, "steps": 1, "batch": 4, "step_size": 0.1}
    run = train(config(learner=learner) | {"run": {"requests": 2}}, tmp_path / "run", secret=secret(5))
    *gone, last, _ = run.original.clients
    first = unlearn(run, "fats", Request.of(clients=gone), tmp_path / "first")
    second = unlearn(first, "fats", Request.of(samples=[run.original.samples[last][0]]), tmp_path / "second")
    case = Case(Evidence(second, first, registry.build("datasets", "digits").load(None)), Keyed(AUDIT_KEY))
    finding = Stress(plans=1, candidates=64).examine(case)
    assert any(line.startswith("plan 2, request 1: 0 rounds kept") for line in finding.details), finding.details
    assert finding.verdict == "PASS"
    assert finding.shows.startswith("In 1 stress plan all ")
    assert "None of 64 candidate plans of request 1 keeps a round, so nothing was compared." in finding.shows
    assert finding.bounds_rate == 0.05


def test_what_some_plans_keep_was_compared(tmp_path, family):
    """A request is unseen where none of its plans keeps a round, not where one of them does not."""
    run = family["parent"]
    child = unlearn(run, "fats", Request.of(clients=[0]), tmp_path / "child")
    case = Case(Evidence(child, run, registry.build("datasets", "digits").load(None)), Keyed(AUDIT_KEY))
    finding = Stress(plans=10, candidates=10).examine(case)
    kept = [line.split(": ")[1].split()[0] for line in finding.details]
    assert "0" in kept
    assert set(kept) != {"0"}
    assert finding.verdict == "PASS"
    assert "None of" not in finding.shows


# outside code


def test_a_spec_can_say_whose_code_it_trusts(stranger, tmp_path, fuaudit):
    """What it does not trust is not even imported."""
    run = train(config(model={"use": "adds"}), tmp_path / "parent", secret=secret(3))
    child = unlearn(run, "fats", Request.of(clients=[drawn_client(run)]), tmp_path / "child")
    path = tmp_path / "ours.toml"
    for trusts, code in (([], 4), (["somebody-else"], 4), (["Strangers_Package"], 0)):
        path.write_text(tomli_w.dumps(table(*OF_THE_RUN, asks="run", trusts=trusts)))
        sys.modules.pop("stranger", None)
        asked = ("--client", str(child.request.clients[0]))
        done, out, err = fuaudit("verify", child.path, "--spec", path, *asked)
        assert done == code, out + err
        assert ("stranger" in sys.modules) == (code == 0)
        if code:
            assert "model 'adds' of strangers-package 1.5 is not trusted, so nothing of it was imported" in err


def test_code_that_is_imported_already_is_not_trusted_for_that(stranger, tmp_path):
    run = train(config(model={"use": "adds"}), tmp_path / "parent", secret=secret(3))
    spec = parse_spec(table(*OF_THE_RUN, asks="run", trusts=[]), "ours.toml")
    with pytest.raises(EvidenceError, match="does not trust strangers-package"):
        verify(run, spec, save=False)


def test_a_spec_trusts_the_audits_that_it_names_or_is_refused(stranger):
    free = {"claim": "free", "audit": {"use": "free"}}
    with pytest.raises(UsageError, match=r"audit .free. of strangers-package 1\.5 is not trusted"):
        parse_spec(table(free, *EVERYTHING, trusts=[]), "ours.toml")
    assert "stranger" not in sys.modules
    assert parse_spec(table(free, *EVERYTHING, trusts=["strangers-package"]), "ours.toml").trusts


def test_trust_can_be_narrowed_and_never_widened(stranger):
    with trusting([]), trusting(["strangers-package"]), pytest.raises(EvidenceError, match="not trusted"):
        registry.build("models", "adds")
    with trusting([]):
        registry.build("models", "linear")
    registry.build("models", "adds")


def test_who_calls_itself_fuaudit_is_not_fuaudit(stranger):
    entry = replace(registry.find("models", "adds"), distribution="fuaudit")
    assert not entry.own
    assert registry.find("unlearners", "fats").own


def test_an_outside_audit_that_shows_everything_is_named(stranger, family):
    """It may, for auditors write audits; who reads the PASS sees whose word it is."""
    spec = parse_spec(table("boasts", asks="run"), "ours.toml")
    result = verify(family["noop"], spec, key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS"
    assert "outside code: strangers-package 1.5 (audit 'boasts'; SHA-256 of its code" in result.reason


@pytest.mark.usefixtures("stranger")
def test_no_audit_makes_a_doubted_run_exact(family):
    spec = parse_spec(table("boasts"), "ours.toml")
    result = verify(family["noop"], spec, key=AUDIT_KEY, save=False)
    assert result.verdict == "INCONCLUSIVE"
    assert "doubted: 'noop' claims to be exact for no law." in result.reason
    assert verify(family["fats"], spec, key=AUDIT_KEY, save=False).verdict == "PASS"


@pytest.mark.usefixtures("stranger")
def test_an_audit_is_built_where_the_spec_is_read_and_not_again(family, monkeypatch):
    spec = parse_spec(table("boasts", asks="run"), "ours.toml")
    again = classmethod(lambda *_, **__: pytest.fail("it was built again"))
    monkeypatch.setattr(sys.modules["stranger"].Boasts, "__init__", again)
    assert verify(family["noop"], spec, key=AUDIT_KEY, save=False).verdict == "PASS"


# what audits may return


@pytest.fixture
def beside(stranger, family):
    """Verifies with a stranger's audit beside four of fuaudit's own."""

    def work(word, name="noop", **options):
        free = {"claim": "free", "audit": {"use": "free", "word": word}}
        spec = parse_spec(table(free, *OF_THE_RUN, asks="run"), "ours.toml")
        return verify(family[name], spec, key=AUDIT_KEY, **options)

    return work


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("name", "in the name of 'replay'"),
        ("verdict", "verdict must be a Verdict"),
        ("nan", "finite number"),
        ("object", "finite number"),
        ("rate", "error_rate must be a number"),
        ("spends", "spent an error rate of 0.5, of 0"),
        ("nothing", "returned NoneType, not a Finding"),
        ("raises", "the dog ate the finding"),
        ("inputs", "it changed case.dataset.inputs, which it was given"),
        ("targets", "it changed case.dataset.targets"),
        ("test_inputs", "it changed case.dataset.test_inputs"),
        ("info", "it changed case.run.info"),
        ("parent.info", "it changed case.parent.info"),
        ("document('plan.json')", "it changed case.run.document('plan.json')"),
    ],
)
def test_an_audit_that_breaks_its_contract_is_named_and_the_others_stay(beside, word, reason, tmp_path):
    result = beside(word, "fats", out=tmp_path / "audit")
    assert (result.verdict, result.exit_code) == ("ERROR", 5)
    broken, *others = result.findings
    assert (broken.audit, broken.verdict) == ("free", "ERROR")
    assert "strangers-package 1.5" in broken.shows
    assert reason in broken.shows
    assert [finding.verdict for finding in others] == ["PASS"] * 4
    assert b'"ERROR"' in result.path.read_bytes()
    assert render(result.as_json(), "md")


def test_a_fail_of_another_check_goes_before_a_broken_audit(beside):
    result = beside("raises", save=False)
    assert (result.verdict, result.exit_code) == ("FAIL", 1)


def test_no_name_of_a_figure_changes_what_others_say(beside):
    sound, figures = (beside(word, "fats", save=False) for word in ("sound", "tolerance"))
    assert sound.verdict == figures.verdict == "PASS"
    assert "tolerance" not in figures.reason
    assert figures.context["error_rates"] == sound.context["error_rates"]
    told = beside("qualifies", "fats", save=False).reason
    assert "The audit 'free' of strangers-package 1.5 says: 'It looked at one round only.'" in told


def test_an_option_called_alpha_is_an_option(stranger):
    """Its audit declares no error rate, so it takes no share."""
    free = {"claim": "free", "audit": {"use": "free", "alpha": "a word"}}
    others = (*EVERYTHING[:-1], LAW | {"share": 0.5})
    assert parse_spec(table(free, *others, alpha=0.001), "ours.toml").checks[0].audit["alpha"] == "a word"
    with pytest.raises(UsageError, match="no error rate"):
        parse_spec(table(free | {"share": 0.5}, *others, alpha=0.001), "ours.toml")


def test_an_audit_that_raises_where_it_declares_is_named(stranger):
    with pytest.raises(PluginError, match=r"audit 'moody' of strangers-package 1\.5 raised where it declares"):
        parse_spec(table("moody", *EVERYTHING), "ours.toml")


def test_an_audit_that_declares_nothing_is_refused(stranger):
    with pytest.raises(PluginError, match=r"audit 'silent' of strangers-package 1\.5 declares wrongly"):
        parse_spec(table("silent", *EVERYTHING), "ours.toml")


# the model in use


@pytest.fixture
def served(family, tmp_path):
    """Files of models: the run's own in three forms, and others."""
    run, parent = family["fats"], family["parent"]
    weight, bias = run.model[:640].reshape(10, 64), run.model[640:]
    whole = {"1.weight": weight.contiguous(), "1.bias": bias.contiguous()}
    files = {
        "vector": {"anything": run.model},
        "named": whole,
        "wide": {name: tensor.double() for name, tensor in whole.items()},
        "parent": {"anything": parent.model},
        "one off": {**whole, "1.bias": torch.cat([bias[:9], torch.nextafter(bias[9:], bias[9:] + 1)])},
        "surplus": whole | {"old": parent.model},
        "missing": {"1.weight": weight.contiguous(), "2.bias": bias.contiguous()},
        "half": {name: tensor.half() for name, tensor in whole.items()},
        "short": {"anything": run.model[:-1].contiguous()},
    }
    for name, tensors in files.items():
        save_file(tensors, tmp_path / f"{name}.safetensors")
    save_file(dict(reversed(whole.items())), tmp_path / "others.safetensors", metadata={"format": "pt"})
    shutil.copy(run.path / "checkpoints" / "000008.safetensors", tmp_path / "stored.safetensors")
    return lambda name: tmp_path / f"{name}.safetensors"


@pytest.mark.parametrize("name", ["vector", "named", "wide", "stored", "others"])
def test_the_model_in_use_is_that_of_the_run(family, quick, served, name):
    result = verify(family["fats"], quick, model=served(name), key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS"
    assert result.context["served"]["same"] is True
    digest = result.context["served"]["sha256"]
    page = render(result.as_json(), "md").decode()
    assert f"SHA-256 of its file {digest}: it is the model of this run" in page
    assert not any("The model in use is the last one" in line for line in result.conclusion.rests_on)


def test_what_a_file_of_the_model_in_use_holds_beside_it_is_counted(family, quick, served):
    """The original model lies in the notes of the file, which no reader of tensors sees."""
    whole, parent = served("vector"), family["parent"]
    notes = {"old": parent.path.joinpath("model.safetensors").read_bytes().hex()}
    save_file(load_file(whole), whole, metadata=notes)
    result = verify(family["fats"], quick, model=whole, key=AUDIT_KEY, save=False)
    room = whole.stat().st_size - family["fats"].model.nbytes
    assert room > parent.model.nbytes
    told = (
        f"{room:,} bytes of the file of the model in use are no numbers: names, spaces and notes of its writer. "
        "Nothing compares more of them than names of parameters."
    )
    assert result.verdict == "PASS"
    assert told in result.conclusion.rests_on


@pytest.mark.parametrize("name", ["model", "checkpoints/000008"])
def test_of_a_file_of_the_run_itself_nothing_is_left_to_trust(family, quick, name):
    run = family["fats"]
    result = verify(run, quick, model=run.path / f"{name}.safetensors", key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS"
    assert not any("model in use" in line for line in result.conclusion.rests_on)


@pytest.mark.parametrize("name", ["parent", "one off", "surplus", "missing", "half", "short"])
def test_another_model_in_use_fails(family, quick, served, name):
    result = verify(family["fats"], quick, model=served(name), key=AUDIT_KEY, save=False)
    assert result.verdict == "FAIL"
    assert "The model in use is not that of the run" in result.reason
    assert "it is another model" in render(result.as_json(), "md").decode()


def test_a_zero_of_another_sign_is_another_number():
    """Each is a bit that whoever wrote the file could choose."""
    ours = torch.tensor([0.0, 1.0])
    assert _numbers("it", ours.double(), ours) == ""
    assert _numbers("it", torch.tensor([-0.0, 1.0]), ours) == "zeros of it have another sign"


def test_without_a_model_in_use_it_is_said_that_nothing_compares_it(family, quick, tmp_path):
    result = verify(family["fats"], quick, key=AUDIT_KEY, save=False)
    assert any("nothing was given (--model FILE) to compare" in line for line in result.conclusion.rests_on)
    assert "none was given: nothing compares a model in use with this run" in render(result.as_json(), "md").decode()
    with pytest.raises(UsageError, match="there is no model"):
        verify(family["fats"], quick, model=tmp_path / "none", save=False)
    (tmp_path / "torn").write_bytes(b"torn")
    save_file({"anything": torch.full_like(family["fats"].model, torch.nan)}, tmp_path / "nan")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**35)
    for name, reason in (("torn", "not a valid safetensors"), ("nan", "NaN or infinities"), ("sparse", "is larger")):
        with pytest.raises(EvidenceError, match=reason):
            verify(family["fats"], quick, model=tmp_path / name, save=False)


# what to do next


def test_an_editor_is_told_of_the_spec_that_can_judge_it(family):
    result = verify(family["finetune"], budget=0, key=AUDIT_KEY, save=False)
    assert result.verdict == "INCONCLUSIVE"
    assert "--spec bounded-difference" in result.reason


# the page


def rows_of(page):
    lines = [line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in lines}


def test_the_page_on_specs_tells_what_the_code_does():
    page = (Path(__file__).parents[1] / "docs" / "specs.md").read_text(encoding="utf-8")
    rows = rows_of(page)
    for kind in (SpecKeys, Check):
        for field in fields(kind):
            required = rows[field.name][0]
            assert required.startswith("yes") == (field.default is MISSING), field.name
    for claim in CLAIMS.values():
        assert {word.strip() for word in rows[claim.asks][0].split(",")} == claim.needs
    for word, shows in EVIDENCE.items():
        audits = [n for n, entry in registry.entries("audits").items() if entry.own and word in entry.load()().evidence]
        assert rows[word][0] == shows
        assert rows[word][1].startswith(", ".join(f"`{name}`" for name in sorted(audits)) or "no audit yet")
    example = page.split("```toml\n")[1].split("```")[0]
    with pytest.raises(UsageError, match="no required check gives evidence of execution"):
        parse_spec({**tomllib.loads(example), "expires": date(9999, 1, 1)}, "the example")
