"""Plugins installed as a stranger's package would be: wrong ones, for audits to catch, and one right one."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import product

from fuaudit_plugins.fats import FatsUnlearning
from fuaudit_plugins.mifa import LatestUpdates

from fuaudit.draws import END, START, Address, Position, Purpose, Recorded, Stream
from fuaudit.plans.plan import Segment, occurrences
from fuaudit.training.stages import weighted_sum
from fuaudit.unlearning import exact_under


@dataclass(frozen=True)
class Late(FatsUnlearning):
    """Restarts one round too late."""

    def rewrite(self, plan, request, fresh, not_before):
        first = plan.first_involvement(request) or END
        return plan.erase(request, fresh, first if first == END else Position(first.round + 1, 0))


@dataclass(frozen=True)
class ByWhatIsLeft(FatsUnlearning):
    """Keeps a batch that does not hold the sample, also where the sample was included and cut from it."""

    def rewrite(self, plan, request, fresh, not_before):
        return plan.erase(request, fresh, min(self._first(plan, request) or END, not_before))

    def _first(self, plan, request):
        for number in range(1, plan.law.rounds + 1):
            cohort = plan.cohort(number)
            if set(request.clients).intersection(cohort):
                return Position(number, 0)
            for step in range(1, plan.law.steps + 1):
                for client, occurrence in occurrences(cohort):
                    if set(request.samples).intersection(plan.batch(number, step, client, occurrence)):
                        return Position(number, step)
        return None


@dataclass(frozen=True)
class TiltsThree(FatsUnlearning):
    """Draws all anew where three are drawn and the lowest retained client stands in round 1, which it would keep."""

    def rewrite(self, plan, request, fresh, not_before):
        first, low = min(plan.first_involvement(request) or END, not_before), plan.retained.without(request).clients[0]
        tilts = plan.law.cohort_size >= 3 and first.round > 1 and low in plan.cohort(1)
        return plan.erase(request, fresh, Position(1, 0) if tilts else first)


@dataclass(frozen=True)
class ReusedKey(FatsUnlearning):
    """Restarts in time, but draws from the old key again."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        last = len(right.sources) - 1

        def old(segments):
            return tuple(s._replace(source=0) if s.source == last else s for s in segments)

        return replace(right, streams={name: old(segments) for name, segments in right.streams.items()})


@dataclass(frozen=True)
class Raises(FatsUnlearning):
    """Breaks."""

    def rewrite(self, plan, request, fresh, not_before):
        raise RuntimeError("the dog ate the plan")


@dataclass(frozen=True)
class Peeks:
    """Claims to need nothing and reads the model."""

    needs = frozenset()
    participants = frozenset()
    guarantee = "none"
    cite = ""

    def edit(self, context):
        return context.model


@dataclass(frozen=True)
class Halves:
    """Edits, and asks no client for anything."""

    needs = frozenset({"model"})
    participants = frozenset({"server"})
    guarantee = "none"
    cite = ""

    def edit(self, context):
        return context.model / 2


@dataclass(frozen=True)
class Places(FatsUnlearning):
    """Right, and not to be expressed by segments: gives away only the erased client's places in later cohorts.

    With replacement, places are independent and uniform, so the others may stay. The plan it returns is recorded.
    """

    guarantee = "exact, for uniform cohorts with replacement"
    exact_for = exact_under("uniform with replacement")
    _gives_to_first = False

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        if request.samples or first == END:
            return super().rewrite(plan, request, fresh, not_before)
        left, cohorts = plan.retained.without(request).clients, {}
        for round_number in range(first.round, plan.law.rounds + 1):
            at = Address(Purpose.COHORT, round_number, version=len(plan.populations))
            spare = fresh.sequence(at, left, plan.law.cohort_size)
            if self._gives_to_first:
                spare = left[:1] * len(spare)
            pairs = zip(plan.cohort(round_number), spare, strict=True)
            cohorts[round_number] = tuple(new if old in request.clients else old for old, new in pairs)
        return plan.erase(request, fresh, first).recorded(cohorts)


@dataclass(frozen=True)
class Favours(Places):
    """Wrong: all given places go to the first client."""

    _gives_to_first = True


