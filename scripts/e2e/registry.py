"""The tests, and what they raise. A test is a function of one argument, a Harness."""

from dataclasses import dataclass
from typing import Callable

# Tests run side by side in so many places, a third of a core each.
PLACES = 6
# Tests that compare latencies, or plant what takes CPU time from others: they need the machine for themselves.
TIMED_TEST = PLACES
# Tests that keep one core busy; their timing may vary.
COMPUTING_TEST = 5
# Applications that compute for up to half a core, and whose timing is compared with their own clock.
BUSY_TEST = 2
# Programs that mostly wait.
WAITING_TEST = 1
# Two shapers at once would see each other's applications and control groups.
SHAPERS = "shapers"


class Skip(Exception):
    """The test cannot run here; says why."""


class Mismatch(Exception):
    """The program under test did something else than expected."""


@dataclass(frozen=True)
class Test:
    """A registered test."""

    name: str
    subject: str
    description: str
    run: Callable
    places: int
    # Tests of one group never run side by side.
    group: str | None
    # Why a run of everything leaves it out; None: it does not.
    left_out: str | None
    # Runs only if its full name is given: a part that another test starts.
    hidden: bool


TESTS = []


def register(function, *, name=None, description=None, places=BUSY_TEST, group=None, left_out=None,
             hidden=False):
    """Registers a function as a test; its subject is the module that it stands in."""
    TESTS.append(Test(name=name or function.__name__,
                      subject=function.__module__.rsplit(".", maxsplit=1)[-1],
                      description=description or function.__doc__.splitlines()[0].rstrip("."),
                      run=function, places=places, group=group, left_out=left_out, hidden=hidden))
    return function


def test(function=None, **options):
    """Decorator: registers a test, `@test` or `@test(places=PLACES)`."""
    if function is not None:
        return register(function)
    return lambda function: register(function, **options)


def need(fact, what):
    """Fails the test with `what` unless `fact` is true."""
    if not fact:
        raise Mismatch(what)


def expect(*lists):
    """Fails the test with every complaint of these lists."""
    wrong = sum(lists, [])
    if wrong:
        raise Mismatch("\n".join(wrong))


def matches(test_, word):
    """Whether a word of the command line is the test's subject, or whole words of its name."""
    return f"_{word}_" in f"_{test_.subject}_" or f"_{word}_" in f"_{test_.name}_"


def choose(words, everything=False):
    """The tests that words of the command line choose, and those that are left out."""
    visible = [t for t in TESTS if not t.hidden]
    if not words:
        chosen = [t for t in visible if everything or not t.left_out]
        return chosen, [t for t in visible if t not in chosen]
    chosen = []
    for word in words:
        found = ([t for t in TESTS if t.name == word]
                 or [t for t in visible if matches(t, word)]
                 or [t for t in visible if word in t.name])
        if not found:
            raise LookupError(f"no end-to-end test and no subject '{word}': ./dev test list")
        chosen += [t for t in found if t not in chosen]
    return chosen, []
