"""The workloads of a measurement: speed by depth, in one growing prompt or in separate requests, and under load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from math import ceil
from queue import SimpleQueue
from typing import Any, TypeGuard

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import WorkloadContext, workload_error
from llamaherd.measure.client.http_client import (
    Failure,
    JsonResponse,
    Patience,
    StreamedResponse,
    Target,
    Timings,
    request_json,
    stream_response,
    timings_of,
)
from llamaherd.measure.client.requests import Prompt, cache_buster, long_text, run_from_response
from llamaherd.measure.results.result import Condition, Kind, Result, Run
from llamaherd.measure.statistics import Estimate, Sample, estimate

_CLIMB_PATIENCE = Patience(first=3600, silence=3600, total=3600)
"""A long prompt is computed without any output."""

_KEPT = ["tokens", "timings", "stop_type"]
"""The fields of a response that are requested; the prompt is known here."""

Complete = Callable[[Sequence[int], int, bool], JsonResponse | Failure]
"""Requests so many tokens after a prompt; the flag allows the cache."""


@dataclass
class Climb:
    """One climb: the prompt so far, and how much of it the server has in its cache.

    At each depth, `tokens` are generated `times` times.
    """

    depths: Sequence[int]
    tokens: int
    times: int
    complete: Complete
    clock: Callable[[], float]
    prompt: list[int] = field(default_factory=list)
    cached: int = 0

    def runs(self, words: Sequence[int]) -> Iterator[tuple[int, Run]]:
        """Yield all runs, each with the number of its depth; these words extend the prompt.

        Raise UserError if a request fails.
        """
        used = 0
        for rung, depth in enumerate(self.depths):
            used += self._grow(depth, words[used:])
            for _ in range(self.times):
                yield rung, self._run()
            # If the server does not return its tokens, words of the text take their place.
            used += self._grow(depth + self.tokens * self.times, words[used:])

    def _grow(self, length: int, words: Sequence[int]) -> int:
        missing = length - len(self.prompt)
        self.prompt += words[:missing]
        return missing

    def _run(self) -> Run:
        at = self.clock()
        found = self.complete(self.prompt, self.tokens, self.cached > 0)
        if isinstance(found, Failure):
            raise UserError(f"at a depth of {len(self.prompt):,} tokens: {found.message}", found.help)
        value = found.value if isinstance(found.value, dict) else {}
        reported = value.get("timings")
        timings = timings_of(reported if isinstance(reported, dict) else {})
        excluded = self._why_not(timings)
        self._extend(value.get("tokens"))
        return Run(at=round(at, 3), total_ms=found.total_ms, excluded=excluded, **asdict(timings))

    def _why_not(self, timings: Timings) -> str | None:
        """Return why a response is no measurement of its depth: its cache is unknown, or not as long as expected."""
        if timings.prompt_n is None or timings.predicted_n is None:
            return "the server does not report how many tokens it read and generated"
        if timings.predicted_n != self.tokens:
            return f"it generated {timings.predicted_n:,} tokens instead of {self.tokens:,}"
        expected = min(self.cached, len(self.prompt) - 1)
        # ik_llama.cpp reports only what it has read.
        found = len(self.prompt) - timings.prompt_n if timings.cache_n is None else timings.cache_n
        if found != expected:
            return f"{found:,} tokens came from the cache instead of {expected:,}"
        return None

    def _extend(self, written: Any) -> None:
        """Append the generated tokens. The last one was never evaluated: it is not in the cache."""
        self.cached = len(self.prompt)
        if _are_tokens(written) and len(written) == self.tokens:
            self.prompt += written
            self.cached = len(self.prompt) - 1


def token_completion(target: Target, model: str) -> Complete:
    """Return a function that sends requests, always to the same slot. Its prompts continue a text, and pose no task."""

    def complete(prompt: Sequence[int], most: int, reuse: bool) -> JsonResponse | Failure:
        body = {"prompt": list(prompt), "n_predict": most, "ignore_eos": True, "cache_prompt": reuse, "id_slot": 0}
        body |= {"return_tokens": True, "response_fields": _KEPT, "stream": False, "model": model}
        return request_json(target, "/completion", body, _CLIMB_PATIENCE)

    return complete


def prompt_tokens(target: Target, model: str, most: int, text_of: Callable[[int], str]) -> Sequence[int]:
    """Return so many tokens of a text, by the server's own tokenizer. Raise UserError.

    `text_of` returns a text of so many letters.
    """
    for letters in (5, 10, 20):
        body = {"model": model, "content": text_of(most * letters), "add_special": True}
        found = request_json(target, "/tokenize", body, _CLIMB_PATIENCE)
        if isinstance(found, Failure):
            raise UserError(f"the tokens of a text cannot be counted: {found.message}", found.help)
        tokens = found.value.get("tokens") if isinstance(found.value, dict) else None
        if not _are_tokens(tokens):
            break
        if len(tokens) >= most:
            return tokens[:most]
    raise UserError("the server does not return the tokens of a text", "leave out `--depth`")


def _are_tokens(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int for each in value)


DEPTH_TOKENS, DEPTH_TIMES = 128, 3
"""Tokens that are generated at once, and how often on each rung."""


@dataclass(frozen=True)
class Ladder:
    """Depths in ascending order. At each, `tokens` are generated `times` times."""

    depths: tuple[int, ...]
    tokens: int = DEPTH_TOKENS
    times: int = DEPTH_TIMES
    name: str = "depth"
    one_by_one: bool = True

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """For each depth the piece of the prompt, by its range, and what is generated there."""
        found: list[Condition] = []
        begin = 0
        for depth in self.depths:
            piece = Condition(kind="long", depth=begin, prompt=depth - begin, sampling="instance")
            found += [
                piece.model_copy(update={"cache": "warm" if begin else "cold"}),
                _decode_condition(depth, self.tokens),
            ]
            begin = depth + self.tokens * self.times
        return tuple(found)

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{self.times} times {self.tokens} tokens at each of {len(self.depths)} depths, in one prefill"

    @property
    def context(self) -> int:
        """The tokens up to the end of the last rung."""
        return self.depths[-1] + self.tokens * self.times if self.depths else 0

    def runs(self, context: WorkloadContext) -> Iterator[tuple[int, Run]]:
        """Yield two runs of the first response on each rung, of prompt and generation; one of each other response."""
        target, model = context.served.root, context.served.model
        climb = Climb(self.depths, self.tokens, self.times, token_completion(target, model), context.clock)
        words = prompt_tokens(
            target, model, self.context, lambda letters: cache_buster(context.session, 0) + long_text(letters)
        )
        last = -1
        for rung, run in climb.runs(words):
            if rung != last:
                yield 2 * rung, run.model_copy(update={"predicted_n": None, "predicted_ms": None})
            last = rung
            yield 2 * rung + 1, run.model_copy(update={"prompt_n": None, "prompt_ms": None})


def fit_ladder(ladder: Ladder, context: int | None) -> tuple[Ladder, str | None]:
    """Return the rungs that the server has room for, and a sentence about the others."""
    room = (context or 0) - ladder.tokens * ladder.times
    kept = tuple(depth for depth in ladder.depths if context is None or depth <= room)
    left = [f"{depth:,}" for depth in ladder.depths if depth not in kept]
    if not left:
        return ladder, None
    note = f"a slot of the server has room for {context:,} tokens: {' and '.join(left)} deep is left out"
    return Ladder(kept, ladder.tokens, ladder.times), note


SEPARATE_TIMES = 2
"""Requests at each depth."""

_FIRST_DEPTH_SALT = 140_000
_NEAR = 0.1
"""The share by which a prompt may be longer or shorter than its depth."""

_GO_ON = "\n\nGo on with this text where it ends: write a long next chapter."
_SEPARATE_PATIENCE = Patience(first=3600, silence=120, total=3600)


@dataclass(frozen=True)
class SeparateDepths:
    """Depths in ascending order, twice each: the conditions of decode are those of a ladder."""

    depths: tuple[int, ...]
    name: str = "depth"
    one_by_one: bool = True

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """For each depth the whole prompt, and what is generated after it."""
        return tuple(
            each for depth in self.depths for each in (_prompt_condition(depth), _decode_condition(depth, DEPTH_TOKENS))
        )

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{SEPARATE_TIMES} requests at each of {len(self.depths)} depths"

    def runs(self, context: WorkloadContext) -> Iterator[tuple[int, Run]]:
        """Yield two runs of each response, of prompt and generation. Raise UserError."""
        for place, depth in enumerate(self.depths):
            text = context.text_of(depth) + _GO_ON
            for number in range(SEPARATE_TIMES):
                at = context.clock()
                before = cache_buster(context.session, _FIRST_DEPTH_SALT + SEPARATE_TIMES * place + number)
                response = stream_response(
                    context.served.target, context.served.chat, _depth_body(context, before + text), _SEPARATE_PATIENCE
                )
                if isinstance(response, StreamedResponse):
                    run = run_from_response(
                        response, _prompt_condition(depth).model_copy(update={"generated": DEPTH_TOKENS}), at=at
                    )
                    yield from _split_run(run, depth, place)
                elif response.why in ("refused", "empty"):
                    # Mostly a context that is too short, which the server did not report.
                    yield 2 * place + 1, Run(at=round(at, 3), excluded=response.message)
                    break
                else:
                    raise workload_error(f"at a depth of {depth:,} tokens", response)


def _split_run(run: Run, depth: int, place: int) -> Iterator[tuple[int, Run]]:
    if run.prompt_n is None or abs(run.prompt_n / depth - 1) > _NEAR:
        read = "an unknown number" if run.prompt_n is None else f"{run.prompt_n:,}"
        run = run.model_copy(update={"excluded": run.excluded or f"of a prompt of {depth:,} tokens it read {read}"})
    yield 2 * place, run.model_copy(update={"predicted_n": None, "predicted_ms": None, "pieces_ms": ()})
    yield 2 * place + 1, run.model_copy(update={"prompt_n": None, "prompt_ms": None, "first_token_ms": None})


def _prompt_condition(depth: int) -> Condition:
    return Condition(kind="long", prompt=depth, cache="cold", sampling="instance")


def _decode_condition(depth: int, tokens: int) -> Condition:
    return Condition(kind="long", depth=depth, generated=tokens, cache="warm", sampling="instance")


def _depth_body(context: WorkloadContext, text: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": context.served.model, "messages": [{"role": "user", "content": text}]}
    body |= {"max_tokens": DEPTH_TOKENS, "stream_options": {"include_usage": True}}
    # Other engines may refuse unknown keys.
    return body | ({"ignore_eos": True} if context.served.engine == "vllm" else {})


LOAD_SECONDS, LOAD_TOKENS = 30.0, 160
"""Of each number of requests at once, and of each response: no other measurement uses this length."""
LOAD_KIND: Kind = "code"
_PATIENCE = Patience()
MOST_PIECES = 100_000
"""Of all responses whose times are kept: a result has room for four times as many values."""
SLICES = 5
"""Parts of the time at full load: the error of the total follows from their differences."""

_FEWEST_FOR_95 = 59
"""Requests below which only the slowest one is known of the slowest twentieth."""


@dataclass(frozen=True)
class Load:
    """Numbers of requests at once, each for so many seconds. No two prompts begin alike, nor like any before."""

    levels: tuple[int, ...]
    prompts: Sequence[Prompt]
    seconds: float = LOAD_SECONDS
    tokens: int = LOAD_TOKENS
    patience: Patience = _PATIENCE
    name: str = "concurrency"
    one_by_one: bool = False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One for each number."""
        return tuple(
            Condition(kind=LOAD_KIND, generated=self.tokens, concurrency=level, cache="cold", sampling="instance")
            for level in self.levels
        )

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{self.seconds:g} s with each number of requests at once"

    def runs(self, context: WorkloadContext) -> Iterator[tuple[int, Run]]:
        """Yield the runs of one number after the other. Raise UserError."""
        numbers, pieces = count(_FIRST_LOAD_SALT), 0
        for cell, (level, condition) in enumerate(zip(self.levels, self.conditions, strict=True)):
            for run in _Streams(self, context, condition, numbers).runs(level):
                pieces += len(run.pieces_ms)
                yield cell, run if pieces <= MOST_PIECES else run.model_copy(update={"pieces_ms": ()})


