"""A loss of named terms, each with its weight: what a source, the student or a recital is trained by."""

from collections.abc import Mapping

from torch import Tensor

from oneshot_fl.errors import OneshotError
from oneshot_fl.parts.slots import Term
from oneshot_fl.parts.view import View, in_words
from oneshot_fl.process import say
from oneshot_fl.recipe import Recipe, made_of_ours, needs_of


class Objective:
    """The weighted sum of named terms; `key` is the configuration's, for the line that says that one is wrong."""

    def __init__(self, terms: Mapping[str, Term], key: str = "") -> None:
        self.key = key
        self.terms = {name: term for name, term in terms.items() if term.weight != 0}
        self._own = frozenset(name for name, term in self.terms.items() if not made_of_ours(term))
        """The names of a user's own, which may do what ours do not."""
        self._idle: set[str] = set()
        """The names of terms of which it has been told that they train nothing."""

    @property
    def needs(self) -> frozenset[str]:
        """Everything that the terms with a weight need."""
        return frozenset().union(*(needs_of(term) for term in self.terms.values()))

    def __call__(self, view: View) -> tuple[Tensor, dict[str, Tensor]]:
        """The total, and every term's own unweighted, detached value.

        Raises:
            OneshotError: a term returns no scalar, or one of a user's own writes into the view.
        """
        values = {name: self._scalar(name, self._asked(name, term, view)) for name, term in self.terms.items()}
        total = sum((self.terms[name].weight * value for name, value in values.items()), view.x.new_zeros(()))
        if total.requires_grad:
            self._tell_of_idle(values)
        return total, {name: value.detach() for name, value in values.items()}

    def named(self, name: str) -> str:
        """The key of a term."""
        return f"{self.key}.{name}".lstrip(".")

    def _asked(self, name: str, term: Term, view: View) -> Tensor:
        """What a term returns, once it is seen that it leaves what the other terms look at as it is; ours do."""
        value = term(view)
        if name in self._own and (written := view.written):
            raise OneshotError(
                f"{self.named(name)}: the loss term writes into view.{written}, which others look at too; let it work "
                "on a copy (.clone())"
            )
        return value

    def _tell_of_idle(self, values: Mapping[str, Tensor]) -> None:
        """Say once of a user's own term that it trains nothing, beside others that do."""
        fixed = {name for name in self._own if not values[name].requires_grad}
        for name in sorted(fixed - self._idle):
            say(
                f"{self.named(name)}: the loss term has no gradient, so that nothing is trained by it; in a student's "
                "objective only view.student has one, and none is left behind argmax, .detach() and torch.no_grad()"
            )
        self._idle |= fixed

    def _scalar(self, name: str, value: Tensor) -> Tensor:
        """A term's value as it is; one number an image would train on the sum of the batch without a word."""
        if isinstance(value, Tensor) and value.ndim == 0 and value.is_floating_point():
            return value
        raise OneshotError(
            f"{self.named(name)}: the loss term returns {in_words(value)}, and must "
            "return one floating-point number for the whole batch, a tensor of shape []; end it with .mean()"
        )


def objective_of(terms: Mapping[str, Recipe[Term]], key: str) -> Objective:
    """The objective of the named terms at a key of the configuration."""
    return Objective({name: term() for name, term in terms.items()}, key)