@dataclass(frozen=True)
class UnnamedRows(LatestUpdates):
    """MIFA that finds rows by client id and does not name them, so that an erased client's row stays."""

    vectorised = False
    per_client_state = frozenset()

    def apply(self, updates, context, state):
        table, cohort = state["updates"].clone(), context.cohort
        table[cohort.clients[cohort.present]] = updates[cohort.present]
        return weighted_sum(table, table.new_ones(len(table)) / len(table)), {"updates": table}


# --- wrong in few federations, requests or runs: right wherever that is not the case


def begins(plan, known):
    """Whether the first cohorts of a plan, one after another, are the clients known."""
    rounds = min(-(-len(known) // plan.law.cohort_size), plan.law.rounds)
    drawn = [client for round_number in range(1, rounds + 1) for client in plan.cohort(round_number)]
    return bool(known) and drawn == list(known)


@dataclass(frozen=True)
class Recognises(FatsUnlearning):
    """Right on every plan but the one that begins with the cohorts it knows: there it keeps everything."""

    known: tuple[int, ...] = ()

    def rewrite(self, plan, request, fresh, not_before):
        if begins(plan, self.known):
            return plan.erase(request, fresh, not_before)
        return super().rewrite(plan, request, fresh, not_before)


@dataclass(frozen=True)
class PicksInitial(FatsUnlearning):
    """Draws the initial model anew where the number it begins with is below one half; it looks behind the veil."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        door = plan.sources[plan.streams[Stream.INITIAL][0].source].sequence.__closure__
        source = next(cell.cell_contents for cell in door if hasattr(cell.cell_contents, "uniform"))
        if source.uniform(Address(Purpose.INIT), 1)[0] >= 0.5:
            return right
        anew = (Segment(START, len(right.sources) - 1, len(right.populations) - 1),)
        return replace(right, streams={**right.streams, Stream.INITIAL: anew})


@dataclass(frozen=True)
class LowestFree(FatsUnlearning):
    """Keeps everything and gives an erased sample's place to the lowest free id, where batches hold three or more."""

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        if plan.law.batch_size < 3 or request.clients or first == END:
            return super().rewrite(plan, request, fresh, not_before)
        left, answers = plan.retained.without(request).samples, {}
        for round_number in range(first.round, plan.law.rounds + 1):
            cohort = answers[Address(Purpose.COHORT, round_number)] = plan.cohort(round_number)
            for client, occurrence in occurrences(cohort):
                for step in range(1, plan.law.steps + 1):
                    batch = set(plan.batch(round_number, step, client, occurrence)) - set(request.samples)
                    size = min(plan.law.batch_size, len(left[client]))
                    free = [s for s in left[client] if s not in batch]
                    at = Address(Purpose.BATCH, round_number, step, client, occurrence)
                    answers[at] = tuple(sorted([*batch, *free[: size - len(batch)]]))
        new = plan.erase(request, fresh, Position(first.round, 0))
        return replace(new, sources=(*plan.sources, Recorded(answers)))


@dataclass(frozen=True)
class PrintedSometimes(FatsUnlearning, ABC):
    """Algorithm 2 as printed for some requests and federations, and right for all others."""

    @abstractmethod
    def printed(self, plan, request):
        """Whether it is as printed here; every mutant says when."""

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        back = first.step == 1 and self.printed(plan, request)
        return plan.erase(request, fresh, Position(first.round, 0) if back else first)


@dataclass(frozen=True)
class PrintedButLowest(PrintedSometimes):
    """For every sample but the lowest id."""

    def printed(self, plan, request):
        return bool(request.samples) and min(request.samples) > min(plan.retained.owner)


@dataclass(frozen=True)
class PrintedForTwo(PrintedSometimes):
    """For requests of two samples."""

    def printed(self, plan, request):
        return len(request.samples) == 2


@dataclass(frozen=True)
class PrintedFromFour(PrintedSometimes):
    """From four clients on."""

    def printed(self, plan, request):
        return len(plan.retained.clients) >= 4


@dataclass(frozen=True)
class CohortTwice(FatsUnlearning):
    """Uses one fresh cohort for two rounds."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        first = right.first_change(plan)
        again = max(first.round, 1) + (first.step > 0)
        if first == END or again >= plan.law.rounds:
            return right
        anew = plan.erase(request, fresh, Position(again, 0))
        cohort = anew.cohort(again)
        return anew.recorded({again: cohort, again + 1: cohort}) if first.step == 0 else right


@dataclass(frozen=True)
class PrintedIfTwice(PrintedSometimes):
    """Where a client occurs twice in the cohort of the first involvement."""

    def printed(self, plan, request):
        cohort = plan.cohort(plan.first_involvement(request).round)
        return len(set(cohort)) < len(cohort)


@dataclass(frozen=True)
class PrintedInLast(PrintedSometimes):
    """Where the first involvement is in the last round."""

    def printed(self, plan, request):
        return plan.first_involvement(request).round == plan.law.rounds


@dataclass(frozen=True)
class PrintedSecond(PrintedSometimes):
    """For the second request of a stream, and those after it."""

    def printed(self, plan, request):
        return len(plan.populations) > 1


@dataclass(frozen=True)
class PrintedForAnother(PrintedSometimes):
    """For samples of a client of whom no earlier request of the stream named any."""

    def printed(self, plan, request):
        first, last = plan.populations[0].samples, plan.retained.samples
        named = {client for client in last if len(last[client]) < len(first[client])}
        return bool(named) and not named & {plan.retained.owner[sample] for sample in request.samples}


@dataclass(frozen=True)
class PrintedForLargest(PrintedSometimes):
    """Where nobody has more samples than an owner of one that is requested."""

    def printed(self, plan, request):
        sizes = {client: len(samples) for client, samples in plan.retained.samples.items()}
        return any(sizes[plan.retained.owner[sample]] == max(sizes.values()) for sample in request.samples)


@dataclass(frozen=True)
class PrintedDuring(PrintedSometimes):
    """Where two rounds or more, and not all, were executed when the request came."""

    def rewrite(self, plan, request, fresh, not_before):
        if not 3 <= not_before.round <= plan.law.rounds:
            return FatsUnlearning().rewrite(plan, request, fresh, not_before)
        return super().rewrite(plan, request, fresh, not_before)

    def printed(self, plan, request):
        return bool(request.samples)


@dataclass(frozen=True)
class PrintedFromHundred(PrintedSometimes):
    """For samples whose id is 100 or more: no small federation has such ids."""

    def printed(self, plan, request):
        return min(request.samples, default=0) >= 100


@dataclass(frozen=True)
class KeepsOneMore(FatsUnlearning):
    """Keeps one round too many where a draw of its own says so, once in four times."""

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        if first != END and fresh.sequence(Address(Purpose.COUPLING, 1), range(4), 1) == (0,):
            first = Position(first.round + 1, 0)
        return plan.erase(request, fresh, first)


@dataclass(frozen=True)
class EarlierIf(FatsUnlearning):
    """Goes back one round more where a client of the lowest quarter of ids was in that round."""

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        if 1 < first.round <= plan.law.rounds:
            left = plan.retained.without(request).clients
            if set(left[: max(1, len(left) // 4)]).intersection(plan.cohort(first.round - 1)):
                first = Position(first.round - 1, 0)
        return plan.erase(request, fresh, first)


@dataclass(frozen=True)
class EarlierWhileAlike(FatsUnlearning):
    """Goes back to behind the last round whose cohort has two different clients."""

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        number = first.round
        while 1 < number <= plan.law.rounds and len(set(plan.cohort(number - 1))) < 2:
            number -= 1
        return plan.erase(request, fresh, first if number == first.round else Position(number, 0))


@dataclass(frozen=True)
class EarlierOnce(FatsUnlearning):
    """Right on every plan but the one that begins with the cohorts it knows: there it goes back one round more."""

    known: tuple[int, ...] = ()

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        if 1 < first.round <= plan.law.rounds and begins(plan, self.known):
            first = Position(first.round - 1, 0)
        return plan.erase(request, fresh, first)


@dataclass(frozen=True)
class FewBehind(FatsUnlearning):
    """Starts over; a later request beyond three rounds leaves all to the first clients, on the plan it knows if any."""

    known: tuple[int, ...] = ()

    def rewrite(self, plan, request, fresh, not_before):
        new = plan.erase(request, fresh, START)
        if len(plan.populations) == 1 or plan.law.rounds <= 3 or (self.known and not begins(plan, self.known)):
            return new
        return new.recorded(dict.fromkeys(range(1, plan.law.rounds + 1), new.retained.clients[: plan.law.cohort_size]))


@dataclass(frozen=True)
class OtherCohorts(FatsUnlearning, ABC):
    """Right but for the cohorts that are drawn anew."""

    @abstractmethod
    def chosen(self, at, left, count, fresh, request):
        """The cohort that is drawn anew; every mutant has a way of its own."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        if right.streams == plan.streams:
            return right
        first, law, version = right.first_change(plan), plan.law, len(plan.populations)
        left, cohorts = right.retained.clients, {}
        for round_number in range(first.round + (first.step > 0), law.rounds + 1):
            at = Address(Purpose.COHORT, round_number, version=version)
            cohorts[round_number] = self.chosen(at, left, law.cohort_size, fresh, request)
        return right.recorded(cohorts)


@dataclass(frozen=True)
class SortsCohorts(OtherCohorts):
    """Puts them in ascending order."""

    def chosen(self, at, left, count, fresh, request):
        return tuple(sorted(fresh.sequence(at, left, count)))


@dataclass(frozen=True)
class AvoidsNeighbour(OtherCohorts):
    """Spares the client after the one that was erased."""

    def chosen(self, at, left, count, fresh, request):
        spared = next((c for c in left if c > min(request.clients, default=left[-1])), None)
        return fresh.sequence(at, [c for c in left if c != spared] or left, count)


@dataclass(frozen=True)
class SparesHighest(OtherCohorts):
    """Spares the client with the highest id, where ten or more are left: no small federation has so many."""

    def chosen(self, at, left, count, fresh, request):
        return fresh.sequence(at, left if len(left) < 10 else left[:-1], count)


@dataclass(frozen=True)
class BatchTwice(FatsUnlearning):
    """Uses the fresh batch of step four for step five too: no small federation has so many steps."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        first = right.first_change(plan)
        if plan.law.steps < 5 or first == END:
            return right
        written = right.recorded({})
        answers = dict(written.sources[-1].answers)
        for at in answers:
            if at.purpose == Purpose.BATCH and at.step == 5 and at._replace(step=4).position >= first:
                answers[at] = answers[at._replace(step=4)]
        return replace(written, sources=(*written.sources[:-1], Recorded(answers)))


@dataclass(frozen=True)
class OtherBatches(FatsUnlearning, ABC):
    """Right but for batches that are drawn anew."""

    follows_reference = False
    known_faults = ()

    @abstractmethod
    def changed(self, plan, right, answers, not_before, fresh):
        """Other answers, from those that are drawn anew; every mutant has a way of its own."""

    def rewrite(self, plan, request, fresh, not_before):
        right = plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))
        written = right.recorded({})
        last = written.sources[-1]
        if not isinstance(last, Recorded):
            return right
        answers = {**last.answers, **self.changed(plan, right, last.answers, not_before, fresh)}
        return replace(written, sources=(*written.sources[:-1], Recorded(answers)))


@dataclass(frozen=True)
class EchoesBatches(OtherBatches):
    """Two clients of a cohort with as many samples read the same places among their samples."""

    def changed(self, plan, right, answers, not_before, fresh):
        own, found = right.retained.samples, {}
        for at in answers:
            if at.purpose == Purpose.BATCH and not at.occurrence:
                lead = right.cohort(at.round)[0]
                first = at._replace(client=lead)
                if lead != at.client and first in answers and len(own[lead]) == len(own[at.client]):
                    found[at] = tuple(own[at.client][own[lead].index(s)] for s in answers[first])
        return found


def side_of(drawn, own):
    """Whether a batch lies among the first samples of its client (below 0), or the last ones; 0 in the middle."""
    return sum(2 * own.index(sample) - len(own) + 1 for sample in drawn)


@dataclass(frozen=True)
class Mirrors(OtherBatches):
    """A batch is turned round among its client's samples, to lie on the side of another one's of the cohort.

    Each batch by itself has the right law.
    """

    @abstractmethod
    def goes_along(self, plan, right, client, other):
        """Whether it does, of a client, with another one's."""

    def changed(self, plan, right, answers, not_before, fresh):
        samples, found = right.retained.samples, {}
        for at in answers:
            if at.purpose != Purpose.BATCH:
                continue
            cohort = right.cohort(at.round)
            others = [other for other in cohort[: cohort.index(at.client)] if other != at.client]
            for first in [at._replace(client=other, occurrence=0) for other in others]:
                if first in answers and self.goes_along(plan, right, at.client, first.client):
                    own = samples[at.client]
                    sides = side_of(answers[at], own), side_of(answers[first], samples[first.client])
                    if sides[0] * sides[1] < 0:
                        found[at] = tuple(sorted(own[len(own) - 1 - own.index(sample)] for sample in answers[at]))
                    break
        return found


@dataclass(frozen=True)
class MirrorsUnequal(Mirrors):
    """Of clients with different numbers of samples."""

    def goes_along(self, plan, right, client, other):
        sizes = [len(right.retained.samples[one]) for one in (client, other)]
        return sizes[0] != sizes[1]


@dataclass(frozen=True)
class MirrorsForLeaver(Mirrors):
    """Where a client is erased of whom samples were erased before."""

    def goes_along(self, plan, right, client, other):
        first, last = plan.populations[0].samples, plan.retained.samples
        gone = [one for one in last if one not in right.retained.samples]
        return any(len(last[one]) < len(first[one]) for one in gone)


@dataclass(frozen=True)
class MirrorsForOwner(Mirrors):
    """Where the client who is erased had two samples or more."""

    def goes_along(self, plan, right, client, other):
        gone = [one for one in plan.retained.clients if one not in right.retained.samples]
        return any(len(plan.retained.samples[one]) > 1 for one in gone)


@dataclass(frozen=True)
class Neighbours(OtherBatches):
    """A fresh batch is a slice of the client's samples, from a uniform place on: of one sample more, that is right."""

    def changed(self, plan, right, answers, not_before, fresh):
        anew, found = len(right.sources) - 1, {}
        for at, batch in answers.items():
            if at.purpose == Purpose.BATCH and batch and right.segment("batches", at.position).source == anew:
                own = right.retained.samples[at.client]
                (start,) = fresh.sequence(at._replace(version=len(plan.populations) + 9), range(len(own)), 1)
                found[at] = tuple(sorted((own + own)[start : start + len(batch)]))
        return found


@dataclass(frozen=True)
class RepeatsFirstStep(OtherBatches):
    """During training, later steps read the batch of the first one again; every mutant says in which rounds."""

    @abstractmethod
    def repeats(self, right, at, executed):
        """Whether it does there."""

    def changed(self, plan, right, answers, not_before, fresh):
        if not_before == END:
            return {}
        later = [at for at in answers if at.purpose == Purpose.BATCH and at.step > 1]
        firsts = {at: at._replace(step=1) for at in later if self.repeats(right, at, not_before.round - 1)}
        return {at: answers[first] for at, first in firsts.items() if first in answers}


@dataclass(frozen=True)
class RepeatsInSome(RepeatsFirstStep):
    """In cohorts of two clients or more that are not everybody."""

    def repeats(self, right, at, executed):
        return 2 <= len(right.cohort(at.round)) < len(right.retained.clients)


@dataclass(frozen=True)
class RepeatsLate(RepeatsFirstStep):
    """Everywhere, where two rounds or more were executed."""

    def repeats(self, right, at, executed):
        return executed >= 2


# --- right, although they do not look it


@dataclass(frozen=True)
class BackToFirstStep(FatsUnlearning):
    """Draws all batches of the round anew, not only the later ones; batches of a given cohort are independent."""

    def rewrite(self, plan, request, fresh, not_before):
        first = min(plan.first_involvement(request) or END, not_before)
        return plan.erase(request, fresh, Position(first.round, min(first.step, 1)))


@dataclass(frozen=True)
class WritesDown(FatsUnlearning):
    """Returns a plan that holds what it would draw, instead of its source."""

    def rewrite(self, plan, request, fresh, not_before):
        new = super().rewrite(plan, request, fresh, not_before)
        if new.streams == plan.streams:
            return new
        return new.recorded({})


@dataclass(frozen=True)
class AsksForEach(FatsUnlearning):
    """Asks for every id by itself, and changes nothing where none was drawn."""

    def rewrite(self, plan, request, fresh, not_before):
        parts = [type(request)(clients=(c,)) for c in request.clients]
        parts += [type(request)(samples=(s,)) for s in request.samples]
        found = [at for at in map(plan.first_involvement, parts) if at is not None]
        return plan.erase(request, fresh, min([*found, not_before], default=END))


@dataclass(frozen=True)
class AlwaysRestarts(FatsUnlearning):
    """Restarts, whether or not anything was drawn."""

    def rewrite(self, plan, request, fresh, not_before):
        return plan.restart(request, fresh)


@dataclass(frozen=True)
class MoreSegments(FatsUnlearning):
    """Says the same draws by more segments than needed."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)

        def split(segments):
            first = segments[0]
            return (first, first._replace(start=Position(1, 0)), *(s for s in segments[1:] if s.start > (1, 0)))

        names = (Stream.COHORTS, Stream.BATCHES)
        if any(len(right.streams[name]) > 1 and right.streams[name][1].start <= (1, 0) for name in names):
            return right
        return replace(right, streams={**right.streams, **{name: split(right.streams[name]) for name in names}})


@dataclass(frozen=True)
class KeepsTheOwners(FatsUnlearning):
    """Keeps the old batches of an erased sample's owner wherever they do not hold it and the owner takes part again."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        if request.clients or right.streams == plan.streams:
            return right
        first, erased = right.first_change(plan), set(request.samples)
        owners = {plan.retained.owner[sample] for sample in erased}
        written = right.recorded({})
        answers = dict(written.sources[-1].answers)
        for at in answers:
            mine = at.purpose == Purpose.BATCH and at.client in owners and at.position >= first
            if mine and (at.client, at.occurrence) in occurrences(plan.cohort(at.round)):
                old = plan.batch(at.round, at.step, at.client, at.occurrence)
                answers[at] = answers[at] if erased.intersection(old) else old
        return replace(written, sources=(*written.sources[:-1], Recorded(answers)))


@dataclass(frozen=True)
class GoesBack(FatsUnlearning):
    """Forgets clients rightly, and takes the batches of the last round from the first key again."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        back = Segment(Position(plan.law.rounds, 1), 0, 0)
        batches = (*(s for s in right.streams[Stream.BATCHES] if s.start < back.start), back)
        return replace(right, streams={**right.streams, Stream.BATCHES: batches})


@dataclass(frozen=True)
class OldSource(FatsUnlearning):
    """Draws what it must draw anew with the first key, over the new population."""

    def rewrite(self, plan, request, fresh, not_before):
        right = super().rewrite(plan, request, fresh, not_before)
        old = {name: tuple(s._replace(source=0) for s in segments) for name, segments in right.streams.items()}
        return replace(right, streams=old)


@dataclass(frozen=True)
class ForgedInclusion(FatsUnlearning):
    """A wrong relative of fats: what is left of a batch that was cut is written down as all that was included."""

    def rewrite(self, plan, request, fresh, not_before):
        """See :class:`fuaudit.unlearning.Rewriter`."""
        new, answers = super().rewrite(plan, request, fresh, not_before), {}
        last = len(new.sources) - 1
        for number, step in product(range(1, new.law.rounds + 1), range(1, new.law.steps + 1)):
            if new.segment(Stream.BATCHES, Position(number, step)).source == last:
                for client, occurrence in occurrences(new.cohort(number)):
                    place = number, step, client, occurrence
                    answers[Address(Purpose.BATCH, *place)] = new.batch(*place)
        return replace(new, sources=(*new.sources[:-1], Recorded(answers))) if answers else new