_FIRST_LOAD_SALT = 150_000
"""The numbers below belong to single requests: there are no more of them in two hours."""


class _Streams:
    """So many threads, each with one request at a time. Their runs are passed on as they arrive."""

    def __init__(self, load: Load, context: WorkloadContext, condition: Condition, numbers: Iterator[int]) -> None:
        self._load, self._context, self._condition = load, context, condition
        self._numbers, self._lock = numbers, threading.Lock()
        self._over = threading.Event()
        self._found: SimpleQueue[Run | Failure | None] = SimpleQueue()

    def runs(self, level: int) -> Iterator[Run]:
        """Yield the runs. The first failure ends all threads: a server that fails under load has no speed."""
        ends = self._context.clock() + self._load.seconds
        for _ in range(level):
            threading.Thread(target=self._stream, args=(ends,), daemon=True).start()
        try:
            left = level
            while left:
                found = self._found.get()
                if isinstance(found, Failure):
                    raise workload_error(f"with {level} requests at once", found)
                if found is not None:
                    yield found
                left -= found is None
        finally:
            self._over.set()

    def _stream(self, ends: float) -> None:
        try:
            while not self._over.is_set() and (at := self._context.clock()) < ends:
                found = self._asked()
                self._found.put(self._run(found, at))
        finally:
            self._found.put(None)

    def _run(self, found: StreamedResponse | Failure, at: float) -> Run | Failure:
        """Return the run of a response; an empty one was too short."""
        if isinstance(found, Failure) and found.why != "empty":
            return found
        return run_from_response(found, self._condition, at=at)

    def _asked(self) -> StreamedResponse | Failure:
        with self._lock:
            number = next(self._numbers)
        served = self._context.served
        body = _load_body(self._load, served.model, number, cache_buster(self._context.session, number))
        return stream_response(served.target, served.chat, body, self._load.patience)


