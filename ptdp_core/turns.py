"""Two functions in turns: each in a thread of its own, but only one of them runs at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Semaphore, Thread


class Turns:
    """Lets a function that would wait for something hand over to another one, which goes on meanwhile.

    What the two do has one order, which depends on nothing but where they hand over. Of `state`, an object that both
    use, each has attributes of its own: they are put back when its turn comes again.
    """

    def __init__(self, state: object = None) -> None:
        self._state = {} if state is None else vars(state)
        self._other: Semaphore | None = None  # what the one that does not run waits for; None if there is none
        self._error: BaseException | None = None

    @contextmanager
    def beside(self, other: Callable[[], None]) -> Iterator[None]:
        """Run `other`, which begins, in turns with what is done inside. At the end both are done.

        What `other` raises is raised here when it is this side's turn.
        """

        def run() -> None:
            try:
                other()
            except BaseException as error:
                self._error = error
            self._end()

        self._error = None
        thread = Thread(target=run, daemon=True)  # which never has its turn again if what is done inside fails
        self._let(thread.start)
        yield
        self._end()
        thread.join()
        self._check()

    def hand_over(self) -> None:
        """Let the other function go on until it hands over or is done; do nothing if there is none."""
        if self._other is not None:
            self._let(self._other.release)

    def _let(self, go_on: Callable[[], object]) -> None:
        """Let the other one `go_on`, and wait until this one's turn comes again."""
        mine, state = Semaphore(0), dict(self._state)
        self._other = mine
        go_on()
        mine.acquire()
        self._state.update(state)
        self._check()

    def _end(self) -> None:
        other, self._other = self._other, None
        if other is not None:
            other.release()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