def _load_body(load: Load, model: str, number: int, before: str) -> Mapping[str, Any]:
    text = before + load.prompts[number % len(load.prompts)].text
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": load.tokens,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }


@dataclass(frozen=True)
class TotalSpeed:
    """The speed of a server with all requests at once. `waited` is the time to the first token, in ms.

    Nineteen of twenty of these are below `late`; with too few requests for that, it is the longest.
    """

    tokens_per_second: Estimate
    seconds: float
    requests: int
    waited: float
    late: float
    late_is_longest: bool


def total_speed(runs: Sequence[Run], level: int) -> TotalSpeed | None:
    """Compute the total over the time at full load; None if there was none."""
    timed = [run for run in runs if run.at is not None and run.total_ms and run.first_token_ms and not run.excluded]
    window = _window(timed, level)
    if window is None:
        return None
    begin, end = window
    each = (end - begin) / SLICES
    slices = [(begin + number * each, begin + (number + 1) * each) for number in range(SLICES)]
    samples = [Sample(sum(_tokens_within(run, *part) for run in timed), each) for part in slices]
    together = estimate([[sample for sample in samples if sample.amount > 0]])
    waits = sorted(run.first_token_ms or 0 for run in timed)
    if together is None:
        return None
    few = len(waits) < _FEWEST_FOR_95
    late = waits[-1] if few else waits[ceil(0.95 * len(waits)) - 1]
    return TotalSpeed(together, end - begin, len(waits), waits[len(waits) // 2], late, few)


def total_lines(result: Result) -> Iterator[str]:
    """Yield a line of the summary for each number of requests at once."""
    for cell in result.cells:
        level = cell.condition.concurrency
        found = total_speed(cell.runs, level) if level > 1 else None
        if found is None:
            continue
        together = found.tokens_per_second
        error = f" ({together.low:.4g} to {together.high:.4g})" if together.low and together.high else ""
        late = "at most" if found.late_is_longest else "19 of 20 within"
        yield (
            f"{level} at once: {together.value:.4g} t/s{error} of all together over {found.seconds:.0f} s; "
            f"first token after {found.waited:.0f} ms, {late} {found.late:.0f} ms, of {found.requests} requests"
        )


def _window(runs: Sequence[Run], level: int) -> tuple[float, float] | None:
    """Return the time from the first to the last moment with so many requests in flight."""
    changes = sorted(
        change
        for run in runs
        for change in (((run.at or 0.0), 1), ((run.at or 0.0) + (run.total_ms or 0.0) / 1000, -1))
    )
    begin = end = None
    now = 0
    for at, change in changes:
        if change < 0 and now == level:
            end = at
        now += change
        if now == level and begin is None:
            begin = at
    return (begin, end) if begin is not None and end is not None and end > begin else None


def _tokens_within(run: Run, begin: float, end: float) -> float:
    """Return the tokens of a run in a window of time: equally many in each piece, or evenly if pieces are not kept."""
    first = (run.at or 0.0) + (run.first_token_ms or 0.0) / 1000
    if not run.pieces_ms and run.predicted_ms:
        last = first + run.predicted_ms / 1000
        return (run.predicted_n or 0) * max(0.0, min(end, last) - max(begin, first)) / (last - first)
    times = [first]
    for gap in run.pieces_ms:
        times.append(times[-1] + gap / 1000)
    return (run.predicted_n or 0) * sum(begin <= at < end for at in times) / len(times)


def queue_note(levels: Sequence[int], slots: int | None) -> str | None:
    """Return a note if there are more requests at once than the server has slots."""
    most = max(levels, default=0)
    if slots is None or most <= slots:
        return None
    does = "slot" if slots == 1 else "slots"
    return f"the server has {slots} {does}: of {most} requests at once, {most - slots} wait, and their first tokens too"
